/* spare_log - what clients asked to expunge by the index logs that `doveadm force-resync` replaced (the plugin keeps them: ../../plugin/spare_log.h).
 *
 * A request names a UID, and the GUID where the library knew it without reading the mail. What it says of this mail it says for ever; so it does no
 * harm to read it again, or what was read before the rebuild. What cannot be read is no evidence of anything. Nor is one that lies beside another
 * index than it came from: whatever the reason for comparing the whole mailbox was, they are all gone afterwards. */
#include "worker.h"

#include "../../plugin/line.h"
#include "../../plugin/requested_log.h"

#include <mail-storage-private.h>

#include <dirent.h>
#include <string.h>
#include <unistd.h>

static void take(void *arg, uint32_t uid, const uint8_t guid[16])
{
    struct former *f = array_append_space((ARRAY_TYPE(former) *)arg);
    memcpy(f->guid, guid, sizeof f->guid);
    f->uid = uid;
}

void spare_logs_read(struct session *s, struct mailbox *box, uint32_t indexid, ARRAY_TYPE(former) *requested, ARRAY_TYPE(spare_log) *read)
{
    const char *dir;
    struct dirent *e;
    DIR *d = mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &dir) > 0 ? opendir(dir) : NULL;
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (!str_begins_with(e->d_name, LINE_SPARE_LOG))
            continue;
        char *path = i_strconcat(dir, "/", e->d_name, NULL);
        if (indexid == 0 || requested_log_read(path, indexid, take, requested) == 0) {
            array_push_back(read, &path);
            continue;
        }
        session_note(s, NOTE_WARNING, "%s: cannot be read: %m", path);
        i_free(path);
    }
    if (d != NULL)
        closedir(d);
}

void spare_logs_pass(ARRAY_TYPE(spare_log) *from, ARRAY_TYPE(spare_log) *to)
{
    array_append_array(to, from);
    array_clear(from);
}

static void end_paths(ARRAY_TYPE(spare_log) *read)
{
    char **path;
    array_foreach_modifiable(read, path) i_free(*path);
    array_clear(read);
}

void spare_logs_remove(ARRAY_TYPE(spare_log) *read)
{
    char *const *path;
    array_foreach(read, path) (void)unlink(*path);
    end_paths(read);
}

void spare_logs_forget(ARRAY_TYPE(spare_log) *read)
{
    end_paths(read);
    array_free(read);
}
