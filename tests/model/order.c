/* order - checks the rules of ordered destinations (docs/takeover/order.md, "Order"), and that each
 * of them is needed.
 *
 *     order-model                 all states, with three and with four nodes, and while a lane is copied to another owner; and every rule left out once
 *     order-model try NODES [RULE [copying]]    one run
 *
 * Two mails, two owners each (f = 1). The first one is promised before the second one is begun
 * with: whatever else happens, its first copy must reach the next hop first. And from every
 * state on both are delivered when nothing more fails, though a node that is down may stay so.
 * What a comparison does (fetch, drop) is one step here: takeover-model walks through its parts.
 * Nothing has a duration: whatever may happen may also wait. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MOST 4
#define M1 1u
#define M2 2u
#define STATES_MOST 8000000u

enum status { ALIVE, DOWN, RETURNING };
enum copying { OVER, AT_WORK, NOT_BEGUN };

struct node {
    uint8_t status;
    uint8_t holds;   /* M1, M2 */
    uint8_t swapped; /* the second one stands before the first one's place */
    uint8_t whole;   /* 0 while alive: emptied, and not noticed yet */
    uint8_t took;    /* bits of nodes */
    uint8_t hand;    /* 0, M1, M2 */
    uint8_t owed;    /* what the other owner is to be told */
    uint8_t cleared; /* the second generation's turn has come */
    uint8_t said_no; /* bits of nodes that were asked for the first generation */
    uint8_t fresh;   /* M1, M2 in the lane to which the first one's was copied */
    uint8_t fresh_hand, fresh_owed;
    /* it was found lost for good, and lives: nobody has heard it, and it nobody, for longer than
     * a comparison or a round of questions takes */
    uint8_t cut;
};

struct state {
    struct node node[NODES_MOST];
    uint8_t promised, delivered;
    /* owners; of the second mail's once it is stored, or another generation was begun */
    uint8_t first[2], second[2];
    uint8_t opened; /* another generation was begun */
    /* owners of the lane to which the first one's is copied: the survivor, and the new one */
    uint8_t copied[2];
    /* STORE and MOVE are left; only MOVE: at work; it is over, done or not */
    uint8_t copying;
    /* left; files: crashes after which the node comes back with what it held */
    uint8_t crashes, files, flushes, kills, false_deaths;
};

enum rule {
    ALL_RULES,
    NO_TURNS,
    ANY_ANSWER,
    DEAD_NEED_NOT,
    ANSWERS_OF_RETURNING,
    ONLY_OWN_SERVER,
    SAME_NAME_AGAIN,
    LATE_IN_THE_OLD_ONE,
    NO_GUARD,
    NO_REORDER,
    TWO_IN_FLIGHT,
    MOVED_IN_PARTS,
    MOVED_IN_HAND,
    NOT_ASKED_FOR_COPIES,
    RULES
};

static const char *const left_out[RULES] = {
    [NO_TURNS] = "a higher generation does not wait",
    [ANY_ANSWER] = "one node's answer is enough",
    [DEAD_NEED_NOT] = "whom this relay found dead need not answer",
    [ANSWERS_OF_RETURNING] = "nodes that are not whole are believed",
    [ONLY_OWN_SERVER] = "only the own server is asked",
    [SAME_NAME_AGAIN] = "the generation stays the same when owners change",
    [LATE_IN_THE_OLD_ONE] = "a mail is stored in a generation that was left",
    [NO_GUARD] = "an emptied server is believed until it is noticed",
    [NO_REORDER] = "what came to an emptied server stays in front of what is fetched",
    [MOVED_IN_PARTS] = "a lane is moved to its new owners in parts",
    [MOVED_IN_HAND] = "a lane of which a mail is in hand is moved",
    [NOT_ASKED_FOR_COPIES] = "a lower generation under its new owners' name does not count",
    [TWO_IN_FLIGHT] = "the next mail of a lane is taken before the first one is delivered",
};

static unsigned n;
static enum rule without;

/* ---- small questions ---- */

static int place(const uint8_t owner[2], unsigned i)
{
    return owner[0] == i ? 0 : owner[1] == i ? 1 : -1;
}

static const uint8_t *owners(const struct state *s, unsigned mail)
{
    return mail == M1 ? s->first : s->second;
}

static bool same_lane(const struct state *s)
{
    return !s->opened || without == SAME_NAME_AGAIN;
}

static bool serves(const struct state *s, unsigned i, unsigned mail)
{
    int at = place(owners(s, mail), i);
    return s->node[i].status == ALIVE && at >= 0 &&
           (at == 0 || (s->node[i].took >> owners(s, mail)[0] & 1));
}

static unsigned bits(unsigned x)
{
    return x ? (x & 1) + bits(x >> 1) : 0;
}

/* Nobody stores there. */
static bool away(const struct state *s, unsigned i)
{
    return s->node[i].status == DOWN || s->node[i].cut;
}

/* At most f = 1 node is lost at a time, and counts so until it is whole again. */
static bool may_be_lost(const struct state *s, unsigned j)
{
    for (unsigned i = 0; i < n; i++)
        if (i != j && (s->node[i].status == DOWN || s->node[i].cut || !s->node[i].whole))
            return false;
    return true;
}

/* ---- all states ---- */

struct edge {
    uint32_t from, to;
};
static struct state *seen;
static uint32_t nseen, *table, slots;
static struct edge *edge;
static uint64_t nedges, sedges;
static bool broken; /* the promise */

static uint32_t find(const struct state *s)
{
    const uint8_t *p = (const uint8_t *)s;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    uint32_t at = (uint32_t)(h >> 20) & (slots - 1);
    while (table[at] && memcmp(&seen[table[at] - 1], s, sizeof *s) != 0)
        at = (at + 1) & (slots - 1);
    return at;
}

static uint32_t here;

static void go(const struct state *s, bool fault)
{
    uint32_t at = find(s);
    if (!table[at]) {
        if (nseen == STATES_MOST || 2 * nseen > slots) {
            fprintf(stderr, "more than %u states\n", nseen);
            exit(2);
        }
        seen[nseen++] = *s;
        table[at] = nseen;
    }
    if (fault)
        return;
    if (nedges == sedges) {
        sedges = sedges ? 2 * sedges : 1 << 20;
        edge = realloc(edge, sedges * sizeof *edge);
        if (!edge)
            exit(2);
    }
    edge[nedges++] = (struct edge){here, table[at] - 1};
}

/* ---- what may happen ---- */

static void forget(struct node *x)
{
    x->took = x->said_no = x->cleared = 0;
}

static void milter(const struct state *s)
{
    struct state t = *s;
    bool lost = away(s, s->first[0]) || away(s, s->first[1]);
    /* It lags by a beat: whoever is not down takes what comes. Two in one lane: the second one
     * is pushed when the first one is promised. */
    if (!(s->promised & M1) && (!s->opened || without == LATE_IN_THE_OLD_ONE) && !lost) {
        t.promised |= M1;
        for (unsigned k = 0; k < 2; k++)
            t.node[s->first[k]].holds |= M1;
        go(&t, false);
    }
    t = *s;
    bool ready = (s->promised & M1) && !(s->promised & M2);
    if (ready && !s->opened && !lost) {
        t.promised |= M2;
        memcpy(t.second, t.first, 2);
        for (unsigned k = 0; k < 2; k++) {
            struct node *x = &t.node[t.first[k]];
            x->swapped |= !(x->holds & M1) && !(s->delivered & M1);
            x->holds |= M2;
        }
        go(&t, false);
    }
    if (ready && s->opened && !away(s, s->second[0]) && !away(s, s->second[1])) {
        t = *s;
        t.promised |= M2;
        for (unsigned k = 0; k < 2; k++) {
            struct node *x = &t.node[t.second[k]];
            x->swapped |= same_lane(&t) && place(t.first, t.second[k]) >= 0 && !(x->holds & M1) &&
                          !(s->delivered & M1);
            x->holds |= M2;
        }
        go(&t, false);
    }
    /* Another generation may begin at any time, for some mail that is of no interest here; with
     * whichever owners are alive. */
    for (unsigned a = 0; a < n && !(s->promised & M2); a++)
        for (unsigned b = 0; b < n; b++) {
            if (a == b || s->node[a].status != ALIVE || s->node[b].status != ALIVE ||
                s->node[a].cut || s->node[b].cut)
                continue;
            bool again = s->opened && !away(s, s->second[0]) && !away(s, s->second[1]);
            if (again)
                /* one more generation shows nothing that the second does not, unless its owners
                 * are gone */
                continue;
            t = *s;
            t.opened = 1;
            t.second[0] = (uint8_t)a;
            t.second[1] = (uint8_t)b;
            for (unsigned i = 0; i < n; i++)
                t.node[i].cleared = t.node[i].said_no = 0;
            go(&t, false);
        }
}

static void faults(const struct state *s, unsigned j)
{
    struct state t = *s;
    struct node *x = &t.node[j];
    if (s->crashes && x->status != DOWN && may_be_lost(s, j)) {
        *x = (struct node){.status = DOWN};
        t.crashes--;
        go(&t, true);
    }
    t = *s;
    if (s->files && x->status != DOWN && may_be_lost(s, j)) {
        *x = (struct node){
            .status = DOWN, .holds = x->holds, .swapped = x->swapped, .fresh = x->fresh};
        t.files--;
        go(&t, true);
    }
    t = *s;
    if (s->flushes && x->status == ALIVE && x->whole && may_be_lost(s, j)) {
        x->holds = x->swapped = x->whole = x->fresh = 0;
        t.flushes--;
        go(&t, true);
    }
    t = *s;
    if (s->kills && x->status == ALIVE) {
        x->status = RETURNING;
        x->hand = x->owed = x->fresh_hand = x->fresh_owed = 0;
        forget(x);
        t.kills--;
        go(&t, true);
    }
    for (unsigned i = 0; i < n && s->false_deaths; i++) {
        if (i == j || s->node[i].status != ALIVE || s->node[j].status != ALIVE ||
            (s->node[i].took >> j & 1))
            continue;
        t = *s;
        t.node[i].took |= (uint8_t)(1u << j);
        t.false_deaths--;
        go(&t, true);
    }
}

static bool listed(const struct state *s, unsigned j)
{
    for (unsigned i = 0; i < n; i++)
        if (i != j && s->node[i].status == ALIVE && (s->node[i].took >> j & 1))
            return true;
    return false;
}

/* As one whole owner with another; with what the other one holds, in its order. */
static void compare(struct state *t, unsigned j)
{
    struct node *x = &t->node[j];
    for (unsigned mail = M1; mail <= M2; mail++) {
        int at = place(owners(t, mail), j);
        if (at < 0 || !(t->promised & mail))
            continue;
        const struct node *other = &t->node[owners(t, mail)[1 - at]];
        if (other->status == DOWN || other->cut || !other->whole)
            continue;
        x->holds = (uint8_t)((x->holds & ~mail) | (other->holds & mail));
    }
    int at = place(t->copied, j);
    if (t->copying != NOT_BEGUN && at >= 0) {
        const struct node *other = &t->node[t->copied[1 - at]];
        if (other->status != DOWN && other->whole)
            x->fresh = other->fresh;
    }
    if (without != NO_REORDER || !(x->holds & M1))
        x->swapped = 0;
    x->whole = 1;
}

static void life(const struct state *s, unsigned j)
{
    struct state t = *s;
    struct node *x = &t.node[j];
    if (x->status == DOWN) {
        x->status = RETURNING;
        go(&t, true); /* or never */
        t = *s;
    }
    if (x->status == ALIVE && (!x->whole || listed(s, j)) && !(x->cut && s->copying == AT_WORK)) {
        /* a cut is healed then; it begins to compare later than what is being moved may be moved */
        x->status = RETURNING;
        x->cut = 0;
        forget(x);
        go(&t, false);
        t = *s;
    }
    /* A return outlasts the time in which what is stored may be moved. */
    if (x->status == RETURNING && !x->hand && !x->fresh_hand && s->copying != AT_WORK) {
        compare(&t, j);
        go(&t, false);
        /* One that was whole all the time compares, too, with whom it can. */
        bool differs = s->copied[0] != s->copied[1] &&
                       (t.node[j].holds != s->node[j].holds || t.node[j].fresh != s->node[j].fresh);
        t = *s;
        if (x->whole && !listed(s, j) && !differs) {
            x->status = ALIVE;
            for (unsigned i = 0; i < n && s->copying != NOT_BEGUN; i++)
                t.node[i].said_no = 0; /* a return takes longer than a round of questions */
            go(&t, false);
        }
    }
    if (x->cut && s->copying != AT_WORK && !listed(s, j)) {
        x->cut = 0;
        go(&t, false);
    }
    for (unsigned i = 0; i < n; i++) {
        const struct node *y = &s->node[i];
        if (i == j || y->status != ALIVE)
            continue;
        t = *s;
        if (!(y->took >> j & 1) && s->node[j].status != ALIVE) {
            t.node[i].took |= (uint8_t)(1u << j);
            go(&t, false);
        } else if ((y->took >> j & 1) && s->node[j].status == RETURNING && s->node[j].whole &&
                   !y->hand && !y->owed && !y->fresh_hand && !y->fresh_owed) {
            t.node[i].took &= (uint8_t) ~(1u << j);
            t.node[i].cleared = t.node[i].said_no = 0;
            go(&t, false);
        }
    }
}

/* Whether the second one's turn has come at i: the answers of so many. */
static void ask(const struct state *s, unsigned i)
{
    const struct node *x = &s->node[i];
    if (same_lane(s) || x->cleared || !serves(s, i, M2) || x->cut)
        return;
    for (unsigned j = 0; j < n; j++) {
        const struct node *y = &s->node[j];
        if (y->status == DOWN || y->cut || (x->said_no >> j & 1) ||
            (without == ONLY_OWN_SERVER && j != i))
            continue;
        struct state t = *s;
        if ((y->holds & M1) || ((y->fresh & M1) && without != NOT_ASKED_FOR_COPIES))
            t.node[i].said_no = 0;
        else if ((y->status == ALIVE && y->whole) || without == ANSWERS_OF_RETURNING)
            t.node[i].said_no |= (uint8_t)(1u << j);
        if (memcmp(&t, s, sizeof t) != 0)
            go(&t, false);
    }
    bool or_dead = without == DEAD_NEED_NOT && (x->said_no | x->took) == (1u << n) - 1;
    if (bits(x->said_no) >= n - 1 || or_dead ||
        (x->said_no && (without == ANY_ANSWER || without == ONLY_OWN_SERVER))) {
        struct state t = *s;
        t.node[i].cleared = 1;
        t.node[i].said_no = 0;
        go(&t, false);
    }
}

static void deliver(const struct state *s, unsigned i)
{
    const struct node *x = &s->node[i];
    for (unsigned mail = M1; mail <= M2; mail++) {
        struct state t = *s;
        bool head = mail == M1 ? !(same_lane(s) && x->swapped && (x->holds & M2))
                               : !(same_lane(s) && (x->holds & M1) && !x->swapped);
        bool free_hand = !x->hand || (without == TWO_IN_FLIGHT && x->hand == M1 && mail == M2);
        bool turn = mail == M1 || same_lane(s) || x->cleared || without == NO_TURNS;
        if (free_hand && (x->holds & mail) && !(x->hand & mail) && serves(s, i, mail) && turn &&
            (head || (without == TWO_IN_FLIGHT && x->hand == M1)) &&
            (x->whole || without == NO_GUARD)) {
            t.node[i].hand |= (uint8_t)mail;
            go(&t, false);
        }
        t = *s;
        if (x->hand & mail) {
            broken |= mail == M2 && !(s->delivered & M1);
            t.delivered |= (uint8_t)mail;
            t.node[i].hand &= (uint8_t)~mail;
            t.node[i].holds &= (uint8_t)~mail;
            t.node[i].owed |= (uint8_t)mail;
            go(&t, false);
        }
        t = *s;
        if (x->owed & mail) {
            int at = place(owners(s, mail), i);
            struct node *other = &t.node[owners(s, mail)[at == 0]];
            t.node[i].owed &= (uint8_t)~mail;
            if (other->status != DOWN && !other->cut && !x->cut)
                other->holds &= (uint8_t)~mail;
            if (other->status == DOWN || !(other->cut || x->cut))
                go(&t, false);
        }
        /* Every minute: what another whole owner lacks is dropped. */
        t = *s;
        int at = place(owners(s, mail), i);
        if ((x->holds & mail) && !(x->hand & mail) && (s->promised & mail) && at >= 0 &&
            x->status == ALIVE && x->whole) {
            const struct node *other = &s->node[owners(s, mail)[1 - at]];
            if (other->status == ALIVE && other->whole && !(other->holds & mail) && !x->cut &&
                !other->cut) {
                t.node[i].holds &= (uint8_t)~mail;
                go(&t, false);
            }
        }
    }
}

/* ---- another owner in the place of a lost one ---- */

/* The mails of the first generation's lane. */
static uint8_t of_the_lane(const struct state *s)
{
    return same_lane(s) ? M1 | M2 : M1;
}

/* Node i serves the lane, and its other owner is gone: down, or found dead by mistake. All that
 * it holds is stored at node k, and then moved at home in one step. */
static void copy(const struct state *s, unsigned i)
{
    const struct node *x = &s->node[i];
    int at = place(s->first, i);
    uint8_t all = (uint8_t)(x->holds & of_the_lane(s));
    struct state t = *s;
    if (at < 0 || x->status != ALIVE || !x->whole || !serves(s, i, M1))
        goto give_up;
    unsigned lost = s->first[1 - at];
    bool gone =
        s->node[lost].status == DOWN || ((x->took >> lost & 1) && s->node[lost].status == ALIVE);
    bool busy = (x->hand & of_the_lane(s)) && without != MOVED_IN_HAND;
    /* Nothing comes to it any more: its generation was left. */
    if (s->copying == NOT_BEGUN && gone && (s->opened || s->promised == (M1 | M2)) && all && !busy)
        for (unsigned k = 0; k < n; k++)
            if (k != i && k != lost && s->node[k].status == ALIVE && s->node[k].whole &&
                !(s->node[k].took >> i & 1) && !(x->took >> k & 1)) {
                t = *s;
                t.copied[0] = (uint8_t)i;
                t.copied[1] = (uint8_t)k;
                t.copying = AT_WORK;
                t.node[lost].cut = t.node[lost].status == ALIVE;
                t.node[lost].said_no = 0;
                t.node[k].fresh |= all;
                go(&t, false);
            }
    if (s->copying == AT_WORK && s->copied[0] == i && gone && !busy &&
        (s->node[s->copied[1]].fresh & all) == all) {
        uint8_t moved = (uint8_t)(all & ~x->hand);
        t = *s;
        if (without == MOVED_IN_PARTS && (all & M1))
            moved = M1;
        t.node[i].fresh |= moved;
        t.node[i].holds &= (uint8_t)~moved;
        t.copying = OVER;
        go(&t, false);
    }
give_up:
    if (s->copying == AT_WORK && s->copied[0] == i) {
        t = *s;
        t.copying = OVER;
        go(&t, false);
    }
}

static void deliver_copy(const struct state *s, unsigned i)
{
    const struct node *x = &s->node[i];
    int at = place(s->copied, i);
    if (s->copying == NOT_BEGUN || at < 0)
        return;
    struct state t;
    bool its = x->status == ALIVE && (at == 0 || (x->took >> s->copied[0] & 1));
    for (unsigned mail = M1; mail <= M2; mail++) {
        t = *s;
        if (its && (x->fresh & mail) && !x->fresh_hand && x->whole &&
            !(mail == M2 && (x->fresh & M1))) {
            t.node[i].fresh_hand = (uint8_t)mail;
            go(&t, false);
        }
        t = *s;
        if (x->fresh_hand & mail) {
            broken |= mail == M2 && !(s->delivered & M1);
            t.delivered |= (uint8_t)mail;
            t.node[i].fresh_hand = 0;
            t.node[i].fresh &= (uint8_t)~mail;
            t.node[i].fresh_owed |= (uint8_t)mail;
            go(&t, false);
        }
        t = *s;
        struct node *other = &t.node[s->copied[1 - at]];
        if (x->fresh_owed & mail) {
            t.node[i].fresh_owed &= (uint8_t)~mail;
            if (other->status != DOWN)
                other->fresh &= (uint8_t)~mail;
            go(&t, false);
        }
    }
    /* Every minute, all at once. What was stored to be moved is moved before it is old enough
     * for this, or never. */
    const struct node *other = &s->node[s->copied[1 - at]];
    uint8_t orphans = (uint8_t)(x->fresh & ~other->fresh & ~x->fresh_hand);
    if (orphans && x->status == ALIVE && x->whole && s->copying == OVER && other->status == ALIVE &&
        other->whole) {
        t = *s;
        t.node[i].fresh &= (uint8_t)~orphans;
        go(&t, false);
    }
}

/* ---- a run ---- */

/* States from which nothing leads to the end without another fault. */
static uint32_t stuck(void)
{
    uint8_t *good = calloc(nseen, 1);
    uint32_t *first = calloc((size_t)nseen + 2, sizeof *first),
             *from = malloc((nedges + 1) * sizeof *from),
             *work = malloc(((size_t)nseen + 1) * sizeof *work);
    uint32_t nwork = 0, left = 0;
    if (!good || !first || !from || !work)
        exit(2);
    for (uint64_t i = 0; i < nedges; i++)
        first[edge[i].to + 2]++;
    for (uint32_t i = 2; i < nseen + 2; i++)
        first[i] += first[i - 1];
    for (uint64_t i = 0; i < nedges; i++)
        from[first[edge[i].to + 1]++] = edge[i].from;
    for (uint32_t i = 0; i < nseen; i++)
        if (seen[i].delivered == (M1 | M2))
            good[i] = 1, work[nwork++] = i;
    while (nwork) {
        uint32_t at = work[--nwork];
        for (uint32_t k = first[at]; k < first[at + 1]; k++)
            if (!good[from[k]])
                good[from[k]] = 1, work[nwork++] = from[k];
    }
    /* A mail that cannot be placed goes to Postfix: only what was promised must be delivered. */
    for (uint32_t i = 0; i < nseen; i++)
        left += !good[i] && seen[i].promised == (M1 | M2);
    free(good), free(first), free(from), free(work);
    return left;
}

struct verdict {
    uint32_t states, stuck;
    bool broken;
};

/* copies: also with a lane that is copied when an owner is lost; not with everything else that
 * may fail, or there would be too many states. */
static struct verdict run(unsigned nodes, enum rule rule, unsigned faults_each, bool copies)
{
    n = nodes;
    without = rule;
    broken = false;
    nseen = 0;
    nedges = 0;
    memset(table, 0, slots * sizeof *table);
    uint8_t f = (uint8_t)faults_each;
    struct state begin = {.first = {0, 1},
                          .crashes = f,
                          .flushes = f,
                          .kills = nodes == 3 ? 1 : 0,
                          .false_deaths = nodes == 3 ? 1 : 0};
    if (copies)
        begin = (struct state){
            .first = {0, 1}, .crashes = f, .files = f, .false_deaths = f, .copying = NOT_BEGUN};
    for (unsigned i = 0; i < n; i++)
        begin.node[i].whole = 1;
    go(&begin, true);
    for (here = 0; here < nseen && !(broken && rule); here++) {
        struct state s = seen[here];
        if (s.delivered == (M1 | M2))
            continue;
        milter(&s);
        for (unsigned i = 0; i < n; i++) {
            faults(&s, i);
            life(&s, i);
            ask(&s, i);
            deliver(&s, i);
            if (copies)
                copy(&s, i);
            if (copies)
                deliver_copy(&s, i);
        }
    }
    return (struct verdict){nseen, broken ? 0 : stuck(), broken};
}

static bool told(const char *what, unsigned nodes, struct verdict v)
{
    printf("%u nodes, %s: %u states, %s, %u from which it is not delivered\n", nodes, what,
           v.states, v.broken ? "ORDER BROKEN" : "order kept", v.stuck);
    fflush(stdout);
    return v.broken || v.stuck;
}

int main(int argc, char **argv)
{
    bool bad = false;
    slots = 1u << 24;
    seen = malloc(STATES_MOST * sizeof *seen);
    table = malloc(slots * sizeof *table);
    if (!seen || !table)
        return 2;
    if (argc > 2 && !strcmp(argv[1], "try"))
        return told("tried", (unsigned)atoi(argv[2]),
                    run((unsigned)atoi(argv[2]), argc > 3 ? (enum rule)atoi(argv[3]) : ALL_RULES, 1,
                        argc > 4));
    bad |= told("all rules", 3, run(3, ALL_RULES, 1, false));
    bad |= told("all rules", 4, run(4, ALL_RULES, 1, false));
    bad |= told("all rules, copying", 3, run(3, ALL_RULES, 1, true));
    for (int r = ALL_RULES + 1; r < RULES; r++) {
        bool copies = r >= MOVED_IN_PARTS && r <= NOT_ASKED_FOR_COPIES;
        bool noticed = run(3, (enum rule)r, 1, copies).broken ||
                       (!copies && run(4, (enum rule)r, 1, false).broken);
        printf("%s: %s\n", left_out[r], noticed ? "noticed" : "NOT NOTICED");
        bad |= !noticed;
    }
    return bad;
}
