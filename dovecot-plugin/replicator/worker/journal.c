/* journal - what the plugin wrote before folders were deleted, and names subscribed or unsubscribed: the evidence for it (F10).
 *
 * It is taken away, and removed when all that it says is committed. A line that comes meanwhile is read where it is: who lists
 * first and reads then knows of each name that is gone whether somebody wanted that. */
#include "journal_said.h"
#include "worker.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define JOURNAL_MAX (8 * 1048576) /* bytes of one: a hundred thousand deletions */

struct journal {
    struct session *s;
    ARRAY_TYPE(const_string) dirs;
    string_t *text;
    struct journal_said said;
    size_t taken; /* so much of the text was taken away */
};

static const char *journal_path(const char *dir, bool work)
{
    return t_strconcat(dir, work ? "/intents.work" : "/intents", NULL);
}

/* Where the plugin writes them: with the user's INBOX, and of each public namespace that is kept here in that one's own control
 * root, since who deletes there may not reach this user's. */
static void find_journals(struct session *s, ARRAY_TYPE(const_string) *dirs)
{
    const char *root, *dir = s->dir;
    t_array_init(dirs, 2);
    array_push_back(dirs, &dir);
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        if (ns->type != MAIL_NAMESPACE_TYPE_PUBLIC || !session_has_namespace(s, ns) ||
            !mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root))
            continue;
        dir = t_strconcat(root, "/dovelane", NULL);
        if (strcmp(dir, s->dir) != 0)
            array_push_back(dirs, &dir);
    }
}

/* The directory is the user's own, and may hold a FIFO or a sparse file of terabytes. */
static int read_text(struct session *s, const char *path, string_t *text)
{
    size_t limit = str_len(text) + JOURNAL_MAX;
    int fd = session_open_file(s, path);
    ssize_t n = 1;
    if (fd == -1)
        return errno == ENOENT ? 0 : session_fail(s, "open(%s): %m", path);
    while (str_len(text) < limit && n > 0) {
        n = read(fd, buffer_append_space_unsafe(text, 65536), 65536);
        str_truncate(text, str_len(text) - 65536 + (n > 0 ? (size_t)n : 0));
    }
    int r = n < 0 ? session_fail(s, "read(%s): %m", path) : 0;
    if (n > 0)
        session_note(s, NOTE_WARNING, "%s has more than %d MiB: what was deleted behind that is taken for damage", path,
                     JOURNAL_MAX / 1048576);
    i_close_fd(&fd);
    return r;
}

static bool is_in_use(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) < 0;
}

bool journal_in_use(struct session *s)
{
    ARRAY_TYPE(const_string) dirs;
    const char *const *dir;
    bool used = FALSE;
    find_journals(s, &dirs);
    array_foreach(&dirs, dir)
    {
        int fd = session_open_file(s, journal_path(*dir, FALSE));
        used = used || (fd != -1 && is_in_use(fd));
        i_close_fd(&fd);
    }
    return used;
}

/* What was left of what was taken before, by a crash or since some of it has to wait, is taken first. Not while what it says is under way,
 * which the plugin's lock tells: the folder may still be there then, and the line would be dropped as void. 1: there is something, 0, -1 */
static int take_one(struct journal *j, const char *dir)
{
    struct session *s = j->s;
    const char *path = journal_path(dir, FALSE), *work = journal_path(dir, TRUE);
    if (access(work, F_OK) < 0) {
        int fd = session_open_file(s, path);
        if (fd < 0)
            return errno == ENOENT ? 0 : session_fail(s, "open(%s): %m", path);
        bool used = is_in_use(fd);
        int r = used ? 0 : rename(path, work);
        i_close_fd(&fd);
        if (used || r < 0)
            return used ? 0 : session_fail(s, "rename(%s): %m", work);
    }
    return read_text(s, work, j->text) < 0 ? -1 : 1; /* an empty one is to go, too: none is taken while it is there */
}

int journal_take(struct session *s, struct journal **journal_r, bool *taken)
{
    struct journal *j = *journal_r = i_new(struct journal, 1);
    const char *const *dir;
    int r;
    j->s = s;
    j->text = str_new(default_pool, 256);
    journal_said_init(&j->said);
    find_journals(s, &j->dirs);
    array_foreach(&j->dirs, dir)
    {
        if ((r = take_one(j, *dir)) < 0)
            return -1;
        *taken = *taken || r > 0;
    }
    j->taken = str_len(j->text);
    return 0;
}

/* What was written since it was taken is evidence now, and still there next time. */
int journal_read(struct journal *j)
{
    const char *const *dir;
    str_truncate(j->text, j->taken);
    array_foreach(&j->dirs, dir)
    {
        if (read_text(j->s, journal_path(*dir, FALSE), j->text) < 0)
            return -1;
    }
    journal_said_parse(&j->said, str_data(j->text), str_len(j->text));
    return 0;
}

bool journal_deleted(struct journal *j, const guid_128_t guid)
{
    return journal_said_deleted(&j->said, guid) != NULL;
}

const char *journal_last_name(struct journal *j, const guid_128_t guid)
{
    const struct deletion *d = journal_said_deleted(&j->said, guid);
    return d == NULL ? NULL : d->vname;
}

bool journal_subscription(struct journal *j, const char *vname, bool on)
{
    return journal_said_subscription(&j->said, vname, on);
}

int journal_drop(struct session *s)
{
    ARRAY_TYPE(const_string) dirs;
    const char *const *dir;
    crash_at("intents");
    /* Nothing else tells of a deletion: after a power loss a state without it would have the folder made again. */
    if (state_sqlite_checkpoint(s->db) < 0)
        return session_fail(s, "state: %s", state_sqlite_error(s->db));
    find_journals(s, &dirs);
    array_foreach(&dirs, dir) (void)unlink(journal_path(*dir, TRUE));
    return 0;
}

void journal_free(struct journal **_j)
{
    struct journal *j = *_j;
    *_j = NULL;
    if (j == NULL)
        return;
    str_free(&j->text);
    journal_said_free(&j->said);
    i_free(j);
}
