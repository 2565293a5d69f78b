/* hint - writes hint lines into the FIFO, and dirty marks where that fails. */
#include "dovecot-plugin/plugin/hint.h"
#include "dovecot-plugin/protocol/line.h"

#include <errno.h>
#include <fcntl.h>
#include <ioloop.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPLAIN_EVERY 60 /* seconds */

/* The one FIFO of this process. A second path (settings that differ per user) takes its place. */
static struct {
    char *path;
    int fd;
} fifo = {NULL, -1};
static time_t complained;

static void fifo_close(void)
{
    if (fifo.fd != -1)
        i_close_fd(&fifo.fd);
    i_free(fifo.path);
}

/* Opens for writing without waiting for a reader: ENXIO when there is none. */
static bool fifo_open(const char *path)
{
    struct stat st;

    fifo_close();
    fifo.fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fifo.fd == -1)
        return FALSE;
    if (fstat(fifo.fd, &st) < 0 || !S_ISFIFO(st.st_mode)) {
        /* A plain file would take every hint and nobody would read it. */
        i_close_fd(&fifo.fd);
        return FALSE;
    }
    fifo.path = i_strdup(path);
    return TRUE;
}

static bool fifo_write(const char *path, const char *line, size_t size)
{
    if (size == 0)
        return FALSE;
    if (fifo.fd != -1 && strcmp(fifo.path, path) == 0) {
        if (write(fifo.fd, line, size) == (ssize_t)size)
            return TRUE;
        if (errno == EAGAIN)
            return FALSE; /* full: the replicator is there, and slow */
        /* No reader: perhaps a new replicator made a new FIFO. */
    }
    return fifo_open(path) && write(fifo.fd, line, size) == (ssize_t)size;
}

const char *hint_mark_path(pool_t pool, const char *dirty_dir, const char *user)
{
    char name[LINE_MARK_MAX + 1];

    line_mark(name, user);
    return p_strconcat(pool, dirty_dir, "/", name, NULL);
}

/* A mark that is there already is as good as a new one: the replicator removes it before it
 * looks. Seeing that costs less than trying to make it. O_EXCL, since opening another user's
 * file in a sticky directory is refused where protected_regular is on. */
static bool mark_make(const char *path)
{
    struct stat st;
    int fd;

    if (lstat(path, &st) == 0)
        return TRUE;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd == -1)
        return errno == EEXIST;
    i_close_fd(&fd);
    return TRUE;
}

void hint_send(const struct hint *hint, struct event *event)
{
    int old_errno = errno;

    if (!fifo_write(hint->fifo, hint->line, hint->size) && !mark_make(hint->mark) &&
        ioloop_time - complained >= COMPLAIN_EVERY) {
        complained = ioloop_time;
        e_warning(event,
                  "dovelane: no hint to %s and no mark %s (%m): changes wait for a sweep; start "
                  "dovelane-replicator, or make the mark's directory, mode 1733",
                  hint->fifo, hint->mark);
    }
    errno = old_errno;
}

void hint_deinit(void)
{
    fifo_close();
}
