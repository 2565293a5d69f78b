#include "relay/acks/peers.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/pending.h"
#include "relay/cluster/cluster_view.h"

#define AGAIN 1.                      /* seconds, after a refusal */
#define ABSENT_AGAIN 0.2              /* seconds, after an answer that the entry is not there */
#define UNSENT_MOST (8 * 1024 * 1024) /* to a peer that takes nothing; then it counts as away */

struct peer {
    struct peer *next;
    struct relay *relay;
    char *name, *link; /* link: config_link_text */
    struct node *node;
    /* entries, in this outage: it is said once when it begins and once when it ends */
    long long dropped;
    size_t open;   /* requests */
    size_t before; /* of them, those about lanes that it serves when they are given back */
    struct pending_queue pending;
    ev_timer again; /* then it is told what it refused */
    /* records of entries that it does not hold: they may be on their way to it */
    struct pending_queue absent;
    ev_timer absent_again;
    /* clock_monotonic: it refused an ack a moment ago, and is not asked again before */
    double refused_until;
};

/* An ack or a record under way. */
struct telling {
    struct peer *peer;
    struct pending_command *command;
};

struct peers {
    struct relay *relay;
    struct peer *first;
};

static void drop(struct peer *p, size_t entries, const char *why)
{
    if (!p->dropped)
        log_warning("node %s: %s: it is not told of all that is delivered", p->name, why);
    p->dropped += (long long)entries;
    metric_add(relay_peer_dropped, (long long)entries);
}

/* ---- what is pending ---- */

static void keep(struct peer *p, struct pending_command *o)
{
    size_t forgotten = pending_keep(&p->pending, o);
    if (forgotten)
        drop(p, forgotten, "it was away for too long");
}

/* Whoever stores a mail may be done at the first owner, which delivers it at once, before it
 * comes to this one; it has decided within settle. A record that finds nothing by then is of an
 * entry that was never stored there, or is done with. */
static void keep_absent(struct peer *p, const struct pending_command *o, const redisReply *answer)
{
    struct pending_command *rest = o->until > clock_monotonic() ? pending_absent(o, answer) : NULL;
    if (!rest)
        return;
    pending_keep(&p->absent, rest);
    if (!ev_is_active(&p->absent_again)) {
        ev_timer_set(&p->absent_again, ABSENT_AGAIN, 0.);
        ev_timer_start(p->relay->loop, &p->absent_again);
    }
}

static void on_acked(struct wire *w, redisReply *reply, void *arg)
{
    struct telling t = *(struct telling *)arg;
    free(arg);
    ASSERT(t.peer->open && t.peer->before >= t.command->before);
    t.peer->open--;
    t.peer->before -= t.command->before;
    if (reply && reply->type != REDIS_REPLY_ERROR) {
        keep_absent(t.peer, t.command, reply);
        pending_end(t.command);
        return;
    }
    /* Lost with the connection, or refused (a peer that loads, whose disk is full): told again
     * later. */
    keep(t.peer, t.command);
    if (!reply)
        return;
    t.peer->refused_until = clock_monotonic() + AGAIN;
    ev_timer_stop(t.peer->relay->loop, &t.peer->again);
    ev_timer_set(&t.peer->again, AGAIN, 0.);
    ev_timer_start(t.peer->relay->loop, &t.peer->again);
}

static bool can_be_told(const struct peer *p)
{
    return node_ready(p->node) && clock_monotonic() >= p->refused_until &&
           wire_unsent_bytes(node_wire(p->node)) <= UNSENT_MOST;
}

static void send_pending(struct peer *p)
{
    /* Only what is pending now: what is refused comes back into the queue, with the answers,
     * later. */
    for (size_t left = p->pending.n; left && can_be_told(p);) {
        struct pending_command *o = pending_next(&p->pending);
        left = left > o->n ? left - o->n : 0;
        struct telling *t = mem_alloc(sizeof *t);
        *t = (struct telling){p, o};
        p->open++;
        p->before += o->before;
        if (!pending_send(o, node_wire(p->node), on_acked, t))
            on_acked(NULL, NULL, t);
    }
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    send_pending(t->data);
}

static void on_absent_again(struct ev_loop *loop, ev_timer *t, int events)
{
    struct peer *p = t->data;
    struct pending_command *o;
    while ((o = pending_next(&p->absent)))
        keep(p, o);
    send_pending(p);
}

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct peer *p = arg;
    if (!ready)
        return;
    /* With takeover = manual nothing refills it, and what it owned first waits here until
     * somebody says so. */
    if (new_life && node_life(node) > 1 && !p->relay->heartbeat)
        log_warning("node %s was restarted and does not know what it held: what it owned first "
                    "waits on the other owners. Put it into `dead`, see the admin reference, "
                    "\"When a node dies, or its Redis was restarted\"",
                    p->name);
    send_pending(p);
    if (!p->dropped)
        return;
    log_warning(
        "node %s is back; it holds up to %lld entries of which it does not know all that was done",
        p->name, p->dropped);
    p->dropped = 0;
}

/* ---- what became of recipients ---- */

static void on_answer(struct wire *w, redisReply *reply, void *arg)
{
    struct peer *p = arg;
    ASSERT(p->open);
    p->open--;
}

static struct peer *find(const struct peers *peers, const char *name)
{
    struct peer *p = peers->first;
    while (p && strcmp(p->name, name))
        p = p->next;
    return p;
}

static bool is_before(const struct peers *peers, const struct lane *lane, const char *owner)
{
    size_t i = 0;
    while (strcmp(lane->parsed.owner[i], peers->relay->node) &&
           strcmp(lane->parsed.owner[i], owner))
        i++;
    return !strcmp(lane->parsed.owner[i], owner);
}

void peers_send(struct peers *peers, const struct lane *lane, size_t entries, int argc,
                const char **argv, const size_t *argvlen)
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
        if (entries) {
            struct pending_command *o = pending_command(entries, argc, argv, argvlen);
            o->until = clock_monotonic() + (double)peers->relay->config->settle / 1000.;
            o->before = is_before(peers, lane, owner);
            keep(p, o);
            send_pending(p);
        } else if (can_be_told(p) &&
                   wire_send(node_wire(p->node), on_answer, p, argc, argv, argvlen)) {
            p->open++; /* a reminder, which comes again */
        }
    }
}

void peers_ack(struct peers *peers, const struct lane *lane, struct entry *const *e, size_t n)
{
    for (size_t i = 0; i < lane->parsed.nowners; i++) {
        if (!strcmp(lane->parsed.owner[i], peers->relay->node))
            continue;
        struct peer *p = find(peers, lane->parsed.owner[i]);
        if (!p) {
            metric_add(relay_peer_dropped, (long long)n);
            continue;
        }
        struct pending_command *o = pending_make(lane->name, lane->name_len, n);
        o->before = is_before(peers, lane, p->name);
        for (size_t k = 0; k < n; k++)
            memcpy(o->id[k], e[k]->id, ENTRYID_LEN);
        keep(p, o);
        send_pending(p);
    }
}

void peers_moved(struct peers *peers, const char *lane, size_t len, const char *owner, bool before,
                 const char *ids, size_t n)
{
    struct peer *p = find(peers, owner);
    if (!p)
        return;
    struct pending_command *o = pending_make(lane, len, n);
    o->before = before;
    memcpy(o->id, ids, n * ENTRYID_LEN);
    keep(p, o);
    send_pending(p);
}

bool peers_reachable(const struct peers *peers, const struct lane *lane)
{
    for (size_t i = 0; i < lane->parsed.nowners; i++) {
        const char *owner = lane->parsed.owner[i];
        const struct peer *p = find(peers, owner);
        if (p && !cluster_dead(peers->relay, owner) && !can_be_told(p))
            return false;
    }
    return true;
}

bool peers_owes(const struct peers *peers, const char *node)
{
    const struct peer *p = find(peers, node);
    return p && (p->pending.before || p->before || p->absent.before);
}

void peers_each(struct peers *peers, void (*fn)(struct node *, void *), void *arg)
{
    for (struct peer *p = peers->first; p; p = p->next)
        fn(p->node, arg);
}

size_t peers_open_requests(const struct peers *peers)
{
    size_t n = 0;
    for (const struct peer *p = peers->first; p; p = p->next)
        n += p->open + (node_ready(p->node) ? p->absent.n : 0);
    return n;
}

/* ---- who they are ---- */

static void open_node(struct peer *p, size_t node)
{
    struct config_link link = config_node_link(p->relay->config, node);
    p->link = config_link_text(&link);
    p->node = node_open(p->relay->loop, &(struct node_options){.name = p->name,
                                                               .link = link,
                                                               .purpose = "relay-peer",
                                                               .ping_every = NODE_PING,
                                                               .settle = p->relay->config->settle,
                                                               .state = on_state,
                                                               .arg = p});
}

static void close_node(struct peer *p)
{
    node_close(p->node); /* what is under way comes back into the queue */
    p->node = NULL;
    free(p->link);
}

static void add(struct peers *peers, size_t node)
{
    struct peer *p = mem_zero(sizeof *p);
    p->name = mem_strdup(peers->relay->config->node[node].name);
    p->relay = peers->relay;
    pending_init(&p->pending);
    pending_init(&p->absent);
    ev_init(&p->again, on_again);
    ev_init(&p->absent_again, on_absent_again);
    p->again.data = p->absent_again.data = p;
    p->next = peers->first;
    peers->first = p;
    open_node(p, node);
}

static void remove_peer(struct peer **at)
{
    struct peer *p = *at;
    *at = p->next;
    close_node(p);
    ev_timer_stop(p->relay->loop, &p->again);
    ev_timer_stop(p->relay->loop, &p->absent_again);
    pending_free(&p->pending);
    pending_free(&p->absent);
    free(p->name);
    free(p);
}

/* Nodes of the `dead` list are peers, too: it is their relay that is counted out, and when their
 * Redis can be told, the better. */
void peers_reload(struct peers *peers)
{
    const struct config *c = peers->relay->config;
    for (struct peer **at = &peers->first; *at;) {
        int i = config_node_index(c, (*at)->name);
        struct config_link link = i < 0 ? (struct config_link){0} : config_node_link(c, (size_t)i);
        char *text = i < 0 ? NULL : config_link_text(&link);
        if (!text) {
            remove_peer(at);
            continue;
        }
        if (strcmp(text, (*at)->link)) { /* what is pending for it stays: it is the same node */
            close_node(*at);
            open_node(*at, (size_t)i);
        }
        free(text);
        at = &(*at)->next;
    }
    for (size_t i = 0; i < c->nnodes; i++)
        if (strcmp(c->node[i].name, peers->relay->node) && !find(peers, c->node[i].name))
            add(peers, i);
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
