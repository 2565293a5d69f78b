/* files - files of the worker's own in the user's directory, and which file a path names. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/session.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int session_open_file(struct session *s, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd != -1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    if (fd == -1 && errno != ELOOP && errno != ENXIO)
        return -1;
    i_close_fd(&fd);
    errno = unlink(path) < 0 ? errno : ENOENT;
    session_note(s, NOTE_WARNING, "%s is no regular file: %s", path,
                 errno == ENOENT ? "removed" : strerror(errno));
    return -1;
}

struct file_id file_id(const char *path)
{
    struct statx st;
    if (path == NULL || statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &st) < 0)
        return (struct file_id){0};
    return (struct file_id){(uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor, st.stx_ino,
                            (st.stx_mask & STATX_BTIME) == 0
                                ? 0
                                : (uint64_t)st.stx_btime.tv_sec * 1000000000U +
                                      st.stx_btime.tv_nsec};
}

bool same_file(const struct file_id *then, const char *path)
{
    struct file_id now = file_id(path);
    return now.dev == then->dev && now.ino == then->ino && now.born == then->born;
}
