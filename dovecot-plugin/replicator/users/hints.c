/* hints - reads the FIFO and the dirty marks, and tells the users.
 *
 * While hints come, the FIFO is read every READ_GAP and not waited for: else each write would
 * wake this process, and that is most of what a hint costs the client's process. So of those
 * that come one by one none waits. */
#include "dovecot-plugin/replicator/users/hints.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/protocol/hint.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/users/unproven.h"

#define READ_GAP 2000000 /* ns; by timerfd: the loop's own timers may be as late (bridge.h) */
#define READS_MOST 16
#define NO_WRITER 0.2 /* seconds until a FIFO without a writer is looked at again */
/* names that nobody has known yet, in memory: more are not read until those are looked up */
#define UNPROVEN_MOST 10000
#define FULL_AGAIN 0.2
/* seconds between two looks at marks that stay since nothing can be written */
#define MARKS_STAY 5.
#define MARKS_MAX 10000 /* names of one look at the directory; the next one goes on behind them */
#define STUCK_LOOKS 20  /* of users whose marks cannot be removed, for one look at all marks */

struct hints {
    struct replicator *r;
    ev_io fifo, gap;
    ev_timer again, dirty;
    char line[2 * HINT_MAX + 1];
    size_t n;
    bool flushed; /* whoever was known when the marks were begun to be looked at is so for good */
    double said, said_dirty, said_mode, said_full, said_backup, swept_all, marks_after;
    unsigned long long at_backup;
    DIR *marks; /* at the name behind the last look's; NULL: from the beginning */
    /* names in it that cannot be removed: so far, and as counted last */
    unsigned stuck, stuck_before;
};

static void look(struct hints *h, const struct hint *hint)
{
    struct user *u = user_get(h->r->users, hint->user, strlen(hint->user));
    if (u)
        user_look(u, hint->guid, hint->name, hint->name_len);
    else
        sweep_everyone(h->r->sweep);
}

/* It is replicated as ever. But what is removed here is kept nowhere. */
static void changed_at_backup(struct hints *h, const struct hint *hint)
{
    h->at_backup++;
    metric_add(replicator_backup_changes, 1);
    if (replicator_may_say(&h->said_backup, 600.))
        log_warning(
            "user=%s: a client or a delivery changed a mailbox at this site, whose role is backup. "
            "Send them to other sites: mail removed here is not kept (role, in dovelane.conf)",
            hint->user);
}

static void one_hint(struct hints *h, const char *line, size_t n)
{
    struct hint hint;
    metric_add(replicator_hints, 1);
    if (hint_parse(line, n, &hint)) {
        if (h->r->group.backup)
            changed_at_backup(h, &hint);
        look(h, &hint);
        return;
    }
    metric_add(replicator_hints_unreadable, 1);
    if (replicator_may_say(&h->said, 60.))
        log_warning("a line that is not a hint: %.*s", (int)(n < 100 ? n : 100), line);
}

static void one_line(struct hints *h, const char *line, size_t n)
{
    size_t at;
    while ((at = hint_last(line, n)) > 0) {
        one_hint(h, line + at, n - at);
        n = at;
    }
    one_hint(h, line, n);
}

static void lines(struct hints *h)
{
    char *at = h->line, *end = h->line + h->n, *lf;
    while ((lf = memchr(at, '\n', (size_t)(end - at)))) {
        one_line(h, at, (size_t)(lf - at));
        at = lf + 1;
    }
    h->n = (size_t)(end - at);
    memmove(h->line, at, h->n);
    /* Whoever writes no line end must not take away the hint of whoever writes next, which ends
     * the line: its end is kept. */
    if (h->n >= HINT_MAX) {
        memmove(h->line, h->line + h->n - (HINT_MAX - 1), HINT_MAX - 1);
        h->n = HINT_MAX - 1;
    }
}

/* Reads what is there. False: nothing was. */
static bool take(struct hints *h)
{
    ssize_t n = read(h->fifo.fd, h->line + h->n, sizeof h->line - 1 - h->n);
    if (n > 0) {
        h->n += (size_t)n;
        lines(h);
    } else if (n == 0) {
        /* Nobody has it open for writing: it stays readable at its end until somebody has. */
        ev_io_stop(h->r->loop, &h->fifo);
        ev_timer_set(&h->again, NO_WRITER, 0.);
        ev_timer_start(h->r->loop, &h->again);
    }
    return n > 0;
}

/* The FIFO is writable for all: names that are made up are read no faster than they are looked
 * up. Who cannot write into it then leaves a mark. */
static bool is_full(struct hints *h)
{
    return unproven_by_hints(h->r->unproven) >= UNPROVEN_MOST;
}

static bool take_all(struct hints *h)
{
    bool any = false;
    for (int i = 0; i < READS_MOST && !is_full(h) && take(h); i++)
        any = true;
    return any;
}

static void wait_for_lookups(struct hints *h)
{
    ev_io_stop(h->r->loop, &h->fifo);
    if (!ev_is_active(&h->again)) {
        ev_timer_set(&h->again, FULL_AGAIN, 0.);
        ev_timer_start(h->r->loop, &h->again);
    }
    if (replicator_may_say(&h->said_full, 60.))
        log_warning("hints name more than %d users that nobody knows: they are looked up before "
                    "more are read; who writes them into dovelane-hint?",
                    UNPROVEN_MOST);
}

static void on_fifo(struct ev_loop *loop, ev_io *io, int events)
{
    static const struct itimerspec gap = {.it_value.tv_nsec = READ_GAP};
    struct hints *h = io->data;
    (void)events;
    bool any = take_all(h);
    if (is_full(h))
        wait_for_lookups(h);
    else if (any && timerfd_settime(h->gap.fd, 0, &gap, NULL) == 0)
        ev_io_stop(loop, io);
    else if (!ev_is_active(&h->again))
        ev_io_start(loop, io);
}

static void on_gap(struct ev_loop *loop, ev_io *io, int events)
{
    struct hints *h = io->data;
    uint64_t times;
    if (read(io->fd, &times, sizeof times) == sizeof times && !ev_is_active(&h->again))
        on_fifo(loop, &h->fifo, events);
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)events;
    struct hints *h = t->data;
    ev_io_start(loop, &h->fifo);
}

static bool mark_remove(int dir, const char *name)
{
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT ||
           (errno == EISDIR && unlinkat(dir, name, AT_REMOVEDIR) == 0);
}

static bool is_known(struct hints *h, const char *user)
{
    return user_find(h->r->users, user, strlen(user)) || ledger_knows(h->r->ledger, user);
}

/* Whether the mark can go: the user is known without it, whatever happens to this process and
 * this host, or is none. */
static bool may_go(struct hints *h, const char *user)
{
    const struct user *u = user_find(h->r->users, user, strlen(user));
    return (u && clock_monotonic() < u->unknown_until) || ledger_user_seen(h->r->ledger, user);
}

/* The directory is writable for all: whoever fills it with names that cannot be removed must not
 * have all their users looked at all the time. */
static bool may_look_at_stuck(struct hints *h)
{
    unsigned n = ++h->stuck > h->stuck_before ? h->stuck : h->stuck_before;
    return n <= STUCK_LOOKS || (unsigned)random() % n < STUCK_LOOKS;
}

/* A mark goes before the user is looked at: a change that comes in between leaves another one.
 * Of a user never seen before it stays until the next time, and of all while nothing can be
 * written: it may be all that tells of him. One that cannot go, a directory with something in
 * it, is no mark but would be taken for one by the plugin: that user is looked at now and then.
 * The mark for all stays while the sweeps rest. */
static void mark(struct hints *h, int dir, const char *name)
{
    struct hint hint = {.guid = ""};
    bool all, is_mark = hint_mark(name, hint.user, &all), gone;
    if (all && sweep_rests(h->r->sweep))
        return; /* later */
    if (is_mark && !all && is_full(h) && !is_known(h, hint.user))
        return; /* later */
    metric_add(replicator_dirty, 1);
    if (!is_mark && replicator_may_say(&h->said_dirty, 60.))
        log_warning("%s/%s: is no mark of a user, removed", h->r->config->dirty_dir, name);
    if (is_mark && !all && (!may_go(h, hint.user) || !h->flushed)) {
        look(h, &hint);
        return;
    }
    gone = mark_remove(dir, name);
    if (!gone && replicator_may_say(&h->said_dirty, 60.))
        log_error("%s/%s: cannot be removed: %s", h->r->config->dirty_dir, name, strerror(errno));
    /* what the plugin takes for a mark says the same all the time */
    if (all && (gone || replicator_may_say(&h->swept_all, 600.)))
        sweep_everyone(h->r->sweep);
    else if (is_mark && !all && (gone || may_look_at_stuck(h)))
        look(h, &hint);
}

static void end_marks(struct hints *h)
{
    if (h->marks)
        closedir(h->marks);
    h->marks = NULL;
    h->stuck_before = h->stuck;
    h->stuck = 0;
}

static void on_dirty(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct hints *h = t->data;
    const char *path = h->r->config->dirty_dir;
    struct dirent *e = NULL;
    /* Files are removed in there. Below a directory that is another program's, a link could lead
     * to our own. */
    int fd = h->marks ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!h->marks && !(h->marks = fd >= 0 ? fdopendir(fd) : NULL)) {
        if (fd >= 0)
            close(fd);
        if (replicator_may_say(&h->said_dirty, 600.))
            log_error("dirty_dir %s: %s: changes of users whose hint is lost wait for a sweep; "
                      "make it, mode 1733",
                      path, strerror(errno));
        return;
    }
    struct stat st = {.st_nlink = 1};
    if (fstat(dirfd(h->marks), &st) == 0 && (st.st_mode & 0003) != 0003 &&
        (st.st_mode & 0030) != 0030 && replicator_may_say(&h->said_mode, 600.))
        log_warning(
            "dirty_dir %s: mode %04o: mail processes cannot leave marks there: make it 1733", path,
            (unsigned)st.st_mode & 07777);
    h->flushed = ledger_flush(h->r->ledger);
    if (!h->flushed && clock_monotonic() < h->marks_after)
        return;
    h->marks_after = clock_monotonic() + MARKS_STAY;
    for (int i = 0; i < MARKS_MAX && (e = readdir(h->marks)); i++)
        if (e->d_name[0] != '.')
            mark(h, dirfd(h->marks), e->d_name);
    if (!e || st.st_nlink == 0) /* all were looked at, or the directory is another one by now */
        end_marks(h);
}

struct hints *hints_open(struct replicator *r)
{
    struct hints *h = mem_zero(sizeof *h);
    h->r = r;
    ev_io_init(&h->fifo, on_fifo, -1, EV_READ);
    ev_io_init(&h->gap, on_gap, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
               EV_READ);
    if (h->gap.fd < 0)
        log_fatal("timerfd_create: %s", strerror(errno));
    ev_timer_init(&h->again, on_again, 0., 0.);
    /* The first look comes at once: marks of the time when nobody was here. */
    ev_timer_init(&h->dirty, on_dirty, 0., seconds(r->config->sweep_dirty));
    h->fifo.data = h->gap.data = h->again.data = h->dirty.data = h;
    ev_timer_start(r->loop, &h->dirty);
    return h;
}

void hints_fifo(struct hints *h, int fd)
{
    if (h->fifo.fd >= 0) {
        close(fd); /* the master gives it once */
        return;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    ev_io_set(&h->fifo, fd, EV_READ);
    ev_io_start(h->r->loop, &h->fifo);
    ev_io_start(h->r->loop, &h->gap);
}

unsigned long long hints_at_backup(const struct hints *h)
{
    return h->at_backup;
}

void hints_stop(struct hints *h)
{
    ev_io_stop(h->r->loop, &h->fifo);
    ev_io_stop(h->r->loop, &h->gap);
    ev_timer_stop(h->r->loop, &h->again);
    ev_timer_stop(h->r->loop, &h->dirty);
    end_marks(h);
}

void hints_close(struct hints *h)
{
    if (!h)
        return;
    hints_stop(h);
    if (h->fifo.fd >= 0)
        close(h->fifo.fd);
    close(h->gap.fd);
    free(h);
}
