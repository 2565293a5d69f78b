/* fuzz_model - the same random operations on the core and on a naive model, compared after each.
 *
 *    lane-fuzz-model [seconds] [--no-memory] [--seed n] [--long]
 *
 * Prints its seed; with --seed the run is the same again. --no-memory: the allocator fails one time
 * in eight.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/lane/model.h"

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
    if (below(6) == 0)
        e.expires = now + 1 + (int64_t)below(500);
    struct lane_new new = {.id = e.has_id ? e.id : NULL,
                           .meta = e.meta,
                           .meta_len = e.meta_len,
                           .body = e.body,
                           .body_len = e.body_len,
                           .revision = e.revision,
                           .attempts = e.attempts,
                           .born = e.born,
                           .due = e.until,
                           .expires = e.expires,
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

/* As many as go at once; none is fine, but not always. */
static uint64_t plain_stored;

static void op_push_plain(size_t l)
{
    struct model *m = &model[l];
    struct model_entry e[40];
    struct lane_data data[40];
    size_t n = below(m->n > 1500 ? 2 : 40);
    uint64_t seq = 0, last = lane_last_seq(lane[l]);
    for (size_t i = 0; i < n; i++) {
        e[i] = (struct model_entry){.state = LANE_WAITING, .born = now};
        random_data(e[i].meta, &e[i].meta_len);
        random_data(e[i].body, &e[i].body_len);
        data[i] = (struct lane_data){e[i].body, e[i].meta, (uint32_t)e[i].body_len,
                                     (uint32_t)e[i].meta_len};
    }
    size_t stored = lane_push_plain(lane[l], now, data, n, &seq);
    if (stored > n || (stored && (seq <= last || lane_last_seq(lane[l]) != seq + stored - 1)))
        die("plain: sequences");
    for (size_t i = 0; i < stored; i++) {
        if (!model_fits(m, 1, e[i].meta_len + e[i].body_len))
            die("plain: a bound was not asked");
        e[i].seq = seq + i;
        model_add(m, &e[i]);
    }
    plain_stored += stored;
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
        if (!lane_lease_lane(lease)) {
            lane_lease_forget(lease);
            continue;
        }
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
    while (lane_due(lane[l], now))
        ;
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

/* What all leases ended for at once may be late, until somebody looks at it; model_differs
 * always does. */
static bool expired(const struct model_entry *e)
{
    return e->expires && e->expires <= now && e->state != LANE_LEASED;
}

/* Sooner or later than the rest of what time does: what is leased must not be forgotten. */
static void op_expire(size_t l)
{
    struct model *m = &model[l];
    uint64_t seq;
    while ((seq = lane_expired(lane[l], now))) {
        size_t i = model_find(m, seq);
        if (i == m->n || !expired(&m->entry[i]))
            die("expired, but is not");
        lane_remove(lane[l], seq);
        model_remove(m, i);
    }
    int64_t next = LANE_NEVER;
    for (size_t i = 0; i < m->n; i++) {
        if (expired(&m->entry[i]))
            die("expired, but not said");
        if (m->entry[i].expires > now && m->entry[i].expires < next)
            next = m->entry[i].expires;
    }
    if (lane_expiry(lane[l]) > next || lane_expiry(lane[l]) <= now)
        die("what expires next");
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

static void end_leases(struct model *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct model_entry *e = &m->entry[i];
        if (e->state == LANE_LEASED) {
            e->state = LANE_WAITING;
            e->lease = 0;
            e->revoked = false;
        }
    }
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
    end_leases(&model[l]);
}

/* As when the lane is renamed. The leases lose their lane, and are swept a few at a time. */
static void op_end_leases(size_t l)
{
    lane_end_leases(lane[l]);
    end_leases(&model[l]);
    lane_sweep(&env, below(20));
}

/* The ids of a run that have not been told yet. */
static struct {
    size_t n, at;
    uint8_t id[64][LANE_ID_LEN];
} untold;

static void going(void *arg, uint64_t from, uint64_t to)
{
    struct model *m = arg;
    if (untold.at != untold.n || to - from >= 64)
        die("an id that nobody was told");
    untold.at = untold.n = 0;
    for (uint64_t seq = from; seq <= to; seq++) {
        size_t i = model_find(m, seq);
        if (i == m->n)
            die("another entry than the model's");
        if (m->entry[i].has_id)
            memcpy(untold.id[untold.n++], m->entry[i].id, LANE_ID_LEN);
        model_remove(m, i);
    }
}

static void going_id(void *arg, const uint8_t *id)
{
    if (untold.at == untold.n || memcmp(untold.id[untold.at++], id, LANE_ID_LEN) != 0)
        die("another id than the model's");
}

static void op_remove_range(size_t l)
{
    struct model *m = &model[l];
    uint64_t from = m->n ? m->entry[below(m->n)].seq - below(3) : 1, to = from + below(300), n = 0;
    for (size_t i = 0; i < m->n; i++)
        n += m->entry[i].seq >= from && m->entry[i].seq <= to;
    if (lane_remove_range(lane[l], from, to, &(struct lane_going){going, going_id, m}) != n ||
        untold.at != untold.n)
        die("how many");
}

static uint64_t defrag_cursor[LANES];

static void *move_piece(void *arg, void *piece)
{
    size_t n = *(size_t *)(void *)((char *)piece - 16);
    void *to = below(3) ? fuzz_alloc(n) : NULL;
    if (!to)
        return NULL;
    memcpy(to, piece, n);
    fuzz_free(piece);
    return to;
}

static bool stop_moving(void *arg)
{
    return below(30) == 0;
}

/* In parts, with other operations in between. */
static void op_defrag(size_t l)
{
    const struct lane_defrag how = {move_piece, stop_moving, NULL};
    if (!lane_defrag(lane[l], &how, &defrag_cursor[l]))
        defrag_cursor[l] = 0;
}

/* All at once; what is left goes on with its numbers. */
static void op_empty(size_t l)
{
    uint64_t last = lane_last_seq(lane[l]);
    struct lane *old = below(4) == 0 ? lane_empty(lane[l]) : NULL;
    if (!old)
        return;
    const char *wrong = lane_check(old);
    if (wrong)
        die(wrong);
    lane_free(old);
    model[l].n = 0;
    if (lane_last_seq(lane[l]) != last)
        die("the last sequence");
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
           {"push plain", op_push_plain, 6},
           {"remove range", op_remove_range, 2},
           {"meta", op_meta, 8},
           {"take", op_take, 20},
           {"put back", op_put_back, 10},
           {"holder ends", op_holder_ends, 2},
           {"extend or mark", op_extend_or_mark, 6},
           {"time", op_time, 10},
           {"expire", op_expire, 6},
           {"end leases", op_end_leases, 1},
           {"hand over", op_hand_over, 6},
           {"copy", op_copy, 1},
           {"empty", op_empty, 1},
           {"defrag", op_defrag, 3},
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
    lane_sweep(&env, UINT64_MAX);
    if (in_use)
        die("memory was not given back");
    if (!plain_stored)
        die("plain: none was ever stored");
    printf("%" PRIu64 " steps, %" PRIu64 " stored plain\n", steps, plain_stored);
    return 0;
}
