/* state - reads a state, and changes it by the smallest steps that mean something. Beside
 * rules.c, which says when. */
#ifndef DOVELANE_TESTS_MODEL_STATE_H
#define DOVELANE_TESTS_MODEL_STATE_H

#include "tests/model/rules.h"

/* ---- reading a state ---- */

static inline unsigned slot(unsigned of, unsigned node)
{
    return (node + NODES - of) % NODES - 1;
}

static inline unsigned in_slot(unsigned of, unsigned s)
{
    return (of + s + 1) % NODES;
}

static inline enum heard heard(const struct state *s, unsigned i, unsigned j)
{
    return s->owner[i].heard >> 2 * slot(i, j) & 3;
}

static inline bool lists(const struct state *s, unsigned i, unsigned j)
{
    return s->owner[i].lists >> slot(i, j) & 1;
}

/* Nothing is heard of j, and has not been for dead_after. */
static inline bool gone_silent(const struct state *s, unsigned i, unsigned j)
{
    return heard(s, i, j) == SILENT && !lists(s, i, j);
}

static inline bool not_known_yet(const struct state *s, unsigned i, unsigned j)
{
    return heard(s, i, j) == SILENT && lists(s, i, j);
}

static inline bool taken(const struct state *s, unsigned i, unsigned j)
{
    return s->owner[i].taken >> slot(i, j) & 1;
}

static inline bool owes(const struct state *s, unsigned i, unsigned j)
{
    return s->owner[i].owed >> slot(i, j) & 1;
}

static inline bool running(const struct state *s, unsigned i)
{
    return s->owner[i].condition == UP;
}

static inline bool linked(const struct state *, unsigned i, unsigned j);

/* i will have told j in no time what it owes: a relay tells it even when its own Redis is down. */
static inline bool ack_on_the_way(const struct state *s, unsigned i, unsigned j)
{
    return owes(s, i, j) && s->owner[i].condition != PAUSED && running(s, j) && linked(s, i, j);
}

/* Whether i may open a connection to j. Node 2 is the witness, or the third owner. */
static inline bool linked(const struct state *s, unsigned i, unsigned j)
{
    switch (s->world.partition) {
    case CUT_AB: return i + j != 1;
    case CUT_A_ALONE: return i != 0 && j != 0;
    case CUT_B_ALONE: return i != 1 && j != 1;
    case CUT_A_TO_B: return !(i == 0 && j == 1);
    case CUT_B_TO_A: return !(i == 1 && j == 0);
    default: return true;
    }
}

/* A node leaves its beat at its own server and at every peer's, and is answered with all beats
 * left there: one direction is enough to hear. */
static inline bool hearing(const struct state *s, unsigned i, unsigned j)
{
    return linked(s, i, j) || linked(s, j, i);
}

static inline bool decided(const struct rules *r, const struct state *s)
{
    return s->world.decision != OPEN || r->mutant == COMPARE_WITHOUT_SETTLE;
}

static inline bool begun(const struct rules *r, const struct state *s)
{
    bool any = false;
    for (unsigned i = 0; i < r->owners; i++)
        any |= s->owner[i].acked;
    return any;
}

/* What waits for settle, or dead_after, waits longer than any milter, and longer than acks that
 * can be told: everything that was placed before is decided, and they have arrived. */
static inline bool waited(const struct rules *r, const struct state *s)
{
    for (unsigned i = 0; i < r->owners; i++)
        for (unsigned j = 0; j < r->owners; j++)
            if (i != j && ack_on_the_way(s, i, j))
                return false;
    return s->world.decision != OPEN || !begun(r, s);
}

/* All nodes look well to each other: owners of new mail hear each other alive. */
static inline bool may_place(const struct rules *r, const struct state *s)
{
    for (unsigned i = 0; i < r->owners; i++)
        for (unsigned j = 0; j < r->owners; j++)
            if (i != j && running(s, i) && (heard(s, i, j) != HEARD_ALIVE || taken(s, i, j)))
                return false;
    return true;
}

/* Somebody whom i hears alive hears j alive. */
static inline bool others_hear(const struct rules *r, const struct state *s, unsigned i, unsigned j)
{
    if (r->owners == 2)
        return hearing(s, i, 2) && hearing(s, 2, j) && running(s, j) && s->owner[j].role == ALIVE;
    unsigned k = 3 - i - j;
    return heard(s, i, k) == HEARD_ALIVE && heard(s, k, j) == HEARD_ALIVE;
}

static inline unsigned lost(const struct rules *r, const struct state *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->owners; i++)
        n += s->owner[i].condition == DOWN || !s->owner[i].whole;
    return n;
}

/* ---- changing one ---- */

static inline uint32_t with_bit(uint32_t bits, unsigned k, bool set)
{
    return set ? bits | 1u << k : bits & ~(1u << k);
}

static inline void set_taken(struct state *s, unsigned i, unsigned j, bool set)
{
    s->owner[i].taken = with_bit(s->owner[i].taken, slot(i, j), set) & 3;
}

static inline void set_owes(struct state *s, unsigned i, unsigned j, bool set)
{
    s->owner[i].owed = with_bit(s->owner[i].owed, slot(i, j), set) & 3;
}

static inline void set_heard(struct state *s, unsigned i, unsigned j, enum heard h, bool lists_us)
{
    unsigned k = slot(i, j);
    struct owner *o = &s->owner[i];
    o->heard = ((o->heard & ~(3u << 2 * k)) | (uint32_t)h << 2 * k) & 15;
    o->lists = with_bit(o->lists, k, lists_us) & 3;
    o->aware = with_bit(o->aware, k, false) & 3;
}

/* What i learns from j's beat: j's state, whether j took i over, and as what j hears i. */
static inline void hear(struct state *s, unsigned i, unsigned j)
{
    set_heard(s, i, j, (enum heard)(1 + s->owner[j].role), taken(s, j, i));
    s->owner[i].aware = with_bit(s->owner[i].aware, slot(i, j),
                                 s->owner[i].role == READY && heard(s, j, i) == HEARD_READY) &
                        3;
}

static inline void excuse(struct state *s)
{
    if (s->world.excuses < 7)
        s->world.excuses++;
}

static inline void delivered(struct state *s)
{
    if (s->world.delivered < 3)
        s->world.delivered++;
}

static inline void let_go(const struct rules *r, struct owner *o)
{
    o->held = 0;
    o->remembered = r->mutant != NOTHING_REMEMBERED;
}

/* Whatever i knows of others is too old now. */
static inline void hear_anew(const struct rules *r, struct state *s, unsigned i)
{
    for (unsigned j = 0; j < r->owners; j++)
        if (j != i)
            set_heard(s, i, j, SILENT, true);
}

/* From here on the node takes nothing, has taken over nobody, and knows nothing of anybody until
 * it hears a new beat, or silence for long enough. */
static inline void to_returning(const struct rules *r, struct state *s, unsigned i)
{
    struct owner *o = &s->owner[i];
    o->role = RETURNING;
    o->compared = COMPARE_NOT;
    o->with = o->own_seen = o->own_listed = o->peer_listed = o->checked = 0;
    o->taken = 0;
    if (r->mutant != OLD_BEATS_COUNT)
        hear_anew(r, s, i);
}

/* Nobody is taken over that did not stand still for dead_after, and then it notices when it goes
 * on. */
static inline void stands_still(const struct rules *r, struct state *s, unsigned i)
{
    if (s->owner[i].condition == PAUSED && r->mutant != PAUSE_NOT_NOTICED)
        to_returning(r, s, i);
}

static inline void lose_redis(struct owner *o)
{
    o->held = o->whole = o->remembered = 0;
    o->old_ack = o->acked;
    o->compared = COMPARE_NOT;
    o->with = o->own_seen = o->own_listed = o->peer_listed = 0;
}

/* A push that was given up lies in a connection, and ends with it. */
static inline void never_arrives(const struct rules *r, struct state *s, unsigned i)
{
    if (s->world.decision == GIVEN_UP && r->mutant != LATE_250)
        s->owner[i].acked = 1;
}

/* A relay that dies may have delivered what it has in hand, or what it has not told the others
 * yet. */
static inline void lose_relay(struct state *s, unsigned i)
{
    if (s->owner[i].hand != HAND_EMPTY || s->owner[i].owed)
        excuse(s);
    s->owner[i].hand = HAND_EMPTY;
    s->owner[i].owed = 0;
}

#endif
