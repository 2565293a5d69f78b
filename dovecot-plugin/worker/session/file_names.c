/* file_names - names of a Maildir's files that had a mail before.
 *
 * The library calls a file by its mail's GUID where that is a file's base name, if no other file
 * has it: a copy of a mail has the mail's GUID, and gets its name when the mail is gone. A process
 * that knows the mail under that name has two UIDs for one file then. It warns ("Duplicate file
 * entry", "Expunged message reappeared"), or loses count of recent mails. A stock Dovecot does it
 * with a client's COPY. Here renumbering and other sites' copies would do it far more often. The
 * GUID is kept in dovecot-uidlist then, as of any copy (guids.c).
 *
 * The library calls the function below instead of its own, since this program exports it; it asks
 * whether a file has the name. If it ever calls its own, there are those warnings. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/file_names.h"

#include <array.h>
#include <maildir-uidlist.h>

#include <dlfcn.h>

static ARRAY_TYPE(const_string) used;

void file_name_is_used(const char *guid)
{
    const char *copy = i_strdup(guid);
    if (!array_is_created(&used))
        i_array_init(&used, 8);
    array_push_back(&used, &copy);
}

void file_names_end(void)
{
    const char *name;
    if (!array_is_created(&used))
        return;
    array_foreach_elem (&used, name) {
        char *own = (char *)(uintptr_t)name;
        i_free(own);
    }
    array_free(&used);
}

static bool is_used(const char *name)
{
    const char *other;
    if (!array_is_created(&used))
        return FALSE;
    array_foreach_elem (&used, other)
        if (strcmp(other, name) == 0)
            return TRUE;
    return FALSE;
}

const char *maildir_uidlist_get_full_filename(struct maildir_uidlist *uidlist, const char *filename)
{
    static const char *(*own)(struct maildir_uidlist *, const char *);
    if (own == NULL)
        *(void **)&own = dlsym(RTLD_NEXT, "maildir_uidlist_get_full_filename");
    const char *there = own == NULL ? NULL : own(uidlist, filename);
    return there == NULL && is_used(filename) ? filename : there;
}
