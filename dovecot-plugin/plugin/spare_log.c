/* spare_log - see spare_log.h */
#include "../compat.h"

#include "spare_log.h"
#include "line.h"
#include "requested_log.h"

#include <errno.h>
#include <mail-storage-private.h>
#include <mailbox-list-iter.h>
#include <mailbox-list-private.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void take(void *arg, uint32_t uid ATTR_UNUSED, const uint8_t guid[16] ATTR_UNUSED)
{
    *(bool *)arg = TRUE;
}

/* dir: where a mailbox has its index. */
static void keep(struct mailbox *box, const char *dir)
{
    const char *log = t_strconcat(dir, "/" MAIL_INDEX_PREFIX ".log", NULL), *spare;
    struct stat st;
    bool any = FALSE;

    /* A rebuild of an mdbox with many mailboxes, one after the other, replaces each log many times; after the first it says nothing. */
    if (lstat(log, &st) < 0 || (requested_log_read(log, 0, take, &any) == 0 && !any))
        return;
    /* The name is the file's as long as it has it. */
    spare = t_strdup_printf("%s/" LINE_SPARE_LOG "%llu", dir, (unsigned long long)st.st_ino);
    if (link(log, spare) < 0 && errno != EEXIST)
        e_warning(box->event,
                  "dovelane: link(%s, %s): %m: mails that were expunged and that the replicator has not heard of yet come back "
                  "from the other sites",
                  log, spare);
}

static void keep_all(struct mailbox *box)
{
    struct mailbox_list_iterate_context *iter;
    const struct mailbox_info *info;

    iter = mailbox_list_iter_init(box->list, "*", MAILBOX_LIST_ITER_RAW_LIST | MAILBOX_LIST_ITER_NO_AUTO_BOXES | MAILBOX_LIST_ITER_RETURN_NO_FLAGS);
    while ((info = mailbox_list_iter_next(iter)) != NULL) {
        T_BEGIN {
            const char *dir;

            if (mailbox_list_get_path(box->list, mailbox_list_get_storage_name(box->list, info->vname), MAILBOX_LIST_PATH_TYPE_INDEX, &dir) > 0)
                keep(box, dir);
        }
        T_END;
    }
    if (mailbox_list_iter_deinit(&iter) < 0)
        e_warning(box->event, "dovelane: cannot list the mailboxes that are rebuilt with %s: what was expunged in them may come back", box->vname);
}

void spare_log_keep(struct mailbox *box)
{
    const char *dir;

    if (strcmp(box->storage->name, "mdbox") == 0)
        keep_all(box);
    else if (strcmp(box->storage->name, "sdbox") == 0 && mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &dir) > 0)
        keep(box, dir);
}
