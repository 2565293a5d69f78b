/* resolve - the addresses of a host, by getaddrinfo without MX. Names are looked up by threads:
 * a name server that does not answer must not stop what else a loop does. */
#ifndef DOVELANE_LIB_BASE_RESOLVE_H
#define DOVELANE_LIB_BASE_RESOLVE_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define ADDRESSES_MAX 8

struct socket_address {
    struct sockaddr_storage sa;
    socklen_t len;
    char text[128]; /* "10.0.0.5", "::1", or the path of a UNIX socket */
};

struct addresses {
    size_t n;
    struct socket_address v[ADDRESSES_MAX];
};

/* error: NULL, or a text ("Name or service not known"). */
typedef void resolve_fn(const struct addresses *, const char *error, void *arg);

struct resolve;

/* Nodes are few, and mail waits for each of them. So they do not wait behind next hops, of which
 * there may be thousands, with a dead name server. */
enum resolve_for { RESOLVE_NODE, RESOLVE_HOP };

/* port: NULL for a UNIX socket, whose path is `host`. true: fn was called already (an address, a
 * UNIX socket). false: it will be, on the loop's thread; *out names the lookup until then. */
bool resolve_start(struct ev_loop *, const char *host, const char *port, enum resolve_for,
                   resolve_fn *, void *arg, struct resolve **out);

/* fn is not called any more; nor is the loop touched. NULL: nothing. */
void resolve_cancel(struct resolve *);

#endif
