/* Which replica a next hop delivers to. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/config/config.h"
#include "lib/config/nexthop.h"

static bool same_host(const struct config *c, const struct nexthop *a, const struct nexthop *b)
{
    const char *elsewhere = b->port ? NULL : config_socket_at(c, b->host);
    return a->lmtp == b->lmtp && !a->port == !b->port && (!a->port || !strcmp(a->port, b->port)) &&
           (!strcmp(a->host, b->host) || (elsewhere && !strcmp(a->host, elsewhere)));
}

int config_replica_at(const struct config *c, const struct nexthop *hop)
{
    int found = -1;
    for (size_t i = 0; found < 0 && i < c->nreplicas; i++) {
        struct nexthop its;
        char *lmtp = mem_printf("lmtp:%s", c->replica[i].lmtp);
        if (*c->replica[i].lmtp && nexthop_parse(lmtp, &its)) {
            if (same_host(c, hop, &its))
                found = (int)i;
            nexthop_free(&its);
        }
        free(lmtp);
    }
    return found;
}
