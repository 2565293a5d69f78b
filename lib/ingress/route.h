/* route - the setting `route`: where a recipient's mail goes, which the proxy is not told by
 * Postfix. Pure. */
#ifndef DOVELANE_LIB_INGRESS_ROUTE_H
#define DOVELANE_LIB_INGRESS_ROUTE_H

#include "lib/config/config.h"

struct route;

/* Borrows the config's texts. */
struct route *route_new(const struct config *);
void route_free(struct route *);

/* The next hop of a plain address ("lmtp:[10.0.0.5]:24"), or NULL. The address itself comes before
 * the one without its extension (transport(5)), that before its domain, and that before the domains
 * above it. delimiter: the letters that begin an extension; "": no letter does. Letters outside
 * ASCII must be written as the address has them. */
const char *route_of(const struct route *, const char *address, const char *delimiter);

#endif
