/* socket_swap - a UNIX socket that is bound under another name in the directory of its path, and
 * then takes the path. There is no moment without a socket there, and a process that listens there
 * before keeps it until then. The path may be as long as one to connect to may be, whatever this
 * process' number. */
#ifndef DOVELANE_LIB_BASE_SOCKET_SWAP_H
#define DOVELANE_LIB_BASE_SOCKET_SWAP_H

#include <stddef.h>
#include <sys/types.h>

#define SOCKET_SWAP_PATH_MOST 107 /* bytes; sun_path without its NUL */

struct socket_swap {
    int fd;        /* the socket, close-on-exec; the caller's once it is placed */
    int directory; /* where it is called name, and will be called base */
    char name[80];
    const char *base;
};

/* A socket of that type (SOCK_STREAM, with or without SOCK_NONBLOCK) to which only this process'
 * user can connect so far. path must stay. -1 with errno, and nothing is left. */
int socket_swap_bind(struct socket_swap *, const char *path, int type);

/* The same, with a socket that another library makes: bind_at makes it at a path that it is given.
 * bind_at returns 0, or -1 with errno. fd stays -1. */
int socket_swap_bind_by(struct socket_swap *, const char *path, int (*bind_at)(const char *path));

/* It takes the path. -1 with errno: it is dropped. */
int socket_swap_place(struct socket_swap *);

/* Nothing of it is left. */
void socket_swap_drop(struct socket_swap *);

#endif
