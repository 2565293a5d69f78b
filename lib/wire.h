/* wire - one pipelined connection to one Redis server, on a libev loop.
 *
 * hiredis formats requests and parses replies; the socket, its buffers and its reconnection are ours (Debian 12's hiredis has no
 * TLS). Requests go out in the order of wire_send and their replies come back in that order (RESP has no numbers). A connection that fails
 * answers every request still open with NULL, closes, and tries again with growing waits (50 ms to 2 s, jittered).
 * Not thread safe: everything happens on the loop's thread. */
#ifndef DOVELANE_WIRE_H
#define DOVELANE_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include <ev.h>
#include <hiredis/hiredis.h>

struct wire;

/* reply is NULL when the connection was lost before the answer: the request may or may not have been executed. The reply is
 * freed after the call. wire_close must not be called from within. */
typedef void wire_reply_fn(struct wire *, redisReply *reply, void *arg);

/* Called when a connection is established (up = true; nothing sent yet) and when one is lost (up = false, after every open request was
 * answered with NULL; why is a text for the log, also for a failed attempt to connect). */
typedef void wire_state_fn(struct wire *, bool up, const char *why, void *arg);

/* address as in config_address (checked before). Starts to connect at once. */
struct wire *wire_open(struct ev_loop *loop, const char *address, wire_state_fn *state, void *arg);

/* Answers every open request with NULL, does not call state, and frees. */
void wire_close(struct wire *);

/* Drops the connection (as if the peer had); it reconnects by itself. Open requests are answered with NULL before this returns. */
void wire_drop(struct wire *, const char *why);

bool wire_up(const struct wire *);

/* Sends a command. The arguments are copied. Returns false when the connection is not up (fn is not called then). */
bool wire_send(struct wire *, wire_reply_fn *fn, void *arg, int argc, const char **argv, const size_t *argvlen);

/* The same with a format as redisCommand has it ("LANE.LEN %b"). */
bool wire_sendf(struct wire *, wire_reply_fn *fn, void *arg, const char *format, ...);

/* Seconds for which the peer has owed an answer without giving any; 0 when nothing is open. */
double wire_silence(const struct wire *);

size_t wire_open_requests(const struct wire *);
size_t wire_unsent_bytes(const struct wire *);

#endif
