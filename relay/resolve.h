/* resolve - the addresses of a next hop, by getaddrinfo without MX. Names are looked up in a thread of their
 * own: a name server that does not answer must not stop deliveries to other next hops. */
#ifndef DOVELANE_RELAY_RESOLVE_H
#define DOVELANE_RELAY_RESOLVE_H

#include <ev.h>

#include "nexthop.h"
#include "smtp.h"

#define ADDRESSES_MAX 8

struct addresses {
    size_t n;
    struct smtp_address v[ADDRESSES_MAX];
};

/* error: NULL, or a text ("Name or service not known"). */
typedef void resolve_fn(const struct addresses *, const char *error, void *arg);

struct resolve;

/* true: fn was called already (an address, a UNIX socket). false: it will be, *out names it. */
bool resolve_start(struct ev_loop *, const struct nexthop *, resolve_fn *, void *arg, struct resolve **out);

#endif
