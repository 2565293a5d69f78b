/* journal - what the plugin wrote before folders were deleted, and names subscribed or
 * unsubscribed: the evidence for it (F10).
 *
 * It is taken away, and a line goes when what it says is committed: one that stayed would be
 * evidence against the folder's next life, when that is only damaged. A line that comes
 * meanwhile is read where it is: who lists first and reads then knows of each name that is gone
 * whether somebody wanted that. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/worker/logs/journal.h"
#include "dovecot-plugin/worker/logs/journal_said.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <str.h>
#include <write-full.h>

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

/* What the plugin writes; what was taken away; what came while some of that has to wait; what is
 * written in its place. */
enum part { PART_NEW, PART_WORK, PART_MORE, PART_KEPT };

static const char *journal_path(const char *dir, enum part part)
{
    static const char *const name[] = {"/intents", "/intents.work", "/intents.more",
                                       "/intents.kept"};
    return t_strconcat(dir, name[part], NULL);
}

/* Where the plugin writes them: with the user's INBOX, and of each public namespace that is kept
 * here in that one's own control root, since who deletes there may not reach this user's. */
static void find_journals(struct session *s, ARRAY_TYPE(const_string) * dirs)
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
        session_note(s, NOTE_WARNING,
                     "%s has more than %d MiB: what was deleted behind that is taken for damage",
                     path, JOURNAL_MAX / 1048576);
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
    array_foreach (&dirs, dir) {
        int fd = session_open_file(s, journal_path(*dir, PART_NEW));
        used = used || (fd != -1 && is_in_use(fd));
        i_close_fd(&fd);
    }
    return used;
}

/* Not while what it says is under way, which the plugin's lock tells: the folder may still be
 * there then, and the line would be dropped as void. */
static int take_away(struct session *s, const char *path, const char *to)
{
    int fd = session_open_file(s, path);
    if (fd < 0)
        return errno == ENOENT ? 0 : session_fail(s, "open(%s): %m", path);
    int r = is_in_use(fd) ? 0 : rename(path, to);
    i_close_fd(&fd);
    return r < 0 ? session_fail(s, "rename(%s): %m", to) : 0;
}

/* What was left of what was taken before, by a crash or since some of it has to wait, is there
 * still. 1: there is something, 0, -1 */
static int take_one(struct journal *j, const char *dir)
{
    struct session *s = j->s;
    const char *work = journal_path(dir, PART_WORK), *more = journal_path(dir, PART_MORE);
    bool waits = access(work, F_OK) == 0;
    if ((!waits || access(more, F_OK) < 0) &&
        take_away(s, journal_path(dir, PART_NEW), waits ? more : work) < 0)
        return -1;
    if (access(work, F_OK) < 0 && access(more, F_OK) < 0)
        return 0;
    /* an empty one is to go, too */
    return read_text(s, work, j->text) < 0 || read_text(s, more, j->text) < 0 ? -1 : 1;
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
    array_foreach (&j->dirs, dir) {
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
    array_foreach (&j->dirs, dir) {
        if (read_text(j->s, journal_path(*dir, PART_NEW), j->text) < 0)
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

uint32_t journal_last_uid_next(struct journal *j, const guid_128_t guid)
{
    const struct deletion *d = journal_said_deleted(&j->said, guid);
    return d == NULL ? 0 : d->uid_next;
}

int journal_each_deleted(struct journal *j, journal_deleted_fn *fn, void *arg)
{
    const struct deletion *d;
    int r = 0;
    array_foreach (&j->said.deletions, d) {
        if (r == 0 && d->times > 0)
            r = fn(arg, d);
    }
    return r;
}

bool journal_subscription(struct journal *j, const char *vname, bool on)
{
    return journal_said_subscription(&j->said, vname, on);
}

static int write_kept(struct session *s, const char *dir, const string_t *bodies)
{
    const char *path = journal_path(dir, PART_KEPT);
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return session_fail(s, "open(%s): %m", path);
    bool written = write_full(fd, str_data(bodies), str_len(bodies)) == 0 && fdatasync(fd) == 0;
    if (close(fd) < 0 || !written || rename(path, journal_path(dir, PART_WORK)) < 0)
        return session_fail(s, "write(%s): %m", path);
    return 0;
}

static int settle_one(struct session *s, const char *dir, const ARRAY_TYPE(guid_128_t) * waiting,
                      bool names)
{
    const char *work = journal_path(dir, PART_WORK), *more = journal_path(dir, PART_MORE);
    string_t *text = str_new(default_pool, 256), *bodies = str_new(default_pool, 256);
    int r = 0;
    if (array_count(waiting) > 0 || names) {
        r = read_text(s, work, text) < 0 || read_text(s, more, text) < 0 ? -1 : 0;
        journal_said_keep(str_data(text), str_len(text), waiting, names, bodies);
    }
    if (r == 0 && str_len(bodies) == 0)
        (void)unlink(work);
    else if (r == 0 && (str_len(bodies) < str_len(text) || access(more, F_OK) == 0))
        r = write_kept(s, dir, bodies);
    if (r == 0)
        (void)unlink(more);
    str_free(&text);
    str_free(&bodies);
    return r;
}

int journal_settle(struct session *s, const ARRAY_TYPE(guid_128_t) * waiting, bool names)
{
    ARRAY_TYPE(const_string) dirs;
    const char *const *dir;
    int r = 0;
    crash_at("intents");
    /* Nothing else tells of a deletion: after a power loss a state without it would have the
     * folder made again. */
    if (state_sqlite_checkpoint(s->db) < 0)
        return session_fail(s, "state: %s", state_sqlite_error(s->db));
    find_journals(s, &dirs);
    array_foreach (&dirs, dir) {
        if (r == 0)
            r = settle_one(s, *dir, waiting, names);
    }
    return r;
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
