/* path - one connection to one address of a Redis server, from connect to the answer that shows
 * that the server works.
 *
 *   name looked up ─▶ connecting ─▶ TLS handshake ─▶ AUTH, PING ─▶ open       (TLS, AUTH and PING as far as the endpoint wants them)
 *        └─────────────────┴──────────────┴──────────────┴────────▶ failed
 *
 * An open path is a socket like any other: its owner watches path_fd, and reads and writes. Not
 * thread-safe. */
#ifndef DOVELANE_LIB_REDIS_PATH_H
#define DOVELANE_LIB_REDIS_PATH_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "lib/redis/endpoint.h"

struct path;

/* Once, from the loop: why is NULL when it is open, else a text for the log. path_close may be
 * called from within. */
typedef void path_done_fn(struct path *, const char *why, void *arg);

/* Address i of the endpoint, which must outlive the path. ask: sends PING, too, so that an open
 * path is one over which the server has answered. patience: seconds for all of it. They begin when
 * the look-up of its name, if it has one, has ended (resolve.h). */
struct path *path_open(struct ev_loop *, struct endpoint *, size_t i, bool ask, double patience,
                       path_done_fn *, void *arg);

/* forget: what was written and has not left this host does not leave it any more (a reset
 * instead of an orderly end). */
void path_close(struct path *, bool forget);

bool path_is_open(const struct path *);
/* It failed because of what would fail again: a certificate, a password. */
bool path_refused(const struct path *);
size_t path_index(const struct path *);
int path_fd(const struct path *);

/* As read(2) and writev(2). After EAGAIN wait until the socket is readable, and also writable
 * while path_wants_write says so. */
ssize_t path_read(struct path *, void *data, size_t size);
ssize_t path_writev(struct path *, const struct iovec *, int n);
bool path_wants_write(const struct path *);

/* When the server's certificate ends, or ours (own), in seconds since 1970; 0: there is none. */
int64_t path_until(const struct path *, bool own);

/* What the last call that gave -1 met. */
const char *path_error(const struct path *);

/* Bytes that were written and not confirmed by the other end's kernel. */
size_t path_unconfirmed(const struct path *);

#endif
