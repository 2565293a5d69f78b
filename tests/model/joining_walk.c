/* joining_walk - all states from a start, the promises, and the stories; see joining.h. */
#include "tests/model/joining.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATES_MOST 12000000u
#define SLOTS (1u << 24)

struct came {
    uint32_t from;
    uint8_t step, site, what, other;
};
/* ---- all states ---- */

struct edge {
    uint32_t from, to;
};

static struct state *seen;
static struct came *came;
static struct edge *edge;
static uint8_t *rests;
static uint32_t nseen, room, *table, here;
static uint64_t nedges, sedges;
static struct came last; /* step, by which a promise was broken */
static bool moved;       /* something but a fault led on */

/* Where they were at the beginning the mails have their UIDs for good; a delivered one for good
 * where it cannot clash. */
static bool keeps(const struct state *s, const struct state *t, unsigned i)
{
    const struct site *x = &s->site[i], *y = &t->site[i];
    if (!(start->first >> i & 1) || !start->safe)
        return true;
    bool any = false, alone = start->in_turn || !(start->delivers & (start->delivers - 1));
    for (unsigned m = 0; m < MAILS; m++) {
        any |= y->uid[m];
        if (m < start->mails && y->uid[m] && y->uid[m] != first_uid[m])
            return false;
        if (m >= start->mails && alone && x->uid[m] && y->uid[m] && x->uid[m] != y->uid[m])
            return false;
    }
    return !any || y->validity == FIRST_VALIDITY;
}

static void compare(const struct state *s, const struct state *t, enum step step)
{
    for (unsigned i = 0; i < n && !broken; i++) {
        const struct site *x = &s->site[i], *y = &t->site[i];
        if (!keeps(s, t, i))
            broken = "what was there first changed";
        if (x->next > 1 && y->validity < x->validity && step != LOSES_HOME &&
            step != LOSES_HOME_AND_LANES)
            broken = "a lower UIDVALIDITY for a mailbox that had mail";
    }
}

/* What nothing leads on from: all is equal. */
static void look_at_rest(const struct state *s)
{
    for (unsigned i = 1; i < n; i++) {
        const struct site *x = &s->site[0], *y = &s->site[i];
        if (x->validity != y->validity || memcmp(x->uid, y->uid, sizeof x->uid) != 0)
            broken = "at rest the sites show different mailboxes";
        for (unsigned a = 0; a < MAILS; a++)
            for (unsigned b = 0; b < MAILS; b++)
                if (a != b && x->validity == y->validity && x->uid[a] && x->uid[a] == y->uid[b])
                    broken = "at rest one UID names two mails";
    }
}

static void make_room(void)
{
    room = room ? 2 * room : 1u << 18;
    seen = realloc(seen, room * sizeof *seen);
    came = realloc(came, room * sizeof *came);
    rests = realloc(rests, room);
    if (!seen || !came || !rests)
        exit(2);
}

void go(const struct state *t, enum step step, unsigned site, unsigned what, unsigned other)
{
    const uint8_t *p = (const uint8_t *)t;
    uint64_t h = 0xcbf29ce484222325u;
    if (nseen && memcmp(t, &seen[here], sizeof *t) == 0)
        return;
    if (step < SESSION)
        moved = true;
    for (size_t i = 0; i < sizeof *t; i += 8) {
        uint64_t w;
        memcpy(&w, p + (i + 8 < sizeof *t ? i : sizeof *t - 8), 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    uint32_t at = (uint32_t)(h >> 20) & (SLOTS - 1);
    while (table[at] && memcmp(&seen[table[at] - 1], t, sizeof *t) != 0)
        at = (at + 1) & (SLOTS - 1);
    if (!table[at]) {
        if (nseen == STATES_MOST) {
            fprintf(stderr, "%s: more than %u states\n", start->name, nseen);
            exit(2);
        }
        if (nseen == room)
            make_room();
        seen[nseen] = *t;
        came[nseen] =
            (struct came){here, (uint8_t)step, (uint8_t)site, (uint8_t)what, (uint8_t)other};
        table[at] = ++nseen;
    }
    if (nedges == sedges) {
        sedges = sedges ? 2 * sedges : 1u << 20;
        edge = realloc(edge, sedges * sizeof *edge);
        if (!edge)
            exit(2);
    }
    if (nseen > 1)
        edge[nedges++] = (struct edge){here, table[at] - 1};
    if (nseen > 1 && !broken)
        compare(&seen[here], t, step);
    if (broken && !last.step)
        last = (struct came){here, (uint8_t)step, (uint8_t)site, (uint8_t)what, (uint8_t)other};
}

/* ---- a run ---- */

static struct state begin(void)
{
    struct state s = {.clock = FIRST_VALIDITY,
                      .sessions = start->sessions,
                      .deliveries = start->deliveries,
                      .losses = start->losses,
                      .renewals = start->renewals,
                      .silences = start->silences,
                      .delivered = (uint8_t)start->mails};
    unsigned speaker = 0;
    while (speaker + 1 < n && !(start->worked >> speaker & 1))
        speaker++;
    for (unsigned i = 0; i < n; i++) {
        struct site *x = &s.site[i];
        x->state_next = 1;
        if (!(start->first >> i & 1))
            continue;
        x->validity = FIRST_VALIDITY;
        x->next = FIRST_NEXT;
        memcpy(x->uid, first_uid, start->mails);
    }
    if (start->worked) {
        say(&s, speaker, OP(SAYS_VALIDITY, 0, FIRST_VALIDITY));
        for (unsigned m = 0; m < start->mails; m++)
            say(&s, speaker, OP(ADDS, m, first_uid[m]));
    }
    for (unsigned i = 0; i < n; i++) {
        struct site *x = &s.site[i];
        if (!(start->worked >> i & 1))
            continue;
        x->phase = WORKS;
        x->answered = others(i);
        x->looked = 1;
        x->state_next = FIRST_NEXT;
        x->bound = (uint8_t)((1u << start->mails) - 1);
        x->has[speaker * EPOCHS] = s.ops[speaker * EPOCHS];
    }
    return s;
}

/* States from which nothing leads to a rest. */
static uint32_t stuck(void)
{
    uint8_t *good = calloc(nseen, 1);
    uint32_t *from = malloc((nedges + 1) * sizeof *from),
             *work = malloc(((size_t)nseen + 1) * sizeof *work);
    uint64_t *first = calloc((size_t)nseen + 2, sizeof *first);
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
        if (rests[i])
            good[i] = 1, work[nwork++] = i;
    while (nwork) {
        uint32_t at = work[--nwork];
        for (uint64_t k = first[at]; k < first[at + 1]; k++)
            if (!good[from[k]])
                good[from[k]] = 1, work[nwork++] = from[k];
    }
    for (uint32_t i = nseen; i-- > 0;)
        if (!good[i])
            left++, here = i;
    free(good), free(first), free(from), free(work);
    return left;
}

/* The story ends with here. */
struct verdict run(const struct start *with, enum rule rule)
{
    start = with;
    n = with->sites;
    without = rule;
    broken = NULL;
    last = (struct came){0};
    nseen = here = 0;
    forget_rounds();
    nedges = 0;
    if (!table && !(table = malloc(SLOTS * sizeof *table)))
        exit(2);
    memset(table, 0, SLOTS * sizeof *table);
    struct state s = begin();
    struct verdict v = {0};
    go(&s, BEGINS, 0, 0, 0);
    for (here = 0; here < nseen; here++) {
        s = seen[here];
        moved = false;
        steps(&s);
        rests[here] = !moved && !broken;
        if (rests[here])
            look_at_rest(&s);
        if (broken)
            break;
        v.rests += rests[here];
    }
    v.states = nseen;
    v.steps = nedges;
    if (!broken && stuck())
        broken = "it does not come to rest";
    v.broken = broken;
    return v;
}

/* ---- stories ---- */

static void tell_step(const struct came *c)
{
    static const char *const kinds[] = {"the UIDVALIDITY", "a mail", "a round"};
    char a = (char)('A' + c->site), b = (char)('A' + c->other);
    unsigned m = c->what + 1u;
    switch ((enum step)c->step) {
    case BEGINS: break;
    case STARTS: printf("%c starts with a new state", a); break;
    case GOES_ON: printf("%c goes on without all the others", a); break;
    case IS_ANSWERED: printf("%c is answered by %c", a, b); break;
    case TAKES_OP:
        printf("%c takes an op of %c: %s", a, 'A' + c->other / EPOCHS, kinds[c->what]);
        break;
    case HEARS_READING: printf("%c hears that %c has not read", a, b); break;
    case HEARS_READ: printf("%c hears that %c has read", a, b); break;
    case FORGETS_READING: printf("%c waits no longer for %c to read", a, b); break;
    case LOOKS: printf("%c looks at its mailbox", a); break;
    case GETS_BODY: printf("%c gets the body of %u from %c", a, m, b); break;
    case IS_REFUSED: printf("%c says to %c that it has not got %u", b, a, m); break;
    case LOWERS: printf("%c lowers the UIDVALIDITY", a); break;
    case ASKS_ROUND: printf("%c begins a round", a); break;
    case ANSWERS_ROUND: printf("%c answers it", a); break;
    case SETTLES: printf("%c settles it", a); break;
    case SESSION: printf("a session makes the mailbox at %c", a); break;
    case DELIVERY: printf("%u is delivered at %c", m, a); break;
    case SILENCE: printf("no body comes to %c for long", a); break;
    case LOSES_HOME: printf("%c loses its home", a); break;
    case LOSES_HOME_AND_LANES: printf("%c loses its home and what it sent", a); break;
    case LOSES_STATE: printf("%c loses its state", a); break;
    }
}

static void tell_state(const struct state *s)
{
    printf("   ");
    for (unsigned i = 0; i < n; i++) {
        const struct site *x = &s->site[i];
        printf("  %c: ", 'A' + i);
        if (!x->validity)
            printf("-");
        else
            printf("%u/%u", x->validity, x->next);
        for (unsigned m = 0; m < MAILS; m++)
            if (x->uid[m])
                printf(" %u=%u", m + 1, x->uid[m]);
    }
    printf("\n");
}

static void tell_from(uint32_t at)
{
    if (at)
        tell_from(came[at].from);
    printf("    ");
    tell_step(&came[at]);
    tell_state(&seen[at]);
}

void tell_story(void)
{
    tell_from(here);
    if (!last.step)
        return;
    printf("    ");
    tell_step(&last);
    printf("\n");
}
