/* fuzz_model - the same random operations on the core and on a naive model, compared after each.
 *
 *    lane-fuzz-model [seconds] [--no-memory] [--seed n] [--long]
 *
 * Prints its seed; with --seed the run is the same again. --no-memory: the allocator fails one time in eight.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"

#define LANES 2
#define HOLDERS 3

static uint64_t seed, state;
static bool no_memory;
static size_t in_use;
static uint64_t steps;
static int64_t now = 1000;
static const char *doing = "nothing";

static struct lane *lane[LANES];
static struct model model[LANES];
static struct lane_holder holder[HOLDERS];
static uint64_t leases;

static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t n)
{
    return random64() % n;
}

static void die(const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ", step %" PRIu64 ", %s: %s\n", seed, steps, doing, what);
    abort();
}

static void *fuzz_alloc(size_t n)
{
    if (no_memory && below(8) == 0)
        return NULL;
    size_t *p = malloc(16 + n);
    *p = n;
    in_use += n;
    memset((char *)p + 16, (int)below(256), n);
    return (char *)p + 16;
}

static void fuzz_free(void *p)
{
    size_t *head = (size_t *)(void *)((char *)p - 16);
    in_use -= *head;
    memset(p, 0xdd, *head);
    free(head);
}

static struct lane_env env = {.alloc = fuzz_alloc, .free = fuzz_free};

static void random_data(char *p, uint32_t *len)
{
    *len = (uint32_t)below(MODEL_DATA + 1);
    for (uint32_t i = 0; i < *len; i++)
        p[i] = (char)random64();
}

/* ---- Operations ---- */

static void op_push(size_t l)
{
    struct model *m = &model[l];
    struct model_entry e = {.state = LANE_WAITING,
                            .born = now,
                            .has_id = below(4) != 0,
                            .revision = below(2),
                            .attempts = below(2)};
    uint64_t got = 0, few = below(3000);
    memcpy(e.id, &few, sizeof few);
    random_data(e.meta, &e.meta_len);
    random_data(e.body, &e.body_len);
    if (below(8) == 0) {
        e.state = LANE_DELAYED;
        e.until = now + 1 + (int64_t)below(500);
    }
    struct lane_new new = {.id = e.has_id ? e.id : NULL,
                           .meta = e.meta,
                           .meta_len = e.meta_len,
                           .body = e.body,
                           .body_len = e.body_len,
                           .revision = e.revision,
                           .attempts = e.attempts,
                           .born = e.born,
                           .due = e.until,
                           .unbounded = below(9) == 0};
    if (below(20) == 0)
        new.seq = lane_last_seq(lane[l]) + 1 + below(300);
    uint64_t last = lane_last_seq(lane[l]);
    enum lane_result result = lane_push(lane[l], &new, &got), want = LANE_OK;
    size_t held = e.has_id ? model_find_id(m, e.id) : m->n;
    if (held < m->n)
        want = LANE_HELD;
    else if (!new.unbounded && !model_fits(m, 1, e.meta_len + e.body_len))
        want = LANE_FULL;
    if (result == LANE_NOMEM && no_memory)
        return;
    if (result != want)
        die("answer");
    if (result == LANE_HELD && got != m->entry[held].seq)
        die("sequence of what is held");
    if (result != LANE_OK)
        return;
    if (got <= last || (new.seq &&got != new.seq))
        die("sequence");
    e.seq = got;
    model_add(m, &e);
}

static void op_burst(size_t l)
{
    if (model[l].n > 1500)
        return;
    for (uint64_t n = below(400); n > 0; n--)
        op_push(l);
}

static void op_remove(size_t l)
{
    struct model *m = &model[l];
    uint64_t seq = m->n && below(10) ? m->entry[below(m->n)].seq : random64() >> 40;
    size_t i = model_find(m, seq);
    if (lane_remove(lane[l], seq) != (i < m->n))
        die("answer");
    if (i < m->n)
        model_remove(m, i);
}

static void op_remove_run(size_t l)
{
    struct model *m = &model[l];
    if (!m->n)
        return;
    size_t i = below(3) ? 0 : below(m->n);
    for (uint64_t n = below(300); n && i < m->n; n--) {
        if (!lane_remove(lane[l], m->entry[i].seq))
            die("answer");
        model_remove(m, i);
    }
}

static void op_meta(size_t l)
{
    struct model *m = &model[l];
    if (!m->n)
        return;
    struct model_entry *e = &m->entry[below(m->n)];
    char meta[MODEL_DATA];
    uint32_t len, revision = e->revision + (uint32_t)below(3);
    random_data(meta, &len);
    enum lane_result result = lane_set_meta(lane[l], e->seq, revision, meta, len), want = LANE_OK;
    if (revision <= e->revision)
        want = LANE_STALE;
    else if (len > e->meta_len && !model_fits(m, 0, len - e->meta_len))
        want = LANE_FULL;
    if (result == LANE_NOMEM && no_memory)
        return;
    if (result != want)
        die("answer");
    if (result != LANE_OK)
        return;
    memcpy(e->meta, meta, len);
    e->meta_len = len;
    e->revision = revision;
}

static void op_take(size_t l)
{
    struct model *m = &model[l];
    struct lane_entry e;
    struct lane_lease *lease = lane_lease_open(lane[l], &holder[below(HOLDERS)], ++leases);
    int64_t until = now + 1 + (int64_t)below(500);
    if (!lease)
        return;
    for (uint64_t n = 1 + below(below(10) ? 3 : 200); n > 0; n--) {
        size_t i = model_candidate(m, leases);
        if (lane_candidate(lane[l], lease, &e) != (i < m->n))
            die("whether there is one");
        if (i == m->n)
            break;
        if (e.seq != m->entry[i].seq)
            die("which one");
        if (!lane_lease_add(lease, e.seq, until)) {
            if (!no_memory)
                die("no memory");
            break;
        }
        m->entry[i].state = LANE_LEASED;
        m->entry[i].lease = leases;
        m->entry[i].until = until;
    }
    lane_lease_close(lease);
}

static void put_back(size_t l, struct model_entry *e, bool attempt, int64_t due)
{
    if (!lane_put_back(lane[l], e->seq, attempt, due)) {
        if (!no_memory || e->state != LANE_WAITING)
            die("no memory");
        return;
    }
    e->attempts += attempt;
    e->state = due ? LANE_DELAYED : LANE_WAITING;
    e->until = due;
    e->lease = 0;
    e->revoked = false;
}

static void op_put_back(size_t l)
{
    struct model *m = &model[l];
    for (uint64_t n = below(8); n && m->n; n--)
        put_back(l, &m->entry[below(m->n)], below(2), below(3) ? 0 : now + 1 + (int64_t)below(500));
}

static void op_holder_ends(size_t l)
{
    struct lane_holder *h = &holder[below(HOLDERS)];
    while (h->first) {
        struct lane_lease *lease = h->first;
        size_t which = lane_lease_lane(lease) == lane[0] ? 0 : 1;
        uint64_t seq = lane_lease_next(lease, 0);
        size_t i = model_find(&model[which], seq);
        if (i == model[which].n || model[which].entry[i].state != LANE_LEASED)
            die("an entry that is not leased");
        put_back(which, &model[which].entry[i], true, 0);
    }
}

static void op_extend_or_mark(size_t l)
{
    struct model *m = &model[l];
    if (!m->n)
        return;
    struct model_entry *e = &m->entry[below(m->n)];
    int64_t until = now + (int64_t)below(900);
    bool mark = below(2);
    if (mark)
        lane_mark_revoked(lane[l], e->seq);
    else
        lane_extend(lane[l], e->seq, until);
    if (e->state != LANE_LEASED)
        return;
    if (mark)
        e->revoked = true;
    else
        e->until = until;
}

static void op_time(size_t l)
{
    struct model *m = &model[l];
    int64_t wake = LANE_NEVER;
    uint64_t seq;
    now += (int64_t)below(100);
    for (size_t i = 0; i < m->n; i++)
        if (m->entry[i].state != LANE_WAITING && m->entry[i].until < wake)
            wake = m->entry[i].until;
    if (lane_wake(lane[l]) != wake)
        die("when to wake");
    lane_due(lane[l], now);
    for (size_t i = 0; i < m->n; i++)
        if (m->entry[i].state == LANE_DELAYED && m->entry[i].until <= now)
            m->entry[i].state = LANE_WAITING;
    while ((seq = lane_overdue(lane[l], now))) {
        size_t i = model_find(m, seq);
        if (i == m->n || m->entry[i].state != LANE_LEASED || m->entry[i].until > now)
            die("overdue, but is not");
        put_back(l, &m->entry[i], true, below(2) ? 0 : now + 10);
    }
    for (size_t i = 0; i < m->n; i++)
        if (m->entry[i].state == LANE_LEASED && m->entry[i].until <= now)
            die("overdue, but not said");
}

static void op_hand_over(size_t l)
{
    struct model *from = &model[l], *to = &model[1 - l];
    uint64_t there;
    if (!from->n)
        return;
    size_t i = below(from->n);
    struct model_entry e = from->entry[i];
    enum lane_result result = lane_hand_over(lane[l], e.seq, lane[1 - l], &there), want = LANE_OK;
    if (e.state == LANE_LEASED)
        want = LANE_ABSENT;
    else if (e.has_id && model_find_id(to, e.id) < to->n)
        want = LANE_HELD;
    if (result == LANE_NOMEM && no_memory)
        return;
    if (result != want)
        die("answer");
    if (result != LANE_OK)
        return;
    model_remove(from, i);
    e.seq = there;
    model_add(to, &e);
}

/* The copy takes the lane's place: its leases are gone. */
static void op_copy(size_t l)
{
    struct lane *copy = lane_copy(lane[l]);
    if (!copy) {
        if (!no_memory)
            die("no memory");
        return;
    }
    lane_end_leases(lane[l]);
    lane_free(lane[l]);
    lane[l] = copy;
    for (size_t i = 0; i < model[l].n; i++) {
        struct model_entry *e = &model[l].entry[i];
        if (e->state == LANE_LEASED) {
            e->state = LANE_WAITING;
            e->lease = 0;
            e->revoked = false;
        }
    }
}

static void op_settings(size_t l)
{
    struct lane_settings s = {.strict = below(3) == 0};
    if (below(4) == 0)
        s.maxlen = below(2000);
    if (below(4) == 0)
        s.maxbytes = below(30000);
    *lane_settings(lane[l]) = model[l].settings = s;
}

static const struct op {
    const char *name;
    void (*run)(size_t l);
    unsigned weight;
} ops[] = {{"push", op_push, 30},
           {"burst", op_burst, 2},
           {"remove", op_remove, 20},
           {"remove run", op_remove_run, 2},
           {"meta", op_meta, 8},
           {"take", op_take, 20},
           {"put back", op_put_back, 10},
           {"holder ends", op_holder_ends, 2},
           {"extend or mark", op_extend_or_mark, 6},
           {"time", op_time, 10},
           {"hand over", op_hand_over, 6},
           {"copy", op_copy, 1},
           {"settings", op_settings, 1}};

static void step(void)
{
    unsigned sum = 0, pick;
    const struct op *op = ops;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        sum += ops[i].weight;
    for (pick = (unsigned)below(sum); pick >= op->weight; op++)
        pick -= op->weight;
    doing = op->name;
    op->run(below(LANES));
    for (size_t l = 0; l < LANES; l++) {
        const char *wrong = lane_check(lane[l]);
        if (!wrong)
            wrong = model_differs(&model[l], lane[l]);
        if (wrong)
            die(wrong);
    }
    steps++;
}

int main(int argc, char **argv)
{
    long seconds = 10;
    seed = (uint64_t)time(NULL) * 2654435761u + (uint64_t)clock();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-memory") == 0)
            no_memory = true;
        else if (strcmp(argv[i], "--long") == 0)
            seconds = 600;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            seconds = atol(argv[i]);
    }
    printf("seed %" PRIu64 "\n", seed);
    fflush(stdout);
    state = seed | 1;
    for (size_t l = 0; l < LANES; l++)
        while (!(lane[l] = lane_create(&env)))
            ;
    for (time_t end = time(NULL) + seconds; time(NULL) < end;)
        step();
    for (size_t l = 0; l < LANES; l++) {
        lane_end_leases(lane[l]);
        lane_free(lane[l]);
        free(model[l].entry);
    }
    doing = "the end";
    if (in_use)
        die("memory was not given back");
    printf("%" PRIu64 " steps\n", steps);
    return 0;
}
