/* group - makes the group of dovelane.conf's replicas, names its lanes, hashes it. */
#include "dovecot-plugin/replicator/site/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/lanename.h"
#include "lib/base/mem.h"
#include "dovecot-plugin/protocol/parcel.h"

static int by_site(const void *a, const void *b)
{
    const struct peer *x = a, *y = b;
    return x->site < y->site ? -1 : x->site > y->site;
}

static void add(char **text, const char *between, const char *word)
{
    char *longer = mem_printf("%s%s%s", *text, between, word);
    free(*text);
    *text = longer;
}

static char *made_of(const uint64_t *site, size_t n, const struct group *g)
{
    char *text = mem_strdup("ids"), number[24];
    for (size_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)site[i]);
        add(&text, i ? ", " : " ", number);
    }
    add(&text, "", "; namespaces");
    for (size_t i = 0; i < g->nnamespaces; i++)
        add(&text, i ? ", " : " ", (const char *)g->ns[i].p);
    return text;
}

void group_init(struct group *g, const struct config *c, size_t self)
{
    uint64_t site[FRAME_SITES_MAX];
    const struct config_replica *me = &c->replica[self];
    memset(g, 0, sizeof *g);
    g->self = (uint64_t)me->id;
    g->name = me->name;
    g->backup = config_is_backup(me);
    g->on_demand = config_is_on_demand(me);
    g->link = config_replica_link(c, self);
    g->node = *me->node ? me->node : me->name;
    for (size_t i = 0; i < c->replicate_namespaces.n && i < FRAME_NAMESPACES_MAX; i++) {
        const char *name = c->replicate_namespaces.v[i];
        g->ns[g->nnamespaces++] = (struct text){(const uint8_t *)name, strlen(name)};
    }
    for (size_t i = 0; i < c->nreplicas; i++) {
        const struct config_replica *n = &c->replica[i];
        site[i] = (uint64_t)n->id;
        if (i == self)
            continue;
        struct peer *p = &g->peer[g->npeers++];
        *p = (struct peer){.site = (uint64_t)n->id,
                           .name = n->name,
                           .on_demand = config_is_on_demand(n),
                           .link = config_replica_link(c, i),
                           .node = *n->node ? n->node : n->name};
        p->out[LANE_LIVE] = mem_printf(LANENAME_REPLICA "%s>%s", me->name, n->name);
        p->out[LANE_BULK] = mem_printf(LANENAME_REPLICA "%s>%s:bulk", me->name, n->name);
        p->in[LANE_LIVE] = mem_printf(LANENAME_REPLICA "%s>%s", n->name, me->name);
        p->in[LANE_BULK] = mem_printf(LANENAME_REPLICA "%s>%s:bulk", n->name, me->name);
    }
    qsort(g->peer, g->npeers, sizeof *g->peer, by_site);
    g->made_of = made_of(site, c->nreplicas, g);
    parcel_group(site, c->nreplicas, g->ns, g->nnamespaces, g->digest);
}

void group_free(struct group *g)
{
    free(g->made_of);
    for (size_t i = 0; i < g->npeers; i++)
        for (int l = 0; l < LANES; l++) {
            free(g->peer[i].out[l]);
            free(g->peer[i].in[l]);
        }
}

int group_peer(const struct group *g, uint64_t site)
{
    for (size_t i = 0; i < g->npeers; i++)
        if (g->peer[i].site == site)
            return (int)i;
    return -1;
}

void group_hex(const uint8_t digest[16], char hex[DIGEST_HEX])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
