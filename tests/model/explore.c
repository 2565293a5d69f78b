#include "tests/model/explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_STEPS 400

static const struct quiet quiets[] = {{true, true}, {true, false}, {false, true}, {false, false}};
#define QUIETS (sizeof quiets / sizeof quiets[0])

/* All states seen, in the order of seeing them; the table has their numbers + 1. */
struct seen {
    struct state *state;
    uint32_t *parent;
    uint8_t *ends_well; /* one bit per quiet */
    uint32_t *table;
    uint64_t n, size, slots;
};

static void *grow(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return p;
}

static uint64_t hash(const struct state *s)
{
    uint64_t w[sizeof *s / sizeof(uint64_t)];
    memcpy(w, s, sizeof w);
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        h = (h ^ h >> 29 ^ (w[i] + 0x7F4A7C15F39CC060u)) * 0x9E3779B97F4A7C15u;
    h ^= h >> 31;
    h *= 0x94D049BB133111EBu;
    return h ^ h >> 29;
}

static uint64_t place(const struct seen *seen, const struct state *s)
{
    uint64_t k = hash(s) & (seen->slots - 1);
    while (seen->table[k] && memcmp(&seen->state[seen->table[k] - 1], s, sizeof *s) != 0)
        k = (k + 1) & (seen->slots - 1);
    return k;
}

static void make_room(struct seen *seen)
{
    if (seen->n == seen->size) {
        seen->size = seen->size ? 2 * seen->size : 1 << 16;
        seen->state = grow(seen->state, seen->size * sizeof *seen->state);
        seen->parent = grow(seen->parent, seen->size * sizeof *seen->parent);
    }
    if (2 * seen->n < seen->slots)
        return;
    free(seen->table);
    seen->slots = seen->slots ? 2 * seen->slots : 1 << 18;
    seen->table = grow(NULL, seen->slots * sizeof *seen->table);
    memset(seen->table, 0, seen->slots * sizeof *seen->table);
    for (uint64_t i = 0; i < seen->n; i++)
        seen->table[place(seen, &seen->state[i])] = (uint32_t)i + 1;
}

static void add(struct seen *seen, const struct state *s, uint64_t parent)
{
    make_room(seen);
    uint64_t k = place(seen, s);
    if (seen->table[k])
        return;
    seen->state[seen->n] = *s;
    seen->parent[seen->n] = (uint32_t)parent;
    seen->table[k] = (uint32_t)++seen->n;
}

/* ---- stories ---- */

struct story {
    char *text;
    size_t used, size;
};

static void tell(struct story *t, const char *what)
{
    if (t->used < t->size)
        t->used += (size_t)snprintf(t->text + t->used, t->size - t->used, "%s%s",
                                    t->used ? "; " : "", what);
}

static void tell_move(struct story *t, const struct move *v)
{
    char text[80];
    rules_describe(v, text, sizeof text);
    tell(t, text);
}

/* The moves from the start to the n-th state. */
static void tell_way(const struct rules *r, const struct seen *seen, uint64_t n, struct story *t)
{
    uint64_t way[1000];
    size_t steps = 0;
    for (; n && steps < 1000; n = seen->parent[n])
        way[steps++] = n;
    while (steps--) {
        struct move move[MOVES_MAX];
        size_t k = 0, moves = rules_moves(r, &seen->state[seen->parent[way[steps]]], move);
        while (k < moves && memcmp(&move[k].to, &seen->state[way[steps]], sizeof move[k].to) != 0)
            k++;
        if (k < moves)
            tell_move(t, &move[k]);
    }
}

/* ---- a quiet time ---- */

/* From s on until nothing is left to do. Returns what is wrong then. way: the states on the way,
 * numbered in seen, are ends_well from now on; NULL: every step is told in the story. */
static const char *be_quiet(const struct rules *r, struct state s, unsigned q, struct seen *seen,
                            struct story *t)
{
    uint64_t way[QUIET_STEPS];
    size_t steps = 0;
    struct move move[MOVES_MAX];
    for (;;) {
        if (seen) {
            uint64_t k = seen->table[place(seen, &s)];
            if (k && seen->ends_well[k - 1] & 1u << q)
                break;
            way[steps] = k;
        }
        size_t n = rules_moves(r, &s, move);
        int next = rules_quiet(&s, quiets[q], move, n);
        if (next < 0) {
            const char *wrong = rules_unfinished(r, &s, quiets[q]);
            if (wrong)
                return wrong;
            steps++;
            break;
        }
        if (++steps == QUIET_STEPS)
            return "stuck: goes round in circles";
        if (t)
            tell_move(t, &move[next]);
        s = move[next].to;
        const char *wrong = rules_wrong(r, &s);
        if (wrong)
            return wrong;
    }
    for (size_t i = 0; seen && i < steps; i++)
        if (way[i])
            seen->ends_well[way[i] - 1] |= (uint8_t)(1u << q);
    return NULL;
}

static void tell_quiet(const struct rules *r, const struct state *s, unsigned q, struct story *t)
{
    char text[1500];
    snprintf(text, sizeof text, "AND FROM HERE ON QUIET%s%s", quiets[q].healed ? "" : ", still cut",
             quiets[q].back ? "" : ", the dead never back");
    tell(t, text);
    be_quiet(r, *s, q, NULL, t);
}

/* ---- all states ---- */

static void explore_seen(const struct rules *r, uint64_t most, struct seen *seen, struct found *f)
{
    struct story t = {f->story, 0, sizeof f->story};
    struct state start = rules_start(r);
    struct move move[MOVES_MAX];
    add(seen, &start, 0);
    f->all = true;
    for (uint64_t i = 0; i < seen->n; i++) {
        struct state from = seen->state[i];
        if ((f->wrong = rules_wrong(r, &from))) {
            tell_way(r, seen, i, &t);
            return;
        }
        size_t n = rules_moves(r, &from, move);
        f->moves += n;
        for (size_t k = 0; k < n; k++) {
            if (seen->n < most)
                add(seen, &move[k].to, i);
            else
                f->all = false;
        }
    }
    seen->ends_well = grow(NULL, seen->n);
    memset(seen->ends_well, 0, seen->n);
    for (uint64_t i = 0; i < seen->n; i++)
        for (unsigned q = 0; q < QUIETS; q++)
            if ((f->wrong = be_quiet(r, seen->state[i], q, seen, NULL))) {
                tell_way(r, seen, i, &t);
                tell_quiet(r, &seen->state[i], q, &t);
                return;
            }
}

void explore(const struct rules *r, uint64_t most, struct found *f)
{
    struct seen seen = {0};
    memset(f, 0, sizeof *f);
    explore_seen(r, most, &seen, f);
    f->states = seen.n;
    free(seen.state);
    free(seen.parent);
    free(seen.ends_well);
    free(seen.table);
}

/* ---- some of them ---- */

static uint64_t next_random(uint64_t *x)
{
    *x += 0x9E3779B97F4A7C15u;
    uint64_t z = *x;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Work is likelier than faults, or all of them would come before anything is stored. */
static size_t choose(const struct move *move, size_t n, uint64_t *random)
{
    size_t k = next_random(random) % n;
    for (int again = 0; again < 3 && move[k].kind >= SAVE; again++)
        k = next_random(random) % n;
    return k;
}

static bool walk(const struct rules *r, uint64_t seed, unsigned steps, struct found *f)
{
    struct story t = {f->story, 0, sizeof f->story};
    struct state s = rules_start(r);
    struct move move[MOVES_MAX];
    uint64_t random = seed;
    f->story[0] = 0;
    for (unsigned i = 0; i < steps; i++) {
        size_t n = rules_moves(r, &s, move);
        if (n == 0)
            break;
        size_t k = choose(move, n, &random);
        tell_move(&t, &move[k]);
        s = move[k].to;
        f->states++;
        f->moves += n;
        if ((f->wrong = rules_wrong(r, &s)))
            return false;
        if (next_random(&random) % 8)
            continue;
        unsigned q = (unsigned)(next_random(&random) % QUIETS);
        if ((f->wrong = be_quiet(r, s, q, NULL, NULL))) {
            tell_quiet(r, &s, q, &t);
            return false;
        }
    }
    return true;
}

void explore_randomly(const struct rules *r, uint64_t first, uint64_t last, unsigned steps,
                      struct found *f)
{
    memset(f, 0, sizeof *f);
    for (uint64_t seed = first; seed <= last && walk(r, seed, steps, f); seed++)
        ;
}
