/* simulate - replicas with mailboxes, users, crashes and bad links, from a seed.
 *
 * A group of two to four hosts, and with three or more a second namespace that not all of them
 * hold. Each host has, per namespace, a disk (store), a mailbox per folder, a journal of what users
 * expunged, and lanes to the others. A step is a user's command, a piece of ingest, of shipping, of
 * work on a mailbox, of an exchange or of a UID round, or one of the faults that simulate.h lists.
 * At the end links are good, everybody does all that is left, and:
 *
 *     digests are equal                  mailboxes are what the state says, on all sites, bytes and flags too
 *     nothing removed is back            nothing added and not removed is missing: by dots where no host was lost,
 *     by mails always                    (UIDVALIDITY, UID) names one mail on all sites
 *
 * Excepted is only what a host knew alone when it was lost, or removed shortly before.
 *
 *     simulate [runs [seed]]       default 2,000 runs; "long": 40,000
 *     simulate away [n]            a peer away for n operations (default 1,000,000) */
#include "tests/unit/orset/simulate.h"

static uint64_t rng, seed_now, steps_done;
static struct group group[NAMESPACES];
static unsigned groups;
bool healing;
uint64_t happened[FAULT_KINDS];

uint64_t dice(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng * 0x2545f4914f6cdd1dULL >> 8;
}

unsigned below(unsigned n)
{
    return (unsigned)(dice() % n);
}

void fail(const char *what, const struct site *s)
{
    fprintf(stderr, "FAILED with seed %" PRIu64 ", step %" PRIu64 ": %s%s%s\n", seed_now,
            steps_done, what, s ? ": " : "", s && s->os ? orset_error_text(s->os) : "");
    exit(1);
}

int must(struct site *s, int r)
{
    if (r < 0)
        fail(orset_error_text(s->os), s);
    return r;
}

/* --- the run
 * ---------------------------------------------------------------------------------------------- */

static unsigned here(const struct group *g)
{
    unsigned n = 0;
    for (unsigned i = 0; i < g->n; i++)
        n += is_here(&g->site[i]);
    return n;
}

/* One loss at a time where the second may be of the only peer that could have told an old host
 * what it is (docs/replication-protocol.md, "Old copies": that is beyond what can be mended). */
static bool may_lose(void)
{
    for (unsigned i = 0; i < groups; i++)
        for (unsigned a = 0; a < group[i].n; a++)
            if (group[i].site[a].unheard)
                return false;
    return true;
}

/* What befalls a host befalls all its namespaces. */
static void host_fault(unsigned index, void (*fault)(struct site *))
{
    for (unsigned i = 0; i < groups; i++)
        if (is_here(&group[i].site[index]))
            fault(&group[i].site[index]);
}

static void step_fault(struct group *g, struct site *a, struct site *b, unsigned z)
{
    static const enum fault point[] = {CRASH_SAVED, CRASH_INGESTED, CRASH_INGEST, CRASH_PUSHED};
    bool second = g != &group[0];
    if (((z >= 13 && z < 20) || z > 36) && !may_lose())
        return;
    if (z < 8) {
        switch (point[z % 4]) {
        case CRASH_SAVED:
            user(a);
            crash(a, CRASH_SAVED);
            break;
        case CRASH_PUSHED:
            ingest_all(a);
            ship(a, b);
            crash(a, CRASH_PUSHED);
            break;
        default: ingest(a, point[z % 4]); break;
        }
    } else if (z < 13) {
        host_fault(a->index, back_up);
    } else if (z < 15) {
        host_fault(a->index, restore_state);
    } else if (z < 17) {
        host_fault(a->index, restore_host);
    } else if (z < 20) {
        host_fault(a->index, power_loss);
    } else if (z < 24) {
        damage(a);
    } else if (z < 28 && b != a) {
        happened[LANE_LOST] += g->lane[a->index][b->index].n > 0;
        cut_lane(a, b);
    } else if (z < 34) {
        start_exchange(a, b);
    } else if (z < 37) {
        change_keeper(a);
    } else if (z == 37 && here(g) > 1) {
        lose_state(a);
    } else if (z == 38 && second && here(g) > 2) {
        leave_namespace(a);
    } else if (z == 39 && g->n > 2 && below(3) == 0 && here(&group[0]) == g->n &&
               here(&group[groups - 1]) > 2) {
        host_fault(a->index, die);
    }
}

static void step(struct group *g)
{
    struct site *a = &g->site[some_site(g)], *b = &g->site[below(g->n)];
    static const enum fault point[] = {CRASH_UNPLACED, CRASH_PLACED, CRASH_BOUND};
    unsigned z = below(1000);
    steps_done++;
    if (b->out && z % 8 == 0) {
        take_namespace(b);
        return;
    }
    if (z < 220)
        user(a);
    else if (z < 340)
        ingest(a, FAULT_KINDS);
    else if (z < 480 && b != a && is_here(b))
        ship(a, b);
    else if (z < 660 && b != a)
        deliver(b, a, true);
    else if (z < 860)
        work(a, below(3), below(10) == 0 ? point[below(3)] : FAULT_KINDS);
    else if (z < 920 && b != a) {
        if (a->unheard)
            start_exchange(a, b);
        exchange_step(a, b, true);
    } else if (z < 960)
        round_step(a, true);
    else
        step_fault(g, a, b, z - 960);
}

static void run(uint64_t seed)
{
    seed_now = seed;
    rng = seed * 0x9e3779b97f4a7c15ULL + 1;
    steps_done = 0;
    host_begin((unsigned)seed);
    unsigned n = 2 + below(SITES - 1), steps = 200 + below(800);
    groups = n > 2 ? 2 : 1;
    for (unsigned i = 0; i < groups; i++) {
        free(group[i].dot);
        memset(&group[i], 0, sizeof group[i]);
        group[i].n = n;
        group[i].nmails = SHARED_CONTENTS;
        for (unsigned a = 0; a < n; a++)
            site_begin(&group[i], a, seed % 8 == 7);
    }
    if (groups > 1)
        leave_namespace(&group[1].site[below(n)]);
    for (unsigned i = 0; i < steps; i++)
        step(&group[groups > 1 && below(3) == 0]);
    healing = true;
    for (unsigned i = 0; i < groups; i++) {
        heal(&group[i]);
        judge(&group[i]);
    }
    healing = false;
    for (unsigned i = 0; i < groups; i++)
        for (unsigned a = 0; a < n; a++) {
            site_end(&group[i].site[a]);
            for (unsigned b = 0; b < n; b++)
                cut_lane(&group[i].site[a], &group[i].site[b]);
        }
    host_end();
}

/* --- a peer away
 * ---------------------------------------------------------------------------------------------- */

static size_t all_rows(const struct site *s)
{
    size_t n = 0;
    for (enum orset_table t = 0; t < ORSET_TABLES; t++)
        n += orset_memstore_rows(s->disk, t);
    return n;
}

static void away(unsigned n)
{
    uint64_t next, rows, lowest;
    struct orset_buf out = {.alloc = &HEAP};
    struct group *g = &group[0];
    rng = 7;
    groups = 1;
    g->n = 2;
    g->nmails = SHARED_CONTENTS;
    healing = true; /* no fault but this one */
    for (unsigned a = 0; a < 2; a++)
        site_begin(g, a, false);
    struct site *s = &g->site[0];
    struct box *b = box_of(s, ORSET_INBOX);
    for (unsigned i = 0; i < 100; i++)
        b->mail[b->n++] =
            (struct mail){.uid = b->uid_next++, .guid = (uint16_t)i, .content = (uint16_t)i};
    heal(g);
    size_t before = orset_memstore_bytes(s->disk), most = 0, rows_before = all_rows(s);
    for (unsigned i = 0; i < n; i++) {
        b->mail[below(b->n)].flags ^= (uint8_t)(1U << below(5));
        if (i % 100 != 99)
            continue;
        ingest_all(s);
        /* The backlog is bounded: beyond it the peer exchanges on return (F38). */
        must(s, orset_begin(s->os));
        must(s, orset_out(s->os, &rows, &lowest));
        if (rows > 10000)
            must(s, orset_drop_out(s->os, orset_vector_get(s->os, orset_self(s->os))));
        commit(s);
        most = orset_memstore_bytes(s->disk) > most ? orset_memstore_bytes(s->disk) : most;
    }
    must(s, orset_begin(s->os));
    must(s, orset_drop_out(s->os, orset_vector_get(s->os, orset_self(s->os))));
    commit(s);
    if (orset_batch_make(s->os, s->confirmed[1] + 1, 1000, NULL, 0, &out, &next) != ORSET_E_GAP)
        fail("rows that were dropped are shipped", s);
    orset_buf_free(&out);
    size_t after = orset_memstore_bytes(s->disk);
    if (all_rows(s) > rows_before + 500) /* marks: five a mail */
        fail("the state grew while the peer was away", s);
    heal(g);
    judge(g);
    printf("a peer away for %u operations (%" PRIu64
           " numbers): state %zu bytes before, at most %zu with the backlog, "
           "%zu after\n",
           n, orset_vector_get(s->os, orset_self(s->os)), before, most, after);
    for (unsigned a = 0; a < 2; a++)
        site_end(&g->site[a]);
}

/* --- counts
 * ---------------------------------------------------------------------------------------------- */

static void report(unsigned runs, uint64_t seed, uint64_t steps)
{
    static const char *const text[] = {
#define X(name, what) what,
        FAULTS(X)
#undef X
    };
    printf("%u runs from seed %" PRIu64 ", %" PRIu64
           " steps: all equal, nothing lost, no UID names two mails\n",
           runs, seed, steps);
    for (unsigned i = 0; i < FAULT_KINDS; i++)
        printf("%12" PRIu64 "  %s\n", happened[i], text[i]);
    for (unsigned i = 0; i < FAULT_KINDS && runs >= 1000; i++)
        if (happened[i] == 0) {
            fprintf(stderr, "never happened: %s\n", text[i]);
            exit(1);
        }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "away") == 0) {
        away(argc > 2 ? (unsigned)atoi(argv[2]) : 1000000);
        return 0;
    }
    unsigned runs =
        argc > 1 ? strcmp(argv[1], "long") == 0 ? 40000 : (unsigned)atoi(argv[1]) : 2000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, steps = 0;
    for (unsigned i = 0; i < runs; i++) {
        run(seed + i);
        steps += steps_done;
    }
    report(runs, seed, steps);
    return 0;
}
