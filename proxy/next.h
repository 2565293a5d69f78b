/* next - one mail to proxy_next, the smtpd behind us, which puts it into Postfix's disk queue.
 *
 *   next_open ─▶ NEXT_READY (all recipients taken, 354) ─ next_add* ─ next_end ─▶ NEXT_DONE (its 250)
 *       └────────────────┴──────────────── NEXT_REFUSED (its 4xx or 5xx, or ours) ◀──┘
 *
 * Until next_end nothing is anybody's: next_close takes it all back. One answer for all
 * recipients: if one is refused, all are. */
#ifndef DOVELANE_PROXY_NEXT_H
#define DOVELANE_PROXY_NEXT_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#include "proxy/engine.h"

#define NEXT_BACKLOG 65536 /* bytes that wait for it: above, feed no more until NEXT_DRAINED */

struct next;
enum next_event { NEXT_READY, NEXT_DRAINED, NEXT_DONE, NEXT_REFUSED };

/* reply: "250 2.0.0 Ok: queued as ...", with NEXT_DONE and NEXT_REFUSED; nothing follows these,
 * and next_close is due. unsure: it was lost behind the last dot. Not called from within
 * next_open. */
typedef void next_fn(void *arg, enum next_event, const char *reply, bool unsure);

/* The recipients whose `which` says so (NULL: all). id: ours, for its log (XFORWARD IDENT). The
 * engine's mail is read during this call only. */
struct next *next_open(const struct engine *, const bool *which, const char *id, next_fn *,
                       void *arg);
void next_add(struct next *, const char *data, size_t len); /* content without dots */
bool next_full(const struct next *);
void next_end(struct next *);
void next_close(struct next *);

#endif
