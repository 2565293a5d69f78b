/* joining_steps - what may follow a state; see joining.h. */
#include "tests/model/joining.h"

#include <stdlib.h>
#include <string.h>

static struct known now[SITES]; /* in the state that is looked at */

/* ---- steps: a new state, its exchanges and READING ---- */

static void starts(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (s->site[i].phase != OFF)
        return;
    t.site[i].phase = ASKS;
    go(&t, STARTS, i, 0, 0);
}

static void works(struct state *t, unsigned i)
{
    bool first = t->site[i].phase == ASKS;
    t->site[i].phase = WORKS;
    t->site[i].unasked = t->site[i].answered != others(i);
    if (first)
        look(t, i);
    apply(t, i);
}

static void exchange(const struct state *s, unsigned i)
{
    const struct site *x = &s->site[i];
    struct state t;
    for (unsigned j = 0; j < n; j++) {
        bool asks = x->phase == ASKS || (x->phase == WORKS && x->unasked);
        if (!asks || j == i || (x->answered >> j & 1) || s->site[j].phase == OFF)
            continue;
        t = *s;
        if (s->site[j].phase == ASKS && without != NO_READING) {
            t.tells[j][i] |= OWES_READ;
            if (without == READING_OVERTAKEN)
                t.tells[j][i] |= READING_ON_THE_WAY;
            else
                t.site[i].reading |= (uint8_t)(1u << j);
        }
        for (unsigned o = 0; o < n * EPOCHS; o++)
            while (t.site[i].has[o] < s->site[j].has[o])
                take(&t, i, o, NULL);
        t.site[i].answered |= (uint8_t)(1u << j);
        if (t.site[i].answered == others(i))
            works(&t, i);
        go(&t, IS_ANSWERED, i, 0, j);
    }
    t = *s;
    if (x->phase == ASKS && (start->alone >> i & 1)) {
        works(&t, i);
        go(&t, GOES_ON, i, 0, 0);
    }
}

static void reading(const struct state *s, unsigned i)
{
    struct state t;
    for (unsigned j = 0; j < n; j++) {
        uint8_t tells = s->tells[j][i];
        t = *s;
        if (s->site[i].phase == OFF || j == i)
            continue;
        if (tells & READING_ON_THE_WAY) {
            t.tells[j][i] ^= READING_ON_THE_WAY;
            t.site[i].reading |= (uint8_t)(1u << j);
            go(&t, HEARS_READING, i, 0, j);
        } else if ((tells & READ_ON_THE_WAY) &&
                   (s->site[i].has[origin_of(s, j)] >= s->behind[j][i] || without == READ_AHEAD)) {
            t.tells[j][i] ^= READ_ON_THE_WAY;
            t.behind[j][i] = 0;
            t.site[i].reading &= (uint8_t) ~(1u << j);
            if (!t.site[i].reading)
                look(&t, i), apply(&t, i);
            go(&t, HEARS_READ, i, 0, j);
        } else if ((s->site[i].reading >> j & 1) && !tells) {
            t.site[i].reading &= (uint8_t) ~(1u << j); /* it lost its state: nobody will tell */
            look(&t, i);
            apply(&t, i);
            go(&t, FORGETS_READING, i, 0, j);
        }
    }
}

/* The ops of a state that was lost come from its lane, or from another site. */
static void ops(const struct state *s, unsigned i)
{
    for (unsigned o = 0; o < n * EPOCHS; o++) {
        bool own = o / EPOCHS == i, known = false;
        for (unsigned j = 0; j < n; j++)
            known |= j != i && s->site[j].has[o] > s->site[i].has[o];
        if (s->site[i].phase == OFF || s->site[i].has[o] == s->ops[o] || (own && !known))
            continue;
        struct state t = *s;
        uint8_t uid[MAILS] = {0};
        take(&t, i, o, uid);
        apply(&t, i);
        renumber(&t, i, uid);
        go(&t, TAKES_OP, i, s->op[o][s->site[i].has[o]] >> 14, o);
    }
}

/* ---- steps: the mailbox and its mails ---- */

static void looks(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (s->site[i].gives_way) {
        t.site[i].validity = t.site[i].gives_way;
        t.site[i].gives_way = 0;
        go(&t, LOWERS, i, 0, 0);
        return;
    }
    look(&t, i);
    apply(&t, i);
    go(&t, LOOKS, i, 0, 0);
}

static void refuse(struct site *x, unsigned m, unsigned j)
{
    if (without == ASKED_ONCE)
        x->refused[m] = (uint8_t)(x->refused[m] + (x->refused[m] < n - 1));
    else
        x->refused[m] |= (uint8_t)(1u << j);
}

static void bodies(const struct state *s, unsigned i)
{
    const struct site *x = &s->site[i];
    if (x->phase != WORKS || !x->validity)
        return;
    struct known k = now[i];
    for (unsigned m = 0; m < MAILS; m++)
        for (unsigned j = 0; j < n; j++) {
            struct state t;
            bool asked = (lacks(s, i, &k) >> m & 1) && !(x->here >> m & 1);
            if (j == i || !asked || s->site[j].phase == OFF)
                continue;
            t = *s;
            if (gives(s, j, &k, m)) {
                t.site[i].here |= (uint8_t)(1u << m);
                t.site[i].refused[m] = 0;
                apply(&t, i);
                go(&t, GETS_BODY, i, m, j);
            } else if (refuses(s, j, &k, m)) {
                refuse(&t.site[i], m, j);
                apply(&t, i);
                go(&t, IS_REFUSED, i, m, j);
            }
        }
}

/* ---- steps: rounds; the first site is the keeper ---- */

static bool takes_part(const struct state *s, unsigned i)
{
    return s->site[i].phase == WORKS && (!fills(s, i, &now[i]) || without == FILLING_NOT_MINDED);
}

static void settles(const struct state *s)
{
    struct state t = *s;
    struct known k = now[0];
    uint8_t mails = differing(s, 0, &k), uid[MAILS] = {0};
    struct uids u = {.round = (uint8_t)(k.round + 1)};
    struct item item[MAILS];
    unsigned left = 0;
    bool again = false;
    t.site[0].state_next = u.base =
        s->site[0].next > s->site[0].state_next ? s->site[0].next : s->site[0].state_next;
    for (unsigned j = 1; j < n; j++)
        if (s->answers >> j & 1) {
            mails |= (uint8_t)(s->differ[j] & k.mails);
            u.base = s->answer_next[j] > u.base ? s->answer_next[j] : u.base;
        }
    t.round = t.answers = 0;
    memset(t.answer_next, 0, sizeof t.answer_next);
    memset(t.differ, 0, sizeof t.differ);
    for (unsigned m = 0; m < MAILS; m++)
        if (mails >> m & 1) {
            item[left++] = (struct item){(uint8_t)m, 0, k.agreed[m], k.origin[m], k.at[m]};
            again |= k.round_of[m] && k.round_of[m] == k.round;
        }
    if (left) {
        qsort(item, left, sizeof *item, by_plan);
        t.gap = !again ? 0 : t.gap ? 2 : 1;
        u.base = (uint8_t)(u.base + t.gap);
        u.n = (uint8_t)left;
        for (unsigned at = 0; at < left; at++)
            u.uid[item[at].mail] = (uint8_t)(u.base + at);
        if (u.base + left > UID_MOST)
            broken = "rounds without end";
        say(&t, 0, round_op(&u));
        t.site[0].has[origin_of(&t, 0)]--;
        take(&t, 0, origin_of(&t, 0), uid);
        apply(&t, 0);
        renumber(&t, 0, uid);
    }
    go(&t, SETTLES, 0, 0, 0);
}

static void round_goes_on(const struct state *s)
{
    bool dirty = false;
    for (unsigned i = 0; i < n; i++) {
        dirty |= takes_part(s, i) && differing(s, i, &now[i]);
    }
    if (without == NO_ROUNDS)
        return;
    if (!s->round && dirty && takes_part(s, 0)) {
        struct state t = *s;
        t.round = (uint8_t)(s->ops[origin_of(s, 0)] + 1);
        go(&t, ASKS_ROUND, 0, 0, 0);
    }
    for (unsigned i = 1; i < n && s->round; i++)
        if (!(s->answers >> i & 1) && takes_part(s, i) &&
            s->site[i].has[origin_of(s, 0)] >= s->round - 1) {
            struct state t = *s;
            struct site *x = &t.site[i];
            x->state_next = x->next > x->state_next ? x->next : x->state_next;
            t.answers |= (uint8_t)(1u << i);
            t.answer_next[i] = x->state_next;
            t.differ[i] = differing(s, i, &now[i]);
            go(&t, ANSWERS_ROUND, i, 0, 0);
        }
    if (s->round && (s->answers == others(0) || takes_part(s, 0)))
        settles(s);
}

/* ---- what comes from outside ---- */

static void make_mailbox(struct state *t, unsigned i)
{
    t->site[i].validity = ++t->clock;
    t->site[i].next = 1;
}

static bool is_its_turn(const struct state *s, unsigned i)
{
    for (unsigned m = start->mails; m < s->delivered && start->in_turn; m++)
        if (!s->site[i].uid[m])
            return false;
    return true;
}

static void outside(const struct state *s, unsigned i)
{
    struct state t = *s;
    if (s->sessions && (start->joins >> i & 1) && !s->site[i].validity) {
        t.sessions--;
        make_mailbox(&t, i);
        go(&t, SESSION, i, 0, 0);
    }
    t = *s;
    if (s->deliveries && (start->delivers >> i & 1) && is_its_turn(s, i)) {
        struct site *x = &t.site[i];
        t.deliveries--;
        if (!x->validity)
            make_mailbox(&t, i);
        x->uid[t.delivered++] = x->next++;
        go(&t, DELIVERY, i, t.delivered - 1, 0);
    }
    t = *s;
    if (s->silences && s->site[i].phase == WORKS && fills(s, i, &now[i])) {
        t.silences--;
        t.site[i].impatient = 1;
        apply(&t, i);
        go(&t, SILENCE, i, 0, 0);
    }
}

/* What nobody knows any more, and is in no lane, never was. */
static void forget_lanes(struct state *t, unsigned o)
{
    unsigned most = 0;
    for (unsigned j = 0; j < n; j++)
        most = t->site[j].has[o] > most ? t->site[j].has[o] : most;
    for (unsigned at = most; at < t->ops[o]; at++)
        t->op[o][at] = 0;
    t->ops[o] = (uint8_t)most;
}

static void lose(const struct state *s, unsigned i, enum step how)
{
    struct state t = *s;
    struct site *x = &t.site[i], was = s->site[i];
    unsigned o = origin_of(s, i);
    *x = (struct site){.epoch = 1, .state_next = 1};
    if (how == LOSES_STATE) {
        x->validity = was.validity;
        x->next = was.next;
        memcpy(x->uid, was.uid, sizeof was.uid);
        t.renewals--;
    } else {
        t.losses--;
    }
    if (how == LOSES_HOME_AND_LANES)
        forget_lanes(&t, o);
    memset(t.tells[i], 0, sizeof t.tells[i]);
    memset(t.behind[i], 0, sizeof t.behind[i]);
    if (i == 0) {
        t.round = t.answers = t.gap = 0;
        memset(t.answer_next, 0, sizeof t.answer_next);
        memset(t.differ, 0, sizeof t.differ);
    }
    go(&t, how, i, 0, 0);
}

static void losses(const struct state *s, unsigned i)
{
    if (s->site[i].epoch || s->site[i].phase == OFF)
        return;
    bool whole = false;
    for (unsigned j = 0; j < n; j++)
        whole |= j != i && s->site[j].bound == (1u << s->delivered) - 1;
    if (s->losses && (start->loses >> i & 1) && (whole || !start->safe)) {
        lose(s, i, LOSES_HOME);
        lose(s, i, LOSES_HOME_AND_LANES);
    }
    if (s->renewals && (start->renewed >> i & 1))
        lose(s, i, LOSES_STATE);
}

/* ---- all of them ---- */

void steps(const struct state *s)
{
    for (unsigned i = 0; i < n; i++)
        now[i] = known_at(s, i);
    for (unsigned i = 0; i < n && !broken; i++) {
        starts(s, i);
        exchange(s, i);
        reading(s, i);
        ops(s, i);
        if (s->site[i].phase == WORKS)
            looks(s, i);
        bodies(s, i);
        outside(s, i);
        losses(s, i);
    }
    if (!broken)
        round_goes_on(s);
}
