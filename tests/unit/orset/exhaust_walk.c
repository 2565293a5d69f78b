/* exhaust_walk - see exhaust_walk.h.
 *
 * Walked as: some deliveries to a replica, then an operation there, and so on. What is delivered
 * after a replica's last operation touches no other replica, so there all orders are walked replica
 * by replica, and the number of histories is the product. Two operations that do not know of each
 * other are issued in the order of their sites only: the replicas' sequences are the same either
 * way.
 *
 * Reduced, a walk leaves out what it has seen:
 *
 *  1 Deliveries that lead to the same state (all rows equal, by a hash of 128 bits) with the same
 *    events known go on as one; how many orders they stand for is counted. What can follow depends
 *    on nothing else: the other replicas and the model are the same in both.
 *  2 A delivery is made once per (state, what is said), not once per (state, batch). Batches with
 *    the same ops differ in their senders' vectors, which a receiver checks and takes nothing from
 *    but (3).
 *  3 States differ by no accounts that only a new epoch or a full quota would read.
 *  4 After the last step of a replica its state is not written to rows: nothing can follow there.
 *
 * (2) and (3) are claims on the core, so they are checked: every 256th delivery that (2) leaves out
 * is made after all and must lead to the same state; and with "reduced" off, each order and each
 * batch by itself, the numbers of histories and the sum over all their ends must be the same
 * (exhaust.c, compare).
 *
 * No rule of the core is used: neither that sites, folders or mails are alike, nor that two
 * operations do not touch each other. */
#include "tests/unit/orset/exhaust_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/orset.h"

struct walked walked;

static struct manner how;
static struct model model;
static unsigned first_event; /* those before it are the common start */
static uint32_t event_ship[EVENTS_MAX];
static const struct program *program;

struct world {
    uint32_t state[SITES];
    unsigned known[SITES];  /* events in each replica's state */
    unsigned issued[SITES]; /* operations of the program */
    unsigned puller, giver; /* of the exchange, 0: none yet */
    unsigned pulled;        /* events there were then */
    uint64_t orders;        /* how many histories come here */
};

static struct world start;

static void print_history(void)
{
    static const char *const word[] = {
        "CREATE", "APPEND", "COPY",      "MOVE",        "EXPUNGE",   "FLAG",        "UNFLAG",
        "DELETE", "RENAME", "SUBSCRIBE", "UNSUBSCRIBE", "ATTRIBUTE", "UIDVALIDITY", "KEEPER"};
    for (unsigned i = 0; i < model.n; i++)
        fprintf(stderr,
                "%2u site %u %s name %c folder %u guid %u k %u, knew %x, targets %x, folders %x\n",
                i, model.e[i].site, word[model.e[i].kind], model.e[i].name ? model.e[i].name : '-',
                model.e[i].folder, model.e[i].guid, model.e[i].k, model.e[i].known,
                model.e[i].target, model.e[i].folders);
}

static void wrong(const char *what)
{
    print_history();
    fail(what);
}

static unsigned find_folder(uint64_t site, uint64_t counter)
{
    for (unsigned i = 0; i < model.n; i++)
        if (model.e[i].kind == EV_CREATE && model.e[i].site == site && model.e[i].number == counter)
            return i;
    return NONE;
}

/* The folder ids that a name means to who knows the events s; *home the smallest of them. */
static unsigned ids_of(unsigned s, char name, unsigned *home)
{
    unsigned ids = 0;
    for (unsigned f = 0; f < model.n; f++) {
        /* It may be known by a rename or an append only: its create is still under way. */
        if (model.e[f].kind != EV_CREATE || !model_folder_live(&model, s, f) ||
            model_folder_name(&model, s, f) != name)
            continue;
        const struct event *e = &model.e[f], *h = &model.e[*home];
        if (!ids || e->site < h->site || (e->site == h->site && e->number < h->number))
            *home = f;
        ids |= 1U << f;
    }
    return ids;
}

/* The message that a local change of (name, guid) means: smallest k, then the id whose index is
 * smallest there; here any with that k, the caller compares. */
static unsigned adds_meant(unsigned s, const struct ship *ship, char name, unsigned guid)
{
    unsigned home = 0, ids = ids_of(s, name, &home), live = model_live_adds(&model, s);
    for (unsigned i = 0; i < ship->nfolders; i++) {
        unsigned f = find_folder(ship->folder[i].site, ship->folder[i].counter);
        if (f == NONE || !(ids >> f & 1))
            continue;
        for (unsigned k = 1; k < 8; k++) {
            unsigned adds = model_message(&model, s, f, guid, k) & live;
            if (adds)
                return adds;
        }
    }
    return 0;
}
/* Says in the model's words what the operation was, from what the replica knew; the real code is
 * asked only for numbers. */
static void describe(const struct operation *o, unsigned site, unsigned known, uint32_t number)
{
    const struct ship *ship = &ships[number];
    struct event e = ship->event;
    unsigned home = 0, live = model_live_adds(&model, known);
    bool copies = o->kind == EV_COPY || o->kind == EV_MOVE;
    e.site = site;
    e.known = known | 1U << model.n;
    e.target = e.folders = 0;
    if (o->kind == EV_APPEND || copies) {
        unsigned k = 1;
        ids_of(known, copies ? o->other : o->name, &home);
        e.folder = home;
        while (model_message(&model, known, home, o->guid, k))
            k++;
        if (k != e.k)
            wrong("k is not the smallest that is free");
        if (e.id_site != model.e[home].site || e.id_number != model.e[home].number)
            wrong("of two folders with one name, that of the smaller id is not the mailbox");
    }
    if (copies || o->kind == EV_EXPUNGE || o->kind == EV_FLAG || o->kind == EV_UNFLAG)
        e.target = adds_meant(known, ship, o->name, o->guid);
    if (copies)
        e.flagged = model_flag(&model, known, e.target);
    if (o->kind == EV_DELETE || o->kind == EV_RENAME)
        e.folders = ids_of(known, o->name, &home);
    if (o->kind == EV_UIDVALIDITY || o->kind == EV_KEEPER) {
        ids_of(known, o->name, &home);
        e.folders = 1U << home;
    }
    for (unsigned i = 0; i < model.n; i++)
        if (o->kind == EV_DELETE && live >> i & 1 && e.folders >> model.e[i].folder & 1)
            e.target |= 1U << i;
    for (unsigned i = 0; i < ship->nfolders; i++) {
        unsigned f = find_folder(ship->folder[i].site, ship->folder[i].counter);
        if (f != NONE)
            e.clocks[f] = ship->folder[i].clock;
    }
    model_replaces(&model, known, &e);
    event_ship[model.n] = number;
    model.e[model.n++] = e;
}

/* --- deliveries
 * ---------------------------------------------------------------------------------------------- */

/* A replica after some of the deliveries that are due there. */
struct node {
    uint32_t state;
    unsigned known;
    uint64_t orders; /* in which it can have come to this */
};
#define NODES_MAX 256

/* The next event of each origin that the replica has not got. */
static unsigned next_of(unsigned known, unsigned site)
{
    for (unsigned i = first_event; i < model.n; i++)
        if (model.e[i].site == site && !(known >> i & 1))
            return i;
    return NONE;
}

/* Every state that deliveries can bring the replica into, itself first, none before those it
 * comes from. for_good: nothing else comes after them. */
static unsigned deliver_some(unsigned site, const struct world *w, bool for_good, struct node *node)
{
    unsigned n = 1, all = (1U << model.n) - 1;
    node[0] = (struct node){w->state[site - 1], w->known[site - 1], 1};
    for (unsigned i = 0; i < n; i++)
        for (unsigned from = 1; from <= how.replicas; from++) {
            unsigned e = next_of(node[i].known, from), j = n;
            if (e == NONE)
                continue;
            unsigned known = node[i].known | 1U << e;
            uint32_t state = deliver(site, node[i].state, event_ship[e], for_good && known == all);
            /* Reduction 1. One more delivery than node[i]: such nodes stand behind it. */
            if (how.reduced)
                for (j = i + 1; j < n && (node[j].state != state || node[j].known != known); j++)
                    ;
            if (j == n) {
                if (n == NODES_MAX)
                    abort();
                node[n++] = (struct node){state, known, 0};
            }
            node[j].orders += node[i].orders;
        }
    return n;
}

/* --- the end
 * ---------------------------------------------------------------------------------------------- */

/* Every order of what is still due at each replica: one digest, the same everywhere, and as the
 * rules say. */
static void check_end(const struct world *w)
{
    uint64_t n = w->orders, digest;
    unsigned all = (1U << model.n) - 1;
    struct seen first;
    bool any = false;
    for (unsigned r = 1; r <= how.replicas; r++) {
        struct node node[NODES_MAX];
        unsigned nodes = deliver_some(r, w, how.reduced, node);
        uint64_t orders = 0;
        for (unsigned i = 0; i < nodes; i++) {
            if (node[i].known != all)
                continue;
            const struct seen *s = seen_in(node[i].state);
            if (s->remembered)
                wrong("something is still remembered although all ops are there");
            if (!any && s->shown != model_shown(&model, all))
                wrong("what is shown is not what the rules say");
            if (any && memcmp(first.digest, s->digest, 16) != 0)
                wrong("two replicas, or two orders of delivery, have all operations and differ");
            if (any && s->shown != first.shown)
                wrong("digests are equal, but what is shown differs");
            first = *s;
            any = true;
            orders += node[i].orders;
        }
        n *= orders;
    }
    memcpy(&digest, first.digest, 8);
    walked.leaves++;
    walked.histories[program->n] += n;
    walked.sum += n * (digest | 1);
}

/* --- the walk
 * ---------------------------------------------------------------------------------------------- */

static void walk(const struct world *w);

/* Of two steps that do not know of each other only one order is walked: operations by their
 * sites, an exchange after them. So no step back to the first one that is known may be one that
 * could come later. */
static bool in_normal_form(const struct world *w, unsigned site, unsigned known)
{
    for (unsigned i = model.n; i >= first_event; i--) {
        if (w->pulled == i && w->puller)
            return site == w->puller || site == w->giver;
        if (i == first_event || known >> (i - 1) & 1)
            return true;
        if (model.e[i - 1].site > site)
            return false;
    }
    return true;
}

static void issue_next(const struct world *w, unsigned site, const struct node *node)
{
    struct world next = *w;
    unsigned op = program->op[site - 1][next.issued[site - 1]++], all = (1U << model.n) - 1;
    bool last = model.n + 1 - first_event == program->n && node->known == all && how.reduced &&
                !how.exchange;
    uint32_t ship, to = issue(site, node->state, op, last, &ship);
    if (to == NONE)
        return;
    describe(&OPERATION[op], site, node->known, ship);
    next.state[site - 1] = to;
    next.known[site - 1] = node->known | 1U << (model.n - 1);
    next.orders *= node->orders;
    walk(&next);
    model.n--;
}

/* One state exchange somewhere in the history, from any state that deliveries bring the giver
 * into. */
static void pull_some(const struct world *w, unsigned site, const struct node *node)
{
    struct node given[NODES_MAX];
    for (unsigned giver = 1; giver <= how.replicas; giver++) {
        unsigned n = giver == site ? 0 : deliver_some(giver, w, false, given);
        for (unsigned i = 0; i < n; i++) {
            struct world next = *w;
            if (given[i].known == node->known)
                continue;
            next.state[giver - 1] = given[i].state;
            next.known[giver - 1] = given[i].known;
            next.state[site - 1] = pull(site, node->state, giver, given[i].state);
            next.known[site - 1] = node->known | given[i].known;
            next.orders *= node->orders * given[i].orders;
            next.puller = site;
            next.giver = giver;
            next.pulled = model.n;
            walk(&next);
        }
    }
}

static void walk(const struct world *w)
{
    if (model.n - first_event == program->n)
        check_end(w);
    for (unsigned site = 1; site <= how.replicas; site++) {
        struct node node[NODES_MAX];
        bool issues = w->issued[site - 1] < program->len[site - 1],
             pulls = how.exchange && !w->puller;
        unsigned n = issues || pulls ? deliver_some(site, w, false, node) : 0;
        for (unsigned i = 0; i < n; i++) {
            if (issues && in_normal_form(w, site, node[i].known))
                issue_next(w, site, &node[i]);
            if (pulls)
                pull_some(w, site, &node[i]);
        }
    }
}

void walk_program(const struct program *p)
{
    program = p;
    walk(&start);
}

/* Folders F and G, mail 1 in F, mail 2 with the flag in G; everybody has it. */
void walk_start(const struct manner *m)
{
    static const struct operation begin[] = {{EV_CREATE, 'F', 0, 0, ""},
                                             {EV_CREATE, 'G', 0, 0, ""},
                                             {EV_APPEND, 'F', 0, 1, ""},
                                             {EV_APPEND, 'G', 0, 2, ""},
                                             {EV_FLAG, 'G', 0, 2, ""}};
    struct node node[NODES_MAX];
    how = *m;
    same_ops_once = how.reduced;
    flag_bit = how.disable_wins ? ORSET_DELETED : ORSET_SEEN;
    memset(&model, 0, sizeof model);
    model.disable_wins = how.disable_wins;
    memset(&start, 0, sizeof start);
    start.orders = 1;
    first_event = 0;
    for (unsigned r = 0; r < how.replicas; r++)
        start.state[r] = first_state(r + 1);
    for (unsigned i = 0; i < sizeof begin / sizeof begin[0]; i++) {
        const struct operation *o = OPERATION;
        uint32_t ship;
        while (o->kind != begin[i].kind || o->name != begin[i].name || o->guid != begin[i].guid)
            o++;
        start.state[0] = issue(1, start.state[0], (unsigned)(o - OPERATION), false, &ship);
        describe(o, 1, start.known[0], ship);
        start.known[0] |= 1U << i;
    }
    for (unsigned r = 1; r < how.replicas; r++) {
        unsigned n = deliver_some(r + 1, &start, false, node);
        start.state[r] = node[n - 1].state;
        start.known[r] = node[n - 1].known;
    }
    first_event = model.n;
}
