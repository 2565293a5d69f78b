/* copies - of mailboxes that have one GUID, which is the known one, and which are copies of it.
 *
 * An admin puts a mailbox beside itself, file by file, as one does with a backup: both have one
 * GUID then. The copy gets another one, or who deletes it deletes the original at all sites. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/ingest/mailbox_diff.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-storage-private.h>

#include <sys/stat.h>

struct owner {
    const uint8_t *guid; /* of one that cannot be read: what it had */
    struct found_mailbox *f;
};

static int by_guid(const struct owner *a, const struct owner *b)
{
    int r = memcmp(a->guid, b->guid, GUID_128_SIZE);
    return r != 0 ? r : a->f < b->f ? -1 : a->f > b->f;
}

/* 0, or an errno */
static int stat_mailbox(struct session *s, const char *vname, struct stat *st)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    const char *name = mailbox_list_get_storage_name(ns->list, vname), *path;
    if (mailbox_list_get_path(ns->list, name, MAILBOX_LIST_PATH_TYPE_MAILBOX, &path) <= 0)
        return ENOENT;
    return stat(path, st) < 0 ? errno : 0;
}

/* By another name, of the file system's making (a bind mount). True, too, when one is gone since.
 * One that cannot be reached is another one than one that can be. */
static bool is_same_directory(struct session *s, const char *one, const char *other)
{
    struct stat st[2];
    int errors[2] = {stat_mailbox(s, one, &st[0]), stat_mailbox(s, other, &st[1])};
    if (is_not_there(errors[0]) || is_not_there(errors[1]))
        return TRUE;
    return errors[0] == 0 && errors[1] == 0 && st[0].st_ino == st[1].st_ino &&
           st[0].st_dev == st[1].st_dev;
}

/* Which of several is the one that was known: that of the name, else whichever. */
static const struct found_mailbox *original(struct session *s, const struct owner *list, unsigned n)
{
    const struct box *x = box_by_guid(s, list[0].guid);
    for (unsigned i = 0; x != NULL && x->vname != NULL && i < n; i++) {
        if (strcmp(list[i].f->vname, x->vname) == 0)
            return list[i].f;
    }
    return list[0].f;
}

/* One that cannot be read now was renamed, perhaps, and another one made: then a folder is shown
 * twice. But is it the original, and its copy taken for it, who deletes the copy deletes the folder
 * everywhere. */
static const uint8_t *guid_of(struct session *s, const struct found_mailbox *f)
{
    const struct box *x = f->unreadable ? box_by_vname(s, f->vname) : NULL;
    return !f->unreadable ? f->guid : x == NULL || guid_128_is_empty(x->guid) ? NULL : x->guid;
}

bool copies_mark(struct tree *t)
{
    ARRAY(struct owner) list;
    struct found_mailbox *f;
    struct owner *o;
    unsigned n, next;
    bool any = FALSE;
    t_array_init(&list, array_count(&t->found) + 1);
    array_foreach_modifiable (&t->found, f) {
        struct owner one = {guid_of(t->s, f), f};
        if (one.guid != NULL)
            array_push_back(&list, &one);
    }
    array_sort(&list, by_guid);
    o = array_get_modifiable(&list, &n);
    for (unsigned at = 0; at < n; at = next) {
        for (next = at + 1; next < n && memcmp(o[next].guid, o[at].guid, GUID_128_SIZE) == 0;)
            next++;
        const struct found_mailbox *first =
            next - at == 1 ? o[at].f : original(t->s, o + at, next - at);
        for (unsigned i = at; i < next; i++) {
            struct found_mailbox *other = o[i].f;
            other->copy = other != first && !other->unreadable &&
                          !is_same_directory(t->s, other->vname, first->vname);
            any = any || other->copy;
        }
    }
    return any;
}

/* Where it cannot be done the mailbox is as one that is not replicated. */
static void part_copy(struct tree *t, struct found_mailbox *f)
{
    struct session *s = t->s;
    struct mailbox_update update;
    struct mailbox_metadata metadata;
    struct mailbox *box = session_mailbox(s, f->vname, 0);
    i_zero(&update);
    guid_128_generate(update.mailbox_guid);
    if (session_open_refreshed(box) < 0 || mailbox_update(box, &update) < 0 ||
        mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &metadata) < 0 ||
        !guid_128_equals(metadata.guid, update.mailbox_guid)) {
        session_note(s, NOTE_WARNING,
                     "%s has the GUID of another mailbox, as a copy of its files has, and gets no "
                     "other one (%s): it is not replicated",
                     f->vname, mailbox_get_last_internal_error(box, NULL));
    } else {
        session_note(s, NOTE_WARNING,
                     "%s has the GUID of another mailbox, as a copy of its files has: it got "
                     "another one",
                     f->vname);
        memcpy(f->guid, update.mailbox_guid, sizeof f->guid);
        f->copy = FALSE;
    }
    mailbox_free(&box);
}

void copies_part(struct tree *t)
{
    struct found_mailbox *f;
    array_foreach_modifiable (&t->found, f) {
        if (f->copy)
            part_copy(t, f);
    }
}
