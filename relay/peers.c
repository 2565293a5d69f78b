#include "peers.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "mem.h"
#include "metrics.h"

#define UNSENT_MOST (8 * 1024 * 1024) /* to a peer that takes nothing; then it counts as away */

struct peer {
    struct peer *next;
    char *name, *address;
    struct node *node;
    long long dropped; /* entries, in this outage: it is said once when it begins and once when it ends */
    size_t open;       /* requests */
};

struct peers {
    struct relay *relay;
    struct peer *first;
};

static void drop(struct peer *p, size_t entries, const char *why)
{
    if (!p->dropped)
        log_warning("node %s: %s: it is not told of what is delivered until it is back", p->name, why);
    p->dropped += (long long)entries;
    metric_add(relay_peer_dropped, (long long)entries);
}

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct peer *p = arg;
    if (!ready)
        return;
    /* Nothing refills it yet (docs/design.md, "What is built"), and what it owned first waits here until somebody says so. */
    if (new_life && node_life(node) > 1)
        log_warning("node %s was restarted and does not know what it held: what it owned first waits on the other owners; put it into "
                    "`dead`, see the admin guide, \"When a node dies, or its Redis was restarted\"",
                    p->name);
    if (!p->dropped)
        return;
    log_warning(
        "node %s is back; it holds up to %lld entries of which it does not know that they are delivered",
        p->name, p->dropped);
    p->dropped = 0;
}

static void on_answer(struct wire *w, redisReply *reply, void *arg)
{
    struct peer *p = arg;
    p->open--;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        drop(p, 1, reply->str);
}

static struct peer *find(const struct peers *peers, const char *name)
{
    struct peer *p = peers->first;
    while (p && strcmp(p->name, name))
        p = p->next;
    return p;
}

void peers_send(struct peers *peers, const struct lane *lane, size_t entries, int argc, const char **argv,
                const size_t *argvlen)
{
    for (size_t i = 0; i < lane->parsed.nowners; i++) {
        const char *owner = lane->parsed.owner[i];
        if (!strcmp(owner, peers->relay->node))
            continue;
        struct peer *p = find(peers, owner);
        if (!p) {
            /* In no node section: there is nobody to tell. */
            metric_add(relay_peer_dropped, (long long)entries);
            continue;
        }
        if (!node_ready(p->node))
            drop(p, entries, "no connection");
        else if (wire_unsent_bytes(node_wire(p->node)) > UNSENT_MOST)
            drop(p, entries, "it takes nothing");
        else if (wire_send(node_wire(p->node), on_answer, p, argc, argv, argvlen))
            p->open++;
        else
            drop(p, entries, "no connection");
    }
}

void peers_ack(struct peers *peers, const struct lane *lane, struct entry *const *e, size_t n)
{
    if (lane->parsed.nowners < 2)
        return;
    char count[24];
    const char **v = mem_alloc((4 + n) * sizeof *v);
    size_t *len = mem_alloc((4 + n) * sizeof *len);
    v[0] = "LANE.ACK", len[0] = 8;
    v[1] = lane->name, len[1] = lane->name_len;
    v[2] = "IDS", len[2] = 3;
    v[3] = count, len[3] = (size_t)snprintf(count, sizeof count, "%zu", n);
    for (size_t i = 0; i < n; i++) {
        v[4 + i] = (const char *)e[i]->id;
        len[4 + i] = ENTRYID_LEN;
    }
    peers_send(peers, lane, n, (int)(4 + n), v, len);
    free(v);
    free(len);
}

size_t peers_open_requests(const struct peers *peers)
{
    size_t n = 0;
    for (const struct peer *p = peers->first; p; p = p->next)
        n += p->open;
    return n;
}

/* ---- who they are ---- */

static void add(struct peers *peers, const struct config_node *n)
{
    struct peer *p = mem_zero(sizeof *p);
    p->name = mem_strdup(n->name);
    p->address = mem_strdup(n->redis);
    p->next = peers->first;
    peers->first = p;
    p->node = node_open(peers->relay->loop, &(struct node_options){.name = p->name,
                                                                   .address = p->address,
                                                                   .purpose = "relay-peer",
                                                                   .ping = true,
                                                                   .settle = peers->relay->config->settle,
                                                                   .state = on_state,
                                                                   .arg = p});
}

static void remove_peer(struct peer **at)
{
    struct peer *p = *at;
    *at = p->next;
    node_close(p->node);
    free(p->name);
    free(p->address);
    free(p);
}

/* Nodes of the `dead` list are peers, too: it is their relay that is counted out, and when their Redis can be
 * told, the better. */
void peers_reload(struct peers *peers)
{
    const struct config *c = peers->relay->config;
    for (struct peer **at = &peers->first; *at;) {
        int i = config_node_index(c, (*at)->name);
        if (i < 0 || strcmp(c->node[i].redis, (*at)->address))
            remove_peer(at);
        else
            at = &(*at)->next;
    }
    for (size_t i = 0; i < c->nnodes; i++)
        if (strcmp(c->node[i].name, peers->relay->node) && !find(peers, c->node[i].name))
            add(peers, &c->node[i]);
}

struct peers *peers_open(struct relay *r)
{
    struct peers *peers = mem_zero(sizeof *peers);
    peers->relay = r;
    peers_reload(peers);
    return peers;
}

void peers_close(struct peers *peers)
{
    while (peers->first)
        remove_peer(&peers->first);
    free(peers);
}
