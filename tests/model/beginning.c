/* beginning - checks the rule by which nodes that start together become a group
 * (docs/takeover/membership.md, "What makes it safe", 0), whatever their files name.
 *
 *     beginning-model            all states of three nodes, with all files and all ways closed or open; four in a ring and in a chain; and each rule left out once
 *
 * Each file names its own node and some of the others. Relays start in any order, and one may be
 * killed; no server loses anything (that is the model of membership), so what a relay, its file and
 * its server know is one. What is checked:
 * - who becomes one of the group is reached by, and reaches, everybody that a node which it hears
 * knows, and hears;
 * - from every state, when all ways are open and all run, all count each other. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4
#define STATES_MOST 4000000u

enum record { NONE, JOINING, NODE };

struct state {
    uint8_t know[MOST][MOST]; /* who knows of whom what: enum record */
    /* relays; those that have asked another's server since they were started */
    uint8_t up, asked;
    uint8_t crashes; /* left */
};

enum rule { ALL_RULES, STRANGERS_WAITED_FOR, STRANGERS_NOT_MET, SILENT_HERE, RULES };

static const char *const left_out[RULES] = {
    [STRANGERS_WAITED_FOR] =
        "who is named by others, and joins as well, is waited for until it is a node",
    [STRANGERS_NOT_MET] = "who is named by others, and joins as well, need not be reached",
    [SILENT_HERE] = "who is not heard here is not waited for, though others hear it",
};

static enum rule without;
static unsigned n; /* nodes */
/* bits: whom its file names; whose server its relay reaches */
static uint8_t section[MOST], way[MOST];
static bool broken;

/* ---- small questions ---- */

static bool reaches(unsigned i, unsigned j)
{
    return way[i] >> j & 1;
}

static bool runs(const struct state *s, unsigned i)
{
    return s->up >> i & 1;
}

static bool counts(const struct state *s, unsigned i, unsigned j)
{
    return (section[i] >> j & 1) || s->know[i][j] == NODE;
}

/* j's beats lie in i's server. */
static bool comes(const struct state *s, unsigned j, unsigned i)
{
    return runs(s, j) && reaches(j, i) && (counts(s, j, i) || s->know[j][i] == JOINING);
}

/* Beats of j lie where i looks. */
static bool sees(const struct state *s, unsigned i, unsigned j)
{
    for (unsigned at = 0; at < n; at++)
        if (counts(s, i, at) && reaches(i, at) && comes(s, j, at))
            return true;
    return false;
}

static bool hears(const struct state *s, unsigned i, unsigned j)
{
    return counts(s, i, j) && sees(s, i, j);
}

/* Or one that it hears does. */
static bool lives(const struct state *s, unsigned i, unsigned j)
{
    bool any = sees(s, i, j);
    for (unsigned k = 0; k < n; k++)
        any |= k != i && k != j && hears(s, i, k) && hears(s, k, j) && without != SILENT_HERE;
    return any;
}

static bool both_ways(const struct state *s, unsigned i, unsigned j)
{
    return reaches(i, j) && comes(s, j, i);
}

/* x is known to one that i hears, and not to i. */
static bool stranger_met(const struct state *s, unsigned i, unsigned x)
{
    if (without == STRANGERS_WAITED_FOR || s->know[i][x] != JOINING)
        return false;
    return without == STRANGERS_NOT_MET || !lives(s, i, x) || both_ways(s, i, x);
}

static bool met(const struct state *s, unsigned i)
{
    for (unsigned j = 0; j < n; j++) {
        if (j == i || !counts(s, i, j) || !lives(s, i, j))
            continue;
        for (unsigned x = 0; x < n && hears(s, i, j); x++)
            if (x != i && counts(s, j, x) && !counts(s, i, x) && !stranger_met(s, i, x))
                return false;
        if (!counts(s, j, i) && !both_ways(s, i, j))
            return false;
    }
    return true;
}

/* ---- steps; false: it changes nothing ---- */

/* Asks the server of j, and tells it what it lacks. */
static bool ask(struct state *t, unsigned i, unsigned j)
{
    struct state s = *t;
    if (i == j || !runs(t, i) || !counts(t, i, j) || !reaches(i, j))
        return false;
    for (unsigned x = 0; x < n; x++)
        t->know[i][x] = t->know[j][x] = s.know[i][x] > s.know[j][x] ? s.know[i][x] : s.know[j][x];
    t->asked |= (uint8_t)(1u << i);
    return memcmp(t, &s, sizeof s) != 0;
}

static bool say(struct state *t, unsigned i)
{
    uint8_t now = t->know[i][i];
    if (!runs(t, i) || !(t->asked >> i & 1) || now == NODE)
        return false;
    t->know[i][i] = met(t, i) ? NODE : JOINING;
    for (unsigned k = 0; t->know[i][i] == NODE && k < n; k++)
        for (unsigned j = 0; j < n; j++)
            broken |= k != i && j != i && hears(t, i, k) && counts(t, k, j) &&
                      (j == k || hears(t, k, j)) && runs(t, j) && !counts(t, j, i) &&
                      !both_ways(t, i, j);
    return t->know[i][i] != now;
}

static bool start(struct state *t, unsigned i)
{
    bool was = runs(t, i);
    t->up |= (uint8_t)(1u << i);
    return !was;
}

static bool crash(struct state *t, unsigned i)
{
    if (!t->crashes || !runs(t, i))
        return false;
    t->crashes--;
    t->up &= (uint8_t) ~(1u << i);
    t->asked &= (uint8_t) ~(1u << i);
    return true;
}

/* ---- all states ---- */

static struct state *seen;
static uint32_t nseen, *table, *slot, slots; /* slot: of each state, in the table */

static void go(const struct state *s)
{
    const uint8_t *p = (const uint8_t *)s;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    uint32_t at = (uint32_t)(h >> 20) & (slots - 1);
    while (table[at] && memcmp(&seen[table[at] - 1], s, sizeof *s) != 0)
        at = (at + 1) & (slots - 1);
    if (table[at])
        return;
    if (nseen == STATES_MOST) {
        fprintf(stderr, "more than %u states\n", STATES_MOST);
        exit(2);
    }
    seen[nseen] = *s;
    slot[nseen] = at;
    table[at] = ++nseen;
}

/* What comes of a state when all ways are open, all run, and everybody does all that it may:
 * nothing takes anything back, so one order is as good as another. */
static bool agreed(struct state s)
{
    uint8_t before[MOST];
    memcpy(before, way, sizeof way);
    memset(way, 0xff, sizeof way);
    for (bool changed = true; changed;) {
        changed = false;
        for (unsigned i = 0; i < n; i++) {
            changed |= start(&s, i);
            for (unsigned j = 0; j < n; j++)
                changed |= ask(&s, i, j);
            changed |= say(&s, i);
        }
    }
    memcpy(way, before, sizeof way);
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < n; j++)
            if (s.know[i][j] != NODE)
                return false;
    return true;
}

struct verdict {
    unsigned long long states, apart;
    bool broken;
};

static void run(struct verdict *v)
{
    struct state begin = {.crashes = n < MOST};
    broken = false;
    while (nseen)
        table[slot[--nseen]] = 0;
    go(&begin);
    for (uint32_t here = 0; here < nseen; here++) {
        struct state s = seen[here], t;
        for (unsigned i = 0; i < n; i++) {
            for (unsigned j = 0; j < n; j++)
                if (t = s, ask(&t, i, j))
                    go(&t);
            if (t = s, say(&t, i))
                go(&t);
            if (t = s, start(&t, i))
                go(&t);
            if (t = s, crash(&t, i))
                go(&t);
        }
        bool so_far = broken;
        v->apart += !agreed(s);
        broken = so_far; /* with ways that open there it is looked at where they are open */
    }
    v->states += nseen;
    v->broken |= broken;
}

static void set_ways(unsigned closed)
{
    for (unsigned i = 0, bit = 0; i < n; i++) {
        way[i] = 0xff;
        for (unsigned j = 0; j < n; j++)
            if (j != i && (closed >> bit++ & 1))
                way[i] &= (uint8_t) ~(1u << j);
    }
}

/* Every file names somebody else. */
static void three(struct verdict *v)
{
    static const uint8_t others[3][3] = {{2, 4, 6}, {1, 4, 5}, {1, 2, 3}};
    n = 3;
    for (unsigned files = 0; files < 27; files++)
        for (unsigned closed = 0; closed < 64; closed++) {
            section[0] = (uint8_t)(1 | others[0][files % 3]);
            section[1] = (uint8_t)(2 | others[1][files / 3 % 3]);
            section[2] = (uint8_t)(4 | others[2][files / 9]);
            set_ways(closed);
            run(v);
        }
}

static void four(struct verdict *v, bool ring)
{
    n = 4;
    for (unsigned i = 0; i < n; i++)
        section[i] = (uint8_t)(1u << i | 1u << (i + 1 < n ? i + 1 : ring ? 0 : i - 1));
    set_ways(0);
    run(v);
}

static struct verdict all(enum rule rule)
{
    struct verdict v = {0};
    without = rule;
    three(&v);
    if (!rule) {
        four(&v, true);
        four(&v, false);
    }
    return v;
}

int main(void)
{
    slots = 1u << 23;
    seen = malloc(STATES_MOST * sizeof *seen);
    slot = malloc(STATES_MOST * sizeof *slot);
    table = calloc(slots, sizeof *table);
    if (!seen || !slot || !table)
        return 2;
    struct verdict v = all(ALL_RULES);
    bool failed = v.broken || v.apart;
    printf("nodes that start together: %llu states, %s, %llu from which they do not agree\n",
           v.states, v.broken ? "BROKEN" : "kept", v.apart);
    for (int r = ALL_RULES + 1; r < RULES; r++) {
        v = all((enum rule)r);
        bool noticed = v.broken || v.apart;
        printf("%s: %s\n", left_out[r],
               !noticed   ? "NOT NOTICED"
               : v.broken ? "noticed: not all reach all"
                          : "noticed: they do not agree");
        failed |= !noticed;
    }
    return failed;
}
