/* joining - ops, what a site knows by them, and what its worker does; see joining.h. */
#include "tests/model/joining.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint8_t first_uid[MAILS] = {1, 3,
                                  4}; /* a mail between them was expunged, and one behind them */

enum rule without;
const struct start *start;
unsigned n;
const char *broken;

/* ---- ops ---- */

#define ROUNDS 16384
static struct uids rounds[ROUNDS]; /* a table by hash */
static unsigned nrounds;

void forget_rounds(void)
{
    memset(rounds, 0, sizeof rounds);
    nrounds = 0;
}

uint16_t round_op(const struct uids *u)
{
    const uint8_t *p = (const uint8_t *)u;
    uint32_t h = 0x811c9dc5;
    for (size_t i = 0; i < sizeof *u; i++)
        h = (h ^ p[i]) * 0x01000193u;
    for (h %= ROUNDS; rounds[h].n && memcmp(&rounds[h], u, sizeof *u) != 0;)
        h = (h + 1) % ROUNDS;
    if (!rounds[h].n && ++nrounds > ROUNDS / 2) {
        fprintf(stderr, "too many rounds\n");
        exit(2);
    }
    rounds[h] = *u;
    return (uint16_t)(ROUND << 14 | h);
}

unsigned origin_of(const struct state *s, unsigned i)
{
    return i * EPOCHS + s->site[i].epoch;
}

struct known known_at(const struct state *s, unsigned i)
{
    struct known k = {0};
    for (unsigned o = 0; o < n * EPOCHS; o++)
        for (unsigned at = 0; at < s->site[i].has[o]; at++) {
            uint16_t op = s->op[o][at];
            unsigned kind = op >> 14, a = op >> 6 & 0xff, b = op & 0x3f;
            const struct uids *u = &rounds[kind == ROUND ? op & 0x3fff : 0];
            if (kind == SAYS_VALIDITY && b > k.validity) {
                k.validity = (uint8_t)b;
            } else if (kind == ADDS && !(k.mails >> a & 1)) {
                k.mails |= (uint8_t)(1u << a);
                k.claim[a] = (uint8_t)b;
                k.origin[a] = (uint8_t)o;
                k.at[a] = (uint8_t)at;
            } else if (kind == ROUND && u->round > k.round) {
                k.round = u->round;
            }
            for (unsigned m = 0; kind == ROUND && m < MAILS; m++)
                if (u->uid[m] && u->round >= k.round_of[m]) {
                    k.round_of[m] = u->round;
                    k.agreed[m] = u->uid[m];
                }
        }
    for (unsigned m = 0; m < MAILS; m++)
        if (!k.round_of[m])
            k.agreed[m] = k.claim[m];
    return k;
}

void say(struct state *s, unsigned i, uint16_t op)
{
    unsigned o = origin_of(s, i);
    if (s->ops[o] == OPS) {
        broken = "rounds without end";
        return;
    }
    if (op >> 14 == ADDS)
        memcpy(s->had[op >> 6 & 0xff], s->site[i].has, ORIGINS);
    s->op[o][s->ops[o]++] = op;
    s->site[i].has[o] = s->ops[o];
}

/* ---- small questions ---- */

static uint8_t all_sites(void)
{
    return (uint8_t)((1u << n) - 1);
}

uint8_t others(unsigned i)
{
    return (uint8_t)(all_sites() & ~(1u << i));
}

static bool is_given_up(const struct state *s, unsigned i, unsigned m)
{
    const struct site *x = &s->site[i];
    bool refused = without == ASKED_ONCE ? x->refused[m] >= n - 1 : x->refused[m] == others(i);
    return without != GIVES_NOTHING_UP && (refused || x->impatient);
}

uint8_t lacks(const struct state *s, unsigned i, const struct known *k)
{
    return (uint8_t)(k->mails & ~s->site[i].bound);
}

bool waits_for_mails(const struct state *s, unsigned i, const struct known *k)
{
    for (unsigned m = 0; m < MAILS; m++)
        if ((lacks(s, i, k) >> m & 1) && !is_given_up(s, i, m))
            return true;
    return false;
}

/* Mails come in. */
bool fills(const struct state *s, unsigned i, const struct known *k)
{
    return s->site[i].validity && waits_for_mails(s, i, k);
}

uint8_t differing(const struct state *s, unsigned i, const struct known *k)
{
    uint8_t mails = 0;
    for (unsigned m = 0; m < MAILS; m++)
        mails |= (uint8_t)(((s->site[i].bound >> m & 1) && s->site[i].uid[m] != k->agreed[m]) << m);
    return mails;
}

/* It answers with the body when it is asked for the mail as that op names it. */
bool gives(const struct state *s, unsigned i, const struct known *asker, unsigned m)
{
    return (s->site[i].bound >> m & 1) && s->site[i].has[asker->origin[m]] > asker->at[m];
}

/* Or says that it has not got it: not where the op is not known, or the mailbox was not read, since
 * it may have it all the same. */
bool refuses(const struct state *s, unsigned i, const struct known *asker, unsigned m)
{
    return without == UNKNOWN_REFUSED ||
           (s->site[i].phase == WORKS && s->site[i].has[asker->origin[m]] > asker->at[m]);
}

/* ---- what a worker does ---- */

static void set_uid(struct site *x, unsigned m, unsigned uid)
{
    x->uid[m] = (uint8_t)uid;
    x->bound |= (uint8_t)(1u << m);
    x->next = (uint8_t)(uid + 1 > x->next ? uid + 1 : x->next);
    x->state_next = x->next > x->state_next ? x->next : x->state_next;
    if (uid > UID_MOST)
        broken = "rounds without end";
}

/* Its mails become ops, or are those of others. */
static void bind_mails(struct state *s, unsigned i)
{
    struct site *x = &s->site[i];
    struct known k = known_at(s, i);
    for (unsigned uid = 1; uid < x->next; uid++)
        for (unsigned m = 0; m < MAILS; m++)
            if (x->uid[m] == uid && !(x->bound >> m & 1)) {
                if (!(k.mails >> m & 1))
                    say(s, i, OP(ADDS, m, uid));
                x->bound |= (uint8_t)(1u << m);
                x->here &= (uint8_t) ~(1u << m);
            }
    x->state_next = x->next > x->state_next ? x->next : x->state_next;
}

/* False: it waits. */
static bool say_validity(struct state *s, unsigned i)
{
    struct site *x = &s->site[i];
    uint8_t known = known_at(s, i).validity;
    bool unused = x->next == 1 && x->state_next == 1;
    if (unused && !known &&
        (x->reading || (x->unasked && without != ALONE_SAYS && without != INBOX_AT_ONCE)))
        return false;
    if (known < x->validity && known && (unused || without == LOWERED_WITH_MAIL) &&
        without != YOUNGER_WINS) {
        if (without == WAYS_LEFT_LATER)
            x->gives_way = known;
        else
            x->validity = known;
    } else if (known < x->validity) {
        say(s, i, OP(SAYS_VALIDITY, 0, x->validity));
    }
    return true;
}

static void tell_read(struct state *s, unsigned i)
{
    for (unsigned j = 0; j < n; j++)
        if (s->tells[i][j] & OWES_READ) {
            s->tells[i][j] ^= OWES_READ | READ_ON_THE_WAY;
            s->behind[i][j] = s->ops[origin_of(s, i)];
        }
}

void look(struct state *s, unsigned i)
{
    struct site *x = &s->site[i];
    if (x->phase != WORKS)
        return;
    if (x->validity && say_validity(s, i)) {
        x->looked = 1;
        bind_mails(s, i);
    }
    tell_read(s, i);
}

static void shape(struct state *s, unsigned i)
{
    struct site *x = &s->site[i];
    struct known k = known_at(s, i);
    if (!x->validity) {
        if (!k.validity && (x->unasked || !k.mails) && without != INBOX_AT_ONCE)
            return;
        x->validity = k.validity ? k.validity : ++s->clock;
        x->next = x->state_next;
        look(s, i);
    } else if (!x->looked && k.validity) {
        look(s, i);
    }
    if (x->looked && k.validity > x->validity)
        x->validity = k.validity;
}

int by_plan(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->late != y->late       ? x->late - y->late
           : x->order != y->order   ? x->order - y->order
           : x->origin != y->origin ? x->origin - y->origin
                                    : x->at - y->at;
}

/* By rising agreed UID; such as cannot get it any more are last. */
static unsigned plan(const struct state *s, unsigned i, const struct known *k, struct item *item)
{
    unsigned left = 0;
    for (unsigned m = 0; m < MAILS; m++)
        if (lacks(s, i, k) >> m & 1) {
            bool late = k->agreed[m] < s->site[i].state_next;
            item[left++] = (struct item){(uint8_t)m, late, late ? k->claim[m] : k->agreed[m],
                                         k->origin[m], k->at[m]};
        }
    qsort(item, left, sizeof *item, by_plan);
    return left;
}

/* Ops of that origin are on their way: those of its own that a site lost, from others only. */
static bool may_come(const struct state *s, unsigned i, unsigned o)
{
    bool comes = o / EPOCHS != i;
    for (unsigned j = 0; j < n; j++)
        comes |= s->site[j].has[o] > s->site[i].has[o];
    return comes && s->site[i].has[o] < s->ops[o];
}

/* What the mail's site had of others before it is not here. */
static bool waits_for_others(const struct state *s, unsigned i, const struct known *k, unsigned m)
{
    const struct site *x = &s->site[i];
    for (unsigned o = 0; o < n * EPOCHS && !x->impatient; o++)
        if (o != k->origin[m] && x->has[o] < s->had[m][o] && may_come(s, i, o))
            return without != OTHERS_NOT_AWAITED;
    return false;
}

static void place(struct state *s, unsigned i)
{
    struct site *x = &s->site[i];
    struct known k = known_at(s, i);
    struct item item[MAILS];
    unsigned left = x->looked ? plan(s, i, &k, item) : 0;
    for (unsigned at = 0; at < left; at++) {
        unsigned m = item[at].mail;
        if (!(x->here >> m & 1)) {
            if (is_given_up(s, i, m) || without == AS_THEY_COME)
                continue;
            return;
        }
        bool fits = k.agreed[m] >= x->state_next && k.agreed[m] >= x->next;
        if (fits && k.agreed[m] > x->next && waits_for_others(s, i, &k, m))
            return;
        set_uid(x, m, fits ? k.agreed[m] : x->next);
        x->here &= (uint8_t) ~(1u << m);
        x->refused[m] = 0;
        if (at == 0)
            x->impatient = 0;
    }
}

/* A round's mails get their new UIDs; where UIDNEXT has passed one it stays. */
void renumber(struct state *s, unsigned i, const uint8_t *uid)
{
    struct site *x = &s->site[i];
    unsigned next = x->next;
    for (unsigned m = 0; m < MAILS; m++)
        if (uid[m] >= next && uid[m])
            set_uid(x, m, uid[m]);
}

/* What rounds settled while mails were awaited. */
static void follow(struct state *s, unsigned i)
{
    struct site *x = &s->site[i];
    struct known k = known_at(s, i);
    uint8_t uid[MAILS] = {0};
    if (waits_for_mails(s, i, &k) || without == ROUND_AT_ONCE)
        return;
    for (unsigned m = 0; m < MAILS; m++)
        if ((differing(s, i, &k) >> m & 1) && k.round_of[m] && k.agreed[m] >= x->state_next)
            uid[m] = k.agreed[m];
    renumber(s, i, uid);
}

void apply(struct state *s, unsigned i)
{
    if (s->site[i].phase != WORKS)
        return;
    shape(s, i);
    place(s, i);
    follow(s, i);
}

/* The next op of that origin is known here. uid: of mails that are to be renumbered. */
void take(struct state *s, unsigned i, unsigned o, uint8_t *uid)
{
    struct site *x = &s->site[i];
    uint16_t op = s->op[o][x->has[o]++];
    if (op >> 14 != ROUND || !uid)
        return;
    const struct uids *u = &rounds[op & 0x3fff];
    struct known k = known_at(s, i);
    bool early = x->phase == ASKS || waits_for_mails(s, i, &k);
    if (x->state_next > u->base || (early && without != ROUND_AT_ONCE))
        return;
    for (unsigned m = 0; m < MAILS; m++)
        if ((x->bound >> m & 1) && u->uid[m] && k.agreed[m] == u->uid[m] && x->uid[m] != u->uid[m])
            uid[m] = u->uid[m];
    x->state_next = (uint8_t)(u->base + u->n);
}
