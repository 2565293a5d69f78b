#include "listener.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "proxy.h"
#include "session.h"

#define AT_ONCE 64      /* connections that are taken in one turn of the loop */
#define LOOK_AGAIN 0.05 /* seconds until more are taken, when there were too many */
#define OTHER_FDS 64

static struct {
    int fd;
    char *path;
    dev_t device;
    ino_t inode;
    uid_t user;
    size_t most;
    double complained;
    ev_io accepting;
    ev_timer again;
} listener = {.fd = -1};

/* ---- connections ---- */

static bool is_postfix(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == listener.user || peer.uid == 0))
        return true;
    if (clock_monotonic() - listener.complained >= 1) {
        listener.complained = clock_monotonic();
        log_warning("proxy_socket: process %d of user %d wants to be served, but is not proxy_user = %s", (int)peer.pid, (int)peer.uid, proxy.config->proxy_user);
    }
    return false;
}

static void pause_accepting(void)
{
    ev_io_stop(proxy.loop, &listener.accepting);
    ev_timer_set(&listener.again, LOOK_AGAIN, 0.);
    ev_timer_start(proxy.loop, &listener.again);
}

/* Once a second: while descriptors are used up it is tried twenty times. */
static void complain(int error)
{
    static double complained;
    if (complained && clock_monotonic() - complained < 1)
        return;
    complained = clock_monotonic();
    log_error("proxy_socket: cannot accept: %s", strerror(error));
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    if (listener.fd >= 0)
        ev_io_start(loop, &listener.accepting);
}

static void on_accept(struct ev_loop *loop, ev_io *io, int events)
{
    for (int i = 0; i < AT_ONCE; i++) {
        if (session_count() >= listener.most) {
            pause_accepting();
            return;
        }
        int fd = accept4(listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN) {
                complain(errno);
                pause_accepting();
            }
            return;
        }
        if (is_postfix(fd))
            session_new(fd);
        else
            close(fd);
    }
}

/* ---- the socket ---- */

static bool is_free(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        errno = ENOTSOCK;
        return false;
    }
    memcpy(un.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answered = connect(fd, (struct sockaddr *)&un, sizeof un) == 0;
    int error = answered ? EADDRINUSE : errno;
    close(fd);
    errno = error;
    return !answered && (error == ENOENT || error == ECONNREFUSED);
}

/* Bound under another name, which then replaces what was at path: there is no moment without a socket. */
static bool listen_beside(const char *beside, const char *path, const struct passwd *user)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct stat st;
    memcpy(un.sun_path, beside, strlen(beside));
    unlink(beside);
    listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t before = umask(0177); /* nobody connects between bind and chmod */
    bool bound = listener.fd >= 0 && bind(listener.fd, (struct sockaddr *)&un, sizeof un) == 0;
    umask(before);
    if (!bound) {
        log_error("proxy_socket = %s: cannot listen: %s (does the directory exist?)", path, strerror(errno));
        return false;
    }
    if (chown(beside, (uid_t)-1, user->pw_gid) < 0 || chmod(beside, 0660) < 0) {
        log_error("proxy_socket = %s: cannot give it to the group of proxy_user = %s: %s", path, user->pw_name, strerror(errno));
        return false;
    }
    if (listen(listener.fd, 4096) < 0 || stat(beside, &st) < 0 || rename(beside, path) < 0) {
        log_error("proxy_socket = %s: cannot be put there: %s", path, strerror(errno));
        return false;
    }
    listener.device = st.st_dev;
    listener.inode = st.st_ino;
    return true;
}

/* Two descriptors for a session and its way to proxy_next. */
static void set_most(void)
{
    struct rlimit limit;
    listener.most = (size_t)proxy.config->proxy_sessions;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    size_t room = limit.rlim_cur > 2 * OTHER_FDS ? (size_t)(limit.rlim_cur - OTHER_FDS) / 2 : OTHER_FDS;
    if (room < listener.most) {
        log_warning("proxy_sessions = %zu: %zu, because this process may have %llu open files (LimitNOFILE)", listener.most, room, (unsigned long long)limit.rlim_cur);
        listener.most = room;
    }
}

bool listener_open(const char *path, const char *user, bool replace)
{
    struct sockaddr_un fits;
    const struct passwd *pw = getpwnam(user);
    if (!pw) {
        log_error("proxy_user = %s: there is no such user", user);
        return false;
    }
    listener.user = pw->pw_uid;
    char *beside = mem_printf("%s.%d", path, (int)getpid());
    bool ok = false;
    if (strlen(beside) >= sizeof fits.sun_path)
        log_error("proxy_socket = %s: longer than the %zu bytes a socket's path may have here", path, sizeof fits.sun_path - 9);
    else if (!replace && !is_free(path))
        log_error("proxy_socket = %s: %s", path, errno == EADDRINUSE ? "another proxy answers there" : errno == ENOTSOCK ? "what is there is no socket: name another path, or take it away" : strerror(errno));
    else
        ok = listen_beside(beside, path, pw);
    if (!ok)
        unlink(beside);
    free(beside);
    if (!ok)
        return false;
    listener.path = mem_strdup(path);
    set_most();
    ev_io_init(&listener.accepting, on_accept, listener.fd, EV_READ);
    ev_io_start(proxy.loop, &listener.accepting);
    ev_init(&listener.again, on_again);
    return true;
}

void listener_close(void)
{
    struct stat st;
    if (listener.fd < 0)
        return;
    if (stat(listener.path, &st) == 0 && st.st_dev == listener.device && st.st_ino == listener.inode)
        unlink(listener.path);
    ev_io_stop(proxy.loop, &listener.accepting);
    ev_timer_stop(proxy.loop, &listener.again);
    close(listener.fd);
    listener.fd = -1;
}
