/* wire - one pipelined connection to one Redis server, on a libev loop.
 *
 * hiredis parses replies, and formats what wire_sendf is given. The socket (path.h: TCP or UNIX,
 * plain or TLS), its buffers and its reconnection are ours, since Debian 12's hiredis has no TLS.
 * Requests go out in the order of wire_send and their replies come back in that order (RESP has no
 * numbers). A connection that fails answers every request still open with NULL, and closes. It
 * tries again with growing, jittered waits: 50 ms to 2 s, and 5 s after a refused certificate or
 * password.
 *
 * With a standby address: a request that got neither an answer nor any progress for path_timeout
 * makes it connect to the other address. When the server answers there, and still not here, the
 * connection goes on there. Open requests are answered with NULL, as ever, and what was not
 * confirmed on the old path never leaves this host any more. A server that stands still answers on
 * neither, so that nothing is lost by trying. It goes back to the active address when that has
 * answered for five seconds. path_timeout follows the round-trip time where the link says so
 * (struct far_time); that time is measured at small requests (nearness.h). Not thread safe:
 * everything happens on the loop's thread. */
#ifndef DOVELANE_LIB_REDIS_WIRE_H
#define DOVELANE_LIB_REDIS_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include <ev.h>
#include <hiredis/hiredis.h>

#include "lib/config/config.h"

struct wire;

/* reply is NULL when the connection was lost before the answer: the request may or may not have
 * been executed. The reply is freed after the call. wire_close must not be called from within. */
typedef void wire_reply_fn(struct wire *, redisReply *reply, void *arg);

/* Called when a connection is established (up = true; nothing sent yet but AUTH and PING). Also
 * called when one is lost, or an attempt to connect failed. Then up = false, and every open request
 * was answered with NULL before. why is a text for the log. */
typedef void wire_state_fn(struct wire *, bool up, const char *why, void *arg);

/* The link is copied. blocks: it carries requests that wait (READY BLOCK), so that silence means
 * nothing. Starts to connect at once. */
struct wire *wire_open(struct ev_loop *loop, const struct config_link *, bool blocks,
                       wire_state_fn *state, void *arg);

/* One answer takes no more memory than that (reader.h), from the next connection on; 1 GiB where
 * nobody says. */
void wire_bound(struct wire *, size_t most);
/* Answers every open request with NULL, does not call state, and frees. */
void wire_close(struct wire *);

/* Drops the connection (as if the peer had); it reconnects by itself. Open requests are answered
 * with NULL before this returns. */
void wire_drop(struct wire *, const char *why);

bool wire_up(const struct wire *);

/* The address in use, or tried now; the wire's. */
const char *wire_address(const struct wire *);
bool wire_on_standby(const struct wire *);

/* With a standby address: path_timeout in seconds, by the way to the one that is further away. */
double wire_path_timeout(const struct wire *);

/* Sends a command. The arguments are copied. Returns false when the connection is not up (fn is
 * not called then). */
bool wire_send(struct wire *, wire_reply_fn *fn, void *arg, int argc, const char **argv,
               const size_t *argvlen);

/* The same with a format as redisCommand has it ("LANE.LEN %b"). */
bool wire_sendf(struct wire *, wire_reply_fn *fn, void *arg, const char *format, ...);

/* Seconds for which the peer has owed an answer without giving any; 0 when nothing is open. */
double wire_silence(const struct wire *);

/* The same, but each byte of an answer counts: a large one over a slow link is not silence. */
double wire_standstill(const struct wire *);

size_t wire_open_requests(const struct wire *);
size_t wire_unsent_bytes(const struct wire *);

#endif
