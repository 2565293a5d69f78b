/* membership - checks the rules by which a group learns of nodes, and forgets them
 * (docs/takeover/membership.md, "Membership"), and that each of them is needed.
 *
 *     membership-model            all states of three nodes; and every rule left out once
 *     membership-model try RUN [RULE]    one run
 *
 * A and B are a group: each has a section of both. C joins; its file has itself and A. Between C
 * and the others each direction may be closed from the beginning (a firewall), and be opened at any
 * time. What is checked:
 * - who has mail together with another knows it after a restart, and before it works again: else it
 * would deliver what is the other's;
 * - a node counts only when all that run reach it and are reached by it;
 * - C works only when it counts;
 * - A and B are held up by nothing: from every state they end their returns, whether C lives or
 * not, and though nothing is opened any more;
 * - and when all is opened and all run, all count each other, or C is gone for all. Nothing has
 * a duration: whatever may happen may also wait. A question to a server and the answer are one
 * step. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATES_MOST 8000000u

enum { A, B, C, NODES };

/* What is known of C. A record counts more than those before it. */
/* AGAIN: of the epoch that --join began. JOINING_LATER: with NO_ORDER alone, where serials
 * decide */
enum record { NONE, JOINING, NODE, GONE, JOINING_AGAIN, AGAIN, JOINING_LATER };

struct state {
    uint8_t memory[NODES], file[NODES], server[NODES]; /* enum record */
    /* bits: where the record of B is: C's memory, C's file, the servers of A, B and C */
    uint8_t of_b;
    uint8_t up; /* relays */
    uint8_t returning;
    /* a bit per node: its relay has asked its own server since its start; and 3 bits further:
     * that of the other one in its file */
    uint8_t asked;
    uint8_t open;    /* A to C, B to C, C to A, C to B */
    uint8_t greeted; /* A, B: its beat lies at C's server */
    uint8_t mailed;  /* A, B: there is mail on it and on C */
    /* A, B: its relay counts C since it was taken out, which it missed; with COUNTED_ON alone */
    uint8_t still;
    uint8_t excused; /* C came to count while one of the others did not run */
    uint8_t emptied; /* a server was */
    /* left; losses: of C's state directory; hosts: of that, its server and its relay */
    uint8_t crashes, flushes, losses, hosts, forgets, joins;
};

enum rule {
    ALL_RULES,
    NO_JOINING,
    ONE_WAY,
    UNKNOWN_NOT_WAITED_FOR,
    USED_FIRST,
    NO_ORDER,
    NOT_ASKED,
    ALONE,
    FORGOTTEN_WITH_MAIL,
    JOINED_AT_ONCE,
    KNOWN_BEFORE,
    COUNTED_ON,
    RULES
};

static const char *const left_out[RULES] = {
    [NO_JOINING] = "a newcomer counts at once",
    [ONE_WAY] = "a newcomer counts when it reaches the others",
    [UNKNOWN_NOT_WAITED_FOR] = "a newcomer waits only for those that it has learned of",
    [USED_FIRST] = "a node is used before it is kept",
    [NO_ORDER] = "joining counts as much as node, by the later serial",
    [NOT_ASKED] = "a node is ready before it has asked the servers",
    [ALONE] = "who has heard of nobody works before it joins",
    [FORGOTTEN_WITH_MAIL] = "a node is taken out though others have mail together with it",
    [JOINED_AT_ONCE] = "--join makes a node of it at once",
    [KNOWN_BEFORE] = "who had it before it was taken out need not reach it",
    [COUNTED_ON] = "who missed that it was taken out counts it on while it joins again",
};

static enum rule without;
static bool broken;

/* ---- small questions ---- */

#define IN_MEMORY 1u
#define IN_FILE 2u
#define AT_SERVER(i) (4u << (i))

static bool is_joining(uint8_t record)
{
    return record == JOINING || record == JOINING_AGAIN || record == JOINING_LATER;
}

static bool is_node(uint8_t record)
{
    return record == NODE || record == AGAIN;
}

/* The relay of i may connect to j's server. */
static bool reaches(const struct state *s, unsigned i, unsigned j)
{
    return i == j || (i != C && j != C) || (s->open >> (j == C ? i : 2 + j) & 1);
}

static bool counts(const struct state *s, unsigned i, unsigned j)
{
    uint8_t of_c = without == USED_FIRST ? s->memory[i] : s->file[i];
    if (i == j || (i != C && j != C) || (i == C && j == A))
        return true;
    return i == C ? s->of_b & (without == USED_FIRST ? IN_MEMORY : IN_FILE)
                  : is_node(of_c) || (s->still >> i & 1);
}

static bool runs(const struct state *s, unsigned i)
{
    return s->up >> i & 1;
}

/* A beat of j lies where i looks. */
static bool hears(const struct state *s, unsigned i, unsigned j)
{
    for (unsigned at = A; at < NODES; at++) {
        bool written = at == j || (counts(s, j, at) && reaches(s, j, at)) ||
                       (at == C && j != C && (s->greeted >> j & 1));
        if (runs(s, j) && counts(s, i, j) && written && counts(s, i, at) && reaches(s, i, at))
            return true;
    }
    return false;
}

static bool met(const struct state *s)
{
    bool used = s->of_b & IN_FILE;
    if (!used && (s->of_b & IN_MEMORY))
        return false;
    /* A is silent for dead_after only when B, which tells its server every second, has long told
     * it, and C has asked again. */
    if (!used && runs(s, B) && !hears(s, C, A))
        return false;
    for (unsigned j = A; j <= B; j++) {
        if (!hears(s, C, j))
            continue;
        if (without != UNKNOWN_NOT_WAITED_FOR && !counts(s, C, B))
            return false; /* they name B */
        bool has_it = (counts(s, j, C) && s->memory[C] != JOINING_AGAIN) ||
                      (without == KNOWN_BEFORE && s->file[j] >= GONE);
        if (!has_it && !(reaches(s, C, j) && (without == ONE_WAY || (s->greeted >> j & 1))))
            return false;
    }
    return true;
}

/* ---- all states ---- */

struct edge {
    uint32_t from, to;
    uint8_t kind;
};
enum { STEP, OPENED, C_STARTS, FAULT };
static struct state *seen;
static struct edge *edge;
static uint32_t nseen, *table, slots, here;
static uint64_t nedges, sedges;

static bool wrong(const struct state *s)
{
    for (unsigned i = A; i <= B; i++)
        if ((s->mailed >> i & 1) && !is_node(s->file[i]))
            return true;
    bool with_b = s->mailed >> B & 1, works = runs(s, C) && !(s->returning >> C & 1);
    if (works && (s->memory[C] == NONE || is_joining(s->memory[C])) && without != NO_ORDER)
        return true;
    return with_b && !s->emptied && works && !counts(s, C, B);
}

static void go(const struct state *s, int kind)
{
    const uint8_t *p = (const uint8_t *)s;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    uint32_t at = (uint32_t)(h >> 20) & (slots - 1);
    while (table[at] && memcmp(&seen[table[at] - 1], s, sizeof *s) != 0)
        at = (at + 1) & (slots - 1);
    if (!table[at]) {
        if (nseen == STATES_MOST) {
            fprintf(stderr, "more than %u states\n", STATES_MOST);
            exit(2);
        }
        seen[nseen] = *s;
        table[at] = ++nseen;
        broken |= wrong(s);
    }
    if (nedges == sedges) {
        sedges = sedges ? 2 * sedges : 1u << 20;
        edge = realloc(edge, sedges * sizeof *edge);
        if (!edge)
            exit(2);
    }
    edge[nedges++] = (struct edge){here, table[at] - 1, (uint8_t)kind};
}

static void go_if_new(const struct state *t, const struct state *s, int kind)
{
    if (memcmp(t, s, sizeof *t) != 0)
        go(t, kind);
}

/* ---- what relays do ---- */

static uint8_t later(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

/* Reads the table of that server, and tells it what it lacks. */
static void ask(const struct state *s, unsigned i, unsigned at)
{
    struct state t = *s;
    if (!runs(s, i) || !counts(s, i, at) || !reaches(s, i, at))
        return;
    t.memory[i] = t.server[at] = later(s->memory[i], s->server[at]);
    if (i == C && (s->of_b & AT_SERVER(at)))
        t.of_b |= IN_MEMORY;
    if (i != C || (t.of_b & IN_MEMORY))
        t.of_b |= (uint8_t)AT_SERVER(at);
    t.asked |= (uint8_t)(1u << i << (i == at ? 0 : 3));
    if (i == C && is_node(s->memory[C]) && !is_node(t.memory[C]))
        t.returning |= 1u << C; /* it was taken out */
    go_if_new(&t, s, STEP);
}

static void keep(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (!runs(s, i))
        return;
    t.file[i] = s->memory[i];
    if (without == COUNTED_ON && i != C && s->memory[i] == JOINING_AGAIN)
        t.still |= (uint8_t)(is_node(s->file[i]) << i);
    else
        t.still &= (uint8_t) ~(1u << i);
    if (i == C && (s->of_b & IN_MEMORY))
        t.of_b |= IN_FILE;
    go_if_new(&t, s, STEP);
}

static void greet(const struct state *s, unsigned j)
{
    struct state t = *s;
    if (!runs(s, j) || !is_joining(s->memory[j]) || !reaches(s, j, C))
        return;
    t.greeted |= (uint8_t)(1u << j);
    go_if_new(&t, s, STEP);
}

/* It counts from here: whoever runs reaches it and is reached by it. */
static void look_at_who_counts(struct state *t)
{
    t->excused |= (t->up & 3) != 3;
    for (unsigned j = A; j <= B; j++)
        /* that one is to be seen by what follows */
        broken |= runs(t, j) && !counts(t, j, C) && !(reaches(t, C, j) && reaches(t, j, C)) &&
                  without != ONE_WAY;
}

/* C's word about itself. Not before it has heard of the group. */
static void say(const struct state *s)
{
    struct state t = *s;
    bool joins = is_joining(s->memory[C]);
    if (!runs(s, C) || (s->asked & 044) != 044 || (s->memory[C] != NONE && !joins))
        return;
    bool node = without == NO_JOINING || met(s);
    t.memory[C] = node                                ? s->memory[C] == JOINING_AGAIN ? AGAIN : NODE
                  : joins                             ? s->memory[C]
                  : without == NO_ORDER && s->emptied ? JOINING_LATER
                                                      : JOINING;
    if (node)
        look_at_who_counts(&t);
    go_if_new(&t, s, STEP);
}

/* Kept and in use. */
static bool used(const struct state *s, unsigned i)
{
    return s->memory[i] == s->file[i] && (i != C || !(s->of_b & IN_MEMORY) || (s->of_b & IN_FILE));
}

static bool may_work(const struct state *s, unsigned i)
{
    bool asked = (s->asked >> i & 1) && ((s->asked >> i & 8) || !reaches(s, i, i == A ? B : A));
    return runs(s, i) && ((asked && used(s, i)) || without == NOT_ASKED || without == USED_FIRST) &&
           (i != C || is_node(s->memory[C]) || (s->memory[C] == NONE && without == ALONE));
}

/* Compared with everybody that it hears. */
static void end_return(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (!(s->returning >> i & 1) || !may_work(s, i))
        return;
    for (unsigned j = A; j < NODES; j++)
        if (j != i && counts(s, i, j) && hears(s, i, j) && !reaches(s, i, j))
            return;
    t.returning &= (uint8_t) ~(1u << i);
    go(&t, STEP);
}

/* Mail on j and C: both are whole for the two of them. A return is longer than the second in
 * which j has asked its own server, and kept what that said. */
static void place(const struct state *s, unsigned j)
{
    struct state t = *s;
    bool told = s->server[j] <= s->memory[j] && (used(s, j) || without == USED_FIRST);
    bool both = runs(s, j) && runs(s, C) && !(s->returning & (1u << j | 1u << C)) &&
                counts(s, j, C) && counts(s, C, j) && reaches(s, j, C) && reaches(s, C, j);
    if (both && told && is_node(s->memory[C]) && !(s->mailed >> j & 1)) {
        t.mailed |= (uint8_t)(1u << j);
        go(&t, STEP);
    }
    t = *s;
    if ((s->mailed >> j & 1) && runs(s, j) && !(s->returning >> j & 1)) {
        t.mailed &= (uint8_t) ~(1u << j);
        go(&t, STEP);
    }
}

static void start(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (runs(s, i))
        return;
    t.up |= (uint8_t)(1u << i);
    t.memory[i] = s->file[i];
    if (i == C)
        t.of_b = (uint8_t)((s->of_b & ~IN_MEMORY) | (s->of_b & IN_FILE ? IN_MEMORY : 0));
    go(&t, i == C ? C_STARTS : STEP);
}

/* ---- what an admin does, and what fails ---- */

static void stop(struct state *t, unsigned i)
{
    t->up &= (uint8_t) ~(1u << i);
    t->memory[i] = NONE;
    t->returning |= (uint8_t)(1u << i);
    t->asked &= (uint8_t) ~(011u << i);
    t->greeted &= (uint8_t) ~(1u << i);
    t->still &= (uint8_t) ~(1u << i);
    if (i == C)
        t->of_b &= (uint8_t)~IN_MEMORY;
}

/* away: one that has crashed just then, and that the admin calls dead; NODES: none. */
static void forget(const struct state *s, unsigned away)
{
    struct state t = *s;
    t.server[A] = GONE;
    if (away == B)
        stop(&t, B);
    else
        t.server[B] = GONE;
    if (reaches(s, A, C))
        t.server[C] = GONE;
    t.greeted = 0; /* dead_after is over */
    t.forgets--;
    go(&t, FAULT);
    t.open = 0; /* it goes on elsewhere */
    go(&t, FAULT);
}

static void admin(const struct state *s)
{
    struct state t = *s;
    uint8_t known = later(s->server[A], s->server[B]);
    bool needed = s->mailed || (s->up & 3) != 3 || (s->returning & 3);
    if (s->forgets && !runs(s, C) && is_node(known) &&
        (!needed || without == FORGOTTEN_WITH_MAIL)) {
        forget(s, NODES);
        forget(s, B);
    }
    if (s->joins && later(s->server[C], reaches(s, C, A) ? s->server[A] : NONE) == GONE) {
        t.server[C] = without == JOINED_AT_ONCE ? AGAIN : JOINING_AGAIN;
        if (reaches(s, C, A))
            t.server[A] = t.server[C];
        t.joins--;
        if (without == JOINED_AT_ONCE)
            look_at_who_counts(&t);
        go(&t, FAULT);
    }
    for (unsigned way = 0; way < 4; way++)
        if (!(s->open >> way & 1)) {
            t = *s;
            t.open |= (uint8_t)(1u << way);
            go(&t, OPENED);
        }
}

static void fail(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (s->crashes && runs(s, i)) {
        stop(&t, i);
        t.crashes--;
        go(&t, FAULT);
    }
    t = *s;
    if (s->flushes) {
        t.server[i] = NONE;
        t.of_b &= (uint8_t)~AT_SERVER(i);
        t.returning |= (uint8_t)(1u << i);
        if (i == C)
            t.greeted = 0;
        t.emptied = 1;
        t.flushes--;
        go(&t, FAULT);
    }
    t = *s;
    if (s->losses && i == C && !runs(s, C)) {
        t.file[C] = NONE;
        t.of_b &= (uint8_t)~IN_FILE;
        t.losses--;
        go(&t, FAULT);
    }
    t = *s;
    if (s->hosts && i == C) {
        stop(&t, C);
        t.file[C] = t.server[C] = NONE;
        t.of_b &= (uint8_t) ~(IN_FILE | AT_SERVER(C));
        t.greeted = 0;
        t.emptied = 1;
        t.hosts--;
        go(&t, FAULT);
    }
}

/* ---- a run ---- */

static bool calm(const struct state *s)
{
    return (s->up & 3) == 3 && !(s->returning & 3);
}

static bool agreed(const struct state *s)
{
    bool gone = true, all = !s->returning;
    for (unsigned i = A; i < NODES; i++) {
        gone &= s->file[i] == GONE;
        all &= is_node(s->file[i]);
    }
    return calm(s) && runs(s, C) && (gone || (all && (s->of_b & IN_FILE)));
}

/* States from which no steps of these kinds lead to the end. */
static uint32_t stuck(bool (*end)(const struct state *), int kinds, bool excuse)
{
    uint8_t *good = calloc(nseen, 1);
    uint32_t *first = calloc((size_t)nseen + 2, sizeof *first),
             *from = malloc((nedges + 1) * sizeof *from),
             *work = malloc(((size_t)nseen + 1) * sizeof *work);
    uint32_t nwork = 0, left = 0;
    if (!good || !first || !from || !work)
        exit(2);
    for (uint64_t i = 0; i < nedges; i++)
        if (edge[i].kind <= kinds)
            first[edge[i].to + 2]++;
    for (uint32_t i = 2; i < nseen + 2; i++)
        first[i] += first[i - 1];
    for (uint64_t i = 0; i < nedges; i++)
        if (edge[i].kind <= kinds)
            from[first[edge[i].to + 1]++] = edge[i].from;
    for (uint32_t i = 0; i < nseen; i++)
        if (end(&seen[i]))
            good[i] = 1, work[nwork++] = i;
    while (nwork) {
        uint32_t at = work[--nwork];
        for (uint32_t k = first[at]; k < first[at + 1]; k++)
            if (!good[from[k]])
                good[from[k]] = 1, work[nwork++] = from[k];
    }
    for (uint32_t i = 0; i < nseen; i++)
        left += !good[i] && !(excuse && seen[i].excused);
    free(good), free(first), free(from), free(work);
    return left;
}

struct verdict {
    uint32_t states, held_up, apart;
    bool broken;
};

/* closed: with every way between C and the others open or closed; else all are open. */
static const struct {
    const char *what;
    bool closed;
    struct state left;
} runs_of[] = {
    {"a relay crashes", true, {.crashes = 1}},
    {"a server is emptied", true, {.flushes = 1}},
    {"a state directory is lost", true, {.crashes = 1, .losses = 1}},
    {"a host is lost, and a server emptied", false, {.hosts = 1, .flushes = 1}},
    {"taken out and in again", true, {.crashes = 1, .forgets = 1, .joins = 1}},
};
#define RUNS (sizeof runs_of / sizeof *runs_of)

static struct verdict run(size_t which, enum rule rule)
{
    without = rule;
    broken = false;
    nseen = 0;
    nedges = 0;
    memset(table, 0, slots * sizeof *table);
    for (uint8_t open = runs_of[which].closed ? 0 : 15; open < 16; open++) {
        struct state begin = runs_of[which].left;
        begin.open = open;
        begin.up = 1u << A | 1u << B;
        begin.asked = 033;
        begin.returning = 1u << C;
        begin.of_b = AT_SERVER(A) | AT_SERVER(B);
        go(&begin, FAULT);
    }
    for (here = 0; here < nseen && !(broken && rule); here++) {
        struct state s = seen[here];
        say(&s);
        admin(&s);
        for (unsigned i = A; i < NODES; i++) {
            for (unsigned at = A; at < NODES; at++)
                ask(&s, i, at);
            keep(&s, i);
            end_return(&s, i);
            start(&s, i);
            fail(&s, i);
            if (i != C) {
                greet(&s, i);
                place(&s, i);
            }
        }
    }
    if (broken)
        return (struct verdict){nseen, 0, 0, true};
    return (struct verdict){nseen, stuck(calm, STEP, true), stuck(agreed, C_STARTS, false), false};
}

static bool bad(struct verdict v)
{
    return v.broken || v.held_up || v.apart;
}

static bool told(const char *what, struct verdict v)
{
    printf(
        "%s: %u states, %s, %u in which the others are held up, %u from which they do not agree\n",
        what, v.states, v.broken ? "BROKEN" : "kept", v.held_up, v.apart);
    fflush(stdout);
    return bad(v);
}

int main(int argc, char **argv)
{
    bool failed = false;
    slots = 1u << 24;
    seen = malloc(STATES_MOST * sizeof *seen);
    table = malloc(slots * sizeof *table);
    if (!seen || !table)
        return 2;
    if (argc > 2 && !strcmp(argv[1], "try") && (size_t)atoi(argv[2]) < RUNS)
        return told("tried",
                    run((size_t)atoi(argv[2]), argc > 3 ? (enum rule)atoi(argv[3]) : ALL_RULES));
    for (size_t i = 0; i < RUNS; i++)
        failed |= told(runs_of[i].what, run(i, ALL_RULES));
    for (int r = ALL_RULES + 1; r < RULES; r++) {
        bool noticed = false;
        for (size_t i = 0; i < RUNS && !noticed; i++)
            noticed = bad(run(i, (enum rule)r));
        printf("%s: %s\n", left_out[r], noticed ? "noticed" : "NOT NOTICED");
        failed |= !noticed;
    }
    return failed;
}
