/* proxy - what the files of dovelane-proxy share. One thread and one loop: sessions, the
 * connections to proxy_next and the store; only postmap(1) is run by others (lookup.h).
 *
 *   lib/daemon/listener.c ── connections ──▶ session.c ── the engine's events ──▶ divert_rules.c: whose is it
 *                                         │                               outcome.c: lanes, and what Postfix is answered
 *                                         └── what is Postfix's ──▶ next.c ──▶ proxy_next */
#ifndef DOVELANE_PROXY_PROXY_H
#define DOVELANE_PROXY_PROXY_H

#include <ev.h>

#include "lib/config/config.h"
#include "lib/ingress/route.h"
#include "lib/store/store.h"

struct proxy {
    const struct config *config;
    struct ev_loop *loop;
    struct store *store;
    struct route *route;
    char name[256]; /* in the greeting */
    /* of mail that is buffered at this moment, with the copies that are under way */
    long long bytes;
    bool leaving; /* no new mail is wanted */
};
extern struct proxy proxy;

#endif
