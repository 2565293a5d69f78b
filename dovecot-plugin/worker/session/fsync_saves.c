/* fsync_saves - the files of mails that are saved together reach the disk together.
 *
 * sdbox and Maildir write each mail to a file of its own and wait for the disk at its end, before
 * the next mail: that wait is most of what a save costs. What counts is that all of them are on the
 * disk before the index names one. So between sync_gather() and sync_let() a file's fsync() or
 * fdatasync() is only noted (the descriptor is doubled, the library closes its own), and by
 * sync_gathered() all were asked for from several threads at once, which the file system and the
 * disk do in a few turns. As long as one by one if they must be; never less.
 *
 * Only a new mail's own bytes are written between those two. All else waits for the disk as it
 * comes: an index or a uidlist is renamed into place behind its fsync(), and where the library
 * holds a lock of the kernel's on a file, closing any descriptor of that file would drop it.
 *
 * The library calls the two functions below instead of libc's, since this program exports them. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/fsync_saves.h"

#include <pthread.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES_MANY 200 /* then those go before the next mail */
#define FILES_MOST 250 /* of one mail beyond, each waits for itself */
#define THREADS 16

static struct {
    bool on;
    int error; /* of the first one that failed */
    unsigned n, next;
    struct {
        int fd;
        long how; /* number of the system call */
    } file[FILES_MOST];
} gather;

static void *run(void *arg)
{
    int error = 0;
    unsigned i;
    while ((i = __atomic_fetch_add(&gather.next, 1, __ATOMIC_RELAXED)) < gather.n)
        if (syscall(gather.file[i].how, gather.file[i].fd) < 0)
            error = errno;
    if (error != 0)
        __atomic_store_n((int *)arg, error, __ATOMIC_RELAXED);
    return NULL;
}

static void flush(void)
{
    pthread_t thread[THREADS];
    unsigned started = 0;
    sigset_t all, before;
    gather.next = 0;
    /* Signals are for the thread that has the ioloop. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < THREADS && started + 1 < gather.n &&
           pthread_create(&thread[started], NULL, run, &gather.error) == 0)
        started++;
    (void)run(&gather.error);
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(thread[i], NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (unsigned i = 0; i < gather.n; i++)
        (void)close(gather.file[i].fd);
    gather.n = 0;
}

static int file_sync(int fd, long how)
{
    struct stat st;
    if (!gather.on || gather.n == FILES_MOST || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return (int)syscall(how, fd);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return (int)syscall(how, fd);
    gather.file[gather.n].fd = copy;
    gather.file[gather.n++].how = how;
    return 0;
}

int fsync(int fd)
{
    return file_sync(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return file_sync(fd, SYS_fdatasync);
}

void sync_gather(void)
{
    if (gather.n >= FILES_MANY)
        flush();
    gather.on = TRUE;
}

void sync_let(void)
{
    gather.on = FALSE;
}

int sync_gathered(void)
{
    if (gather.n > 0)
        flush();
    int error = gather.error;
    gather.error = 0;
    errno = error;
    return error == 0 ? 0 : -1;
}
