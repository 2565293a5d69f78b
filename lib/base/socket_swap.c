#include "lib/base/socket_swap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"

_Static_assert(SOCKET_SWAP_PATH_MOST == sizeof((struct sockaddr_un *)0)->sun_path - 1,
               "of a path to connect to");

static int open_directory(const char *path, const char *base)
{
    char *directory = base - path > 1 ? mem_strndup(path, (size_t)(base - path - 1))
                                      : mem_strdup(base > path ? "/" : ".");
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    return fd;
}

static void forget(struct socket_swap *b)
{
    int error = errno;
    if (b->fd >= 0)
        close(b->fd);
    if (b->directory >= 0)
        close(b->directory);
    b->fd = b->directory = -1;
    errno = error;
}

/* Opens the directory, and says where in it the socket is to be bound. */
static int prepare(struct socket_swap *b, const char *path, struct sockaddr_un *un)
{
    const char *slash = strrchr(path, '/');
    *b = (struct socket_swap){.fd = -1, .directory = -1, .base = slash ? slash + 1 : path};
    if (strlen(path) > SOCKET_SWAP_PATH_MOST) {
        errno = ENAMETOOLONG;
        return -1;
    }
    snprintf(b->name, sizeof b->name, "%.60s.%d", b->base, (int)getpid());
    b->directory = open_directory(path, b->base);
    if (b->directory < 0)
        return -1;
    if (snprintf(un->sun_path, sizeof un->sun_path, "%.*s%s", (int)(b->base - path), path,
                 b->name) >= (int)sizeof un->sun_path)
        /* short, whatever the directory's name */
        snprintf(un->sun_path, sizeof un->sun_path, "/proc/self/fd/%d/%.80s", b->directory,
                 b->name);
    unlinkat(b->directory, b->name, 0);
    return 0;
}

int socket_swap_bind(struct socket_swap *b, const char *path, int type)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (prepare(b, path, &un) < 0)
        return -1;
    b->fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    int bound = -1;
    if (b->fd >= 0) {
        mode_t before = umask(0177); /* nobody connects between bind and chmod */
        bound = bind(b->fd, (struct sockaddr *)&un, sizeof un);
        umask(before);
    }
    if (bound < 0)
        forget(b);
    return bound;
}

int socket_swap_bind_by(struct socket_swap *b, const char *path, int (*bind_at)(const char *path))
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (prepare(b, path, &un) < 0)
        return -1;
    mode_t before = umask(0177);
    int bound = bind_at(un.sun_path);
    umask(before);
    if (bound < 0)
        forget(b);
    return bound;
}

int socket_swap_place(struct socket_swap *b)
{
    if (renameat(b->directory, b->name, b->directory, b->base) < 0) {
        socket_swap_drop(b);
        return -1;
    }
    close(b->directory);
    b->directory = -1;
    return 0;
}

void socket_swap_drop(struct socket_swap *b)
{
    int error = errno;
    if (b->directory >= 0)
        unlinkat(b->directory, b->name, 0);
    errno = error;
    forget(b);
}
