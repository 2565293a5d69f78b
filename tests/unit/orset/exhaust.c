/* exhaust - every history of a few operations on 2 and 3 replicas, in every order of delivery.
 *
 * A history up to commuting is, per replica, one sequence of own operations and deliveries (FIFO per origin,
 * any order across origins). It is walked as: some deliveries to a replica, then an operation there, and so
 * on; what is delivered after a replica's last operation touches no other replica, so there all orders are
 * walked replica by replica, and the number of histories is the product. Two operations that do not know of
 * each other are issued in the order of their sites only.
 *
 * The replicas' states are numbered by content and each (state, event) is computed once, by the real code
 * through real batches; a history is then a walk over numbers.
 *
 * Checked at the end of every history: all orders of the last deliveries give one digest per replica, all
 * replicas have the same digest, nothing is remembered any more, and what is shown is what exhaust_model.h
 * says: nothing removed is back, nothing added and not removed is missing, an add or flag concurrent with its
 * remove wins.
 *
 *     exhaust              the part for "make test"
 *     exhaust long         all of it
 *     exhaust R N ALPHABET [deleted|seen [exchange]]   R replicas, up to N operations */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exhaust_replica.h"
#include "orset.h"

/* --- the walk
 * -------------------------------------------------------------------------------------------------------- */

static unsigned replicas, operations_max, alphabet[OPERATIONS], nalphabet;
static unsigned pulls_max;
static struct model model;
static unsigned first_event; /* those before it are the common start */
static uint32_t event_ship[EVENTS_MAX];
static uint64_t histories[5], orders_walked, leaves;

struct world {
    uint32_t state[SITES];
    unsigned known[SITES]; /* events in each replica's state */
    unsigned pulls;        /* exchanges so far */
};

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

/* The message that a local change of (name, guid) means: smallest k, then the id whose index is smallest
 * there; here any with that k, the caller compares. */
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

/* Says in the model's words what the operation was, from what the replica knew; the real code is asked only
 * for numbers. */
static void describe(const struct operation *o, unsigned site, unsigned known, uint32_t number)
{
    const struct ship *ship = &ships[number];
    struct event e = ship->event;
    unsigned home = 0, live = model_live_adds(&model, known);
    e.site = site;
    e.known = known | 1U << model.n;
    e.target = e.folders = 0;
    if (o->kind == EV_APPEND || o->kind == EV_MOVE) {
        unsigned k = 1;
        ids_of(known, o->kind == EV_MOVE ? o->other : o->name, &home);
        e.folder = home;
        while (model_message(&model, known, home, o->guid, k))
            k++;
        if (k != e.k)
            fail("k is not the smallest that is free");
    }
    if (o->kind == EV_MOVE || o->kind == EV_EXPUNGE || o->kind == EV_FLAG || o->kind == EV_UNFLAG)
        e.target = adds_meant(known, ship, o->name, o->guid);
    if (o->kind == EV_DELETE || o->kind == EV_RENAME)
        e.folders = ids_of(known, o->name, &home);
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

/* The next event of each origin that the replica has not got. */
static unsigned next_of(unsigned known, unsigned site)
{
    for (unsigned i = first_event; i < model.n; i++)
        if (model.e[i].site == site && !(known >> i & 1))
            return i;
    return NONE;
}

/* All orders of the deliveries still due at one replica; how many there are. They must end in one digest. */
static uint64_t all_orders(unsigned site, uint32_t state, unsigned known, uint32_t *end)
{
    uint64_t n = 0;
    for (unsigned from = 1; from <= replicas; from++) {
        unsigned e = next_of(known, from);
        if (e != NONE)
            n += all_orders(site, deliver(site, state, event_ship[e]), known | 1U << e, end);
    }
    if (known != (1U << model.n) - 1)
        return n;
    orders_walked++;
    if (*end && (memcmp(states[*end].digest, states[state].digest, 16) != 0 ||
                 states[*end].shown != states[state].shown))
        fail("two orders of delivery end in different states");
    *end = state;
    return 1;
}

static void print_history(void)
{
    static const char *const word[] = {"CREATE", "APPEND", "MOVE",      "EXPUNGE",     "FLAG",     "UNFLAG",
                                       "DELETE", "RENAME", "SUBSCRIBE", "UNSUBSCRIBE", "ATTRIBUTE"};
    for (unsigned i = 0; i < model.n; i++)
        fprintf(stderr, "%2u site %u %s name %c folder %u guid %u k %u, knew %x, targets %x, folders %x\n", i,
                model.e[i].site, word[model.e[i].kind], model.e[i].name ? model.e[i].name : '-',
                model.e[i].folder, model.e[i].guid, model.e[i].k, model.e[i].known, model.e[i].target,
                model.e[i].folders);
}

static void check_end(const struct world *w)
{
    uint64_t n = 1, want = model_shown(&model, (1U << model.n) - 1);
    uint32_t first = 0;
    leaves++;
    for (unsigned r = 0; r < replicas; r++) {
        uint32_t end = 0;
        n *= all_orders(r + 1, w->state[r], w->known[r], &end);
        if (states[end].remembered)
            fail("something is still remembered although all ops are there");
        if (first && memcmp(states[first].digest, states[end].digest, 16) != 0) {
            print_history();
            fail("two replicas have all operations and differ");
        }
        if (states[end].shown != want) {
            print_history();
            fail("what is shown is not what the rules say");
        }
        first = end;
    }
    histories[model.n - first_event] += n;
}

/* Two operations that do not know of each other commute: only one order of issuing them is walked. */
static bool in_normal_form(unsigned site, unsigned known)
{
    for (unsigned i = model.n; i-- > first_event && !(known >> i & 1);)
        if (model.e[i].site > site)
            return false;
    return true;
}

static void walk(const struct world *w);
static void pull_some(const struct world *w, unsigned site);

static void issue_all(const struct world *w, unsigned site)
{
    for (unsigned i = 0; i < nalphabet; i++) {
        struct world next = *w;
        uint32_t ship, to = issue(site, w->state[site - 1], alphabet[i], &ship);
        if (to == NONE)
            continue;
        describe(&OPERATION[alphabet[i]], site, w->known[site - 1], ship);
        next.state[site - 1] = to;
        next.known[site - 1] |= 1U << (model.n - 1);
        walk(&next);
        model.n--;
    }
}

static void deliver_some(const struct world *w, unsigned site)
{
    if (in_normal_form(site, w->known[site - 1]))
        issue_all(w, site);
    for (unsigned from = 1; from <= replicas; from++) {
        unsigned e = next_of(w->known[site - 1], from);
        struct world next = *w;
        if (e == NONE)
            continue;
        next.state[site - 1] = deliver(site, w->state[site - 1], event_ship[e]);
        next.known[site - 1] |= 1U << e;
        deliver_some(&next, site);
    }
    pull_some(w, site);
}

/* One state exchange somewhere in the history, from any replica in any state that deliveries bring it into.
 */
static void pull_from(const struct world *w, unsigned site, unsigned from)
{
    struct world next = *w;
    if (w->known[from - 1] != w->known[site - 1]) {
        next.state[site - 1] = pull(site, w->state[site - 1], from, w->state[from - 1]);
        next.known[site - 1] |= w->known[from - 1];
        next.pulls++;
        check_end(&next);
        deliver_some(&next, site);
    }
    for (unsigned origin = 1; origin <= replicas; origin++) {
        unsigned e = next_of(w->known[from - 1], origin);
        if (e == NONE)
            continue;
        next = *w;
        next.state[from - 1] = deliver(from, w->state[from - 1], event_ship[e]);
        next.known[from - 1] |= 1U << e;
        pull_from(&next, site, from);
    }
}

static void pull_some(const struct world *w, unsigned site)
{
    for (unsigned from = 1; from <= replicas && w->pulls < pulls_max; from++)
        if (from != site)
            pull_from(w, site, from);
}

static void walk(const struct world *w)
{
    check_end(w);
    if (model.n - first_event == operations_max)
        return;
    for (unsigned site = 1; site <= replicas; site++)
        deliver_some(w, site);
}

/* Folders F and G, mail 1 in F, mail 2 with the flag in G; everybody has it. */
static void common_start(struct world *w)
{
    static const struct operation start[5] = {{EV_CREATE, 'F', 0, 0, ""},
                                              {EV_CREATE, 'G', 0, 0, ""},
                                              {EV_APPEND, 'F', 0, 1, ""},
                                              {EV_APPEND, 'G', 0, 2, ""},
                                              {EV_FLAG, 'G', 0, 2, ""}};
    for (unsigned r = 0; r < replicas; r++) {
        w->state[r] = first_state(r + 1);
        w->known[r] = 0;
    }
    for (unsigned i = 0; i < 5; i++) {
        uint32_t ship, at = (uint32_t)-1;
        for (unsigned j = 0; j < OPERATIONS; j++)
            if (OPERATION[j].kind == start[i].kind && OPERATION[j].name == start[i].name &&
                OPERATION[j].guid == start[i].guid)
                at = j;
        if (at == (uint32_t)-1)
            abort();
        w->state[0] = issue(1, w->state[0], at, &ship);
        describe(&start[i], 1, w->known[0], ship);
        w->known[0] |= 1U << i;
    }
    for (unsigned r = 1; r < replicas; r++)
        for (unsigned i = 0; i < model.n; i++) {
            w->state[r] = deliver(r + 1, w->state[r], event_ship[i]);
            w->known[r] |= 1U << i;
        }
    first_event = model.n;
}

static uint64_t run(unsigned r, unsigned n, const char *letters, bool deleted, unsigned pulls)
{
    pulls_max = pulls;
    struct world w = {.known = {0}};
    struct timespec a, b;
    uint64_t sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &a);
    memset(&model, 0, sizeof model);
    memset(histories, 0, sizeof histories);
    orders_walked = leaves = nalphabet = 0;
    model.disable_wins = deleted;
    flag_bit = deleted ? ORSET_DELETED : ORSET_SEEN;
    replicas = r;
    operations_max = n;
    for (unsigned i = 0; i < OPERATIONS; i++)
        if (strchr(OPERATION[i].in, letters[0]))
            alphabet[nalphabet++] = i;
    first_event = EVENTS_MAX;
    common_start(&w);
    walk(&w);
    for (unsigned i = 0; i <= n; i++)
        sum += histories[i];
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%u replicas, up to %u of %2u operations (%s%s): %13" PRIu64 " histories, %" PRIu32
           " states, %.1f s\n",
           r, n, nalphabet, letters,
           deleted ? ", \\Deleted"
           : pulls ? ", with an exchange"
                   : "",
           sum, nstates, (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
    fflush(stdout);
    forget_all();
    return sum;
}

int main(int argc, char **argv)
{
    uint64_t all = 0;
    if (argc > 3) {
        all = run((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), argv[3], argc > 4 && argv[4][0] == 'd',
                  argc > 5);
    } else {
        bool full = argc == 2 && strcmp(argv[1], "long") == 0;
        all += run(2, full ? 4 : 3, "all", false, 0);
        all += run(2, full ? 4 : 3, "all", true, 0);
        all += run(3, 3, "all", false, 0);
        for (const char *part = "mfxr"; *part; part++)
            all += run(3, full ? 4 : 3, (char[]){*part, 0}, false, 0);
        all += run(3, full ? 4 : 3, "m", true, 0);
        all += run(2, 3, "all", false, 1);
        all += run(3, full ? 3 : 2, "all", false, 1);
    }
    printf("%" PRIu64 " histories, all equal\n", all);
    return 0;
}
