/* exhaust_replica - see exhaust_replica.h. */
#include "tests/unit/orset/exhaust_replica.h"

#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "tests/unit/orset/exhaust_mailbox.h"
#include "tests/unit/orset/exhaust_map.h"
#include "dovecot-plugin/orset/base/handle.h"
#include "dovecot-plugin/orset/state/epoch.h"

/* --- states by number
 * ---------------------------------------------------------------------------------------------- */

struct state {
    uint8_t *block; /* compact rows, then data */
    uint16_t n, used;
    struct seen seen;
};

static struct state *states; /* from 1 on */
static uint32_t nstates, states_room;
static struct seen *ends; /* by number | LAST */
static uint32_t nends, ends_room;
#define LAST 0x80000000U

struct ship *ships;
static uint32_t nships, ships_room, nops;
bool same_ops_once = true;
struct work_done work_done;

/* of_state: content to state; of_op: what a batch says to op. The rest: (state, event) to what
 * it led to. */
static struct map of_state, of_op, stepped, ended;
static struct pool pool;

/* Room for one more of an array that begins at 1. */
static void *one_more(void *v, uint32_t *n, uint32_t *room, size_t size)
{
    *n += *n == 0;
    if (*n < *room)
        return v;
    *room = *room ? *room * 2 : 1024;
    if (!(v = realloc(v, *room * size)))
        abort();
    return v;
}

const struct seen *seen_in(uint32_t state)
{
    return state & LAST ? &ends[state & ~LAST] : &states[state].seen;
}

static struct seen look(void)
{
    struct seen s = {.shown = shown_here(), .remembered = (uint32_t)orset_remembered(os)};
    orset_digest(os, s.digest);
    return s;
}

/* Reduction 3: states differ by no accounts of the past that no walk reads. All own ops are
 * confirmed, as if a peer had just said so: only a new epoch asks which are not (epoch.c). And
 * nobody brought anything into the shared tables: only a full quota asks who did (quota.c). */
static void settle_accounts(void)
{
    const struct origin *me = &os->origin[os->self];
    must(orset_epoch_confirmed(os, me->counter, me->chain));
    for (uint16_t i = 0; i < os->norigins; i++) {
        memset(os->origin[i].brought, 0, sizeof os->origin[i].brought);
        os->origin[i].dirty = true;
    }
}

/* Ends the transaction and gives the state its number. */
static uint32_t sleep_as_state(void)
{
    if (same_ops_once)
        settle_accounts();
    /* Which mailbox shows a folder is settled by the commit; then there may be mails to place
     * anew. */
    must(orset_commit(os));
    must(orset_begin(os));
    follow();
    must(orset_commit(os));
    tiny_compact(&work);
    struct orset_sum rows = orset_hash(work.row, work.n * sizeof work.row[0]),
                     data = orset_hash(work.data, work.used);
    uint64_t w[4] = {rows.lo, rows.hi, data.lo, data.hi};
    struct orset_sum both = orset_hash_words(w, 4);
    struct entry *e = map_at(&of_state, both.lo, both.hi);
    if (e->value)
        return e->value;
    states = one_more(states, &nstates, &states_room, sizeof *states);
    struct state s = {.n = work.n, .used = work.used, .seen = look()};
    s.block = pool_take(&pool, s.n * sizeof work.row[0] + s.used);
    memcpy(s.block, work.row, s.n * sizeof work.row[0]);
    memcpy(s.block + s.n * sizeof work.row[0], work.data, s.used);
    states[nstates] = s;
    map_put(&of_state, both.lo, both.hi, nstates, 0);
    return nstates++;
}

/* Nothing comes after this: neither rows nor a mailbox are needed. */
static uint32_t sleep_for_good(void)
{
    ends = one_more(ends, &nends, &ends_room, sizeof *ends);
    ends[nends] = look();
    return nends++ | LAST;
}

static void load(uint32_t state)
{
    const struct state *s = &states[state];
    work.n = s->n;
    work.used = s->used;
    memcpy(work.row, s->block, s->n * sizeof work.row[0]);
    memcpy(work.data, s->block + s->n * sizeof work.row[0], s->used);
}

static void apply(const struct ship *s, bool is_new, const char *otherwise)
{
    struct orset_batch_result r;
    must(orset_batch_apply(os, s->site, s->bytes, s->len, &r));
    if ((r.applied > 0) != is_new)
        fail(otherwise);
}

static uint32_t arrive(unsigned site, uint32_t state, const struct ship *s, bool last)
{
    work_done.applied++;
    load(state);
    wake(site);
    apply(s, true, "an op that is new was taken for known");
    if (last)
        return sleep_for_good();
    apply(s, false, "an op was applied twice");
    follow();
    return sleep_as_state();
}

/* A step that another batch with the same op led to is now and then done again: the vector
 * around an op must not count. */
static void recheck(unsigned site, uint32_t state, const struct ship *s, uint32_t to)
{
    static unsigned turn;
    if (++turn % 256)
        return;
    work_done.rechecked++;
    uint32_t again = arrive(site, state, s, to & LAST);
    const struct seen *a = seen_in(again), *b = seen_in(to);
    if (to & LAST ? a->shown != b->shown || memcmp(a->digest, b->digest, 16) != 0 : again != to)
        fail("two batches with one op lead to different states");
}

enum { STEP_DELIVER = 1, STEP_ISSUE, STEP_PULL };

uint32_t deliver(unsigned site, uint32_t state, uint32_t ship, bool last)
{
    const struct ship *s = &ships[ship];
    struct map *m = last ? &ended : &stepped;
    uint64_t a = (uint64_t)state << 32 | (same_ops_once ? s->op : ship),
             b = STEP_DELIVER << 8 | site;
    const struct entry *e = map_at(m, a, b);
    uint32_t to = e->value;
    if (to) {
        if (e->second != ship)
            recheck(site, state, s, to);
        return to;
    }
    to = arrive(site, state, s, last);
    map_put(m, a, b, to, ship);
    return to;
}

/* The state after site took over what the giver's state has. */
uint32_t pull(unsigned site, uint32_t state, unsigned giver, uint32_t giver_state)
{
    static uint8_t wire[65536];
    uint64_t key_a = (uint64_t)state << 32 | giver_state,
             key_b = STEP_PULL << 8 | site << 4 | giver;
    const struct entry *e = map_at(&stepped, key_a, key_b);
    if (e->value)
        return e->value;
    work_done.pulled++;
    /* Two sites at work: one block and one arena, so each message wakes its site from the
     * numbered state. */
    struct orset_exchange *x = NULL;
    struct tiny asker, kept;
    size_t asker_arena;
    struct orset *asking;
    struct orset_buf q = {.alloc = &BUMP}, a = {.alloc = &BUMP};
    int r;
    load(state);
    asker = work;
    struct orset_store s;
    struct orset_origin me = {site, 1000 + site};
    tiny_interface(&asker, &s);
    arena_used = 0;
    must(orset_open(&os, &BUMP, &s, &me, NULL));
    asking = os;
    must(orset_ask_hello(os, giver, &x, &q));
    do {
        asker_arena = arena_used;
        load(giver_state);
        kept = work;
        struct orset_origin other = {giver, 1000 + giver};
        tiny_interface(&kept, &s);
        must(orset_open(&os, &BUMP, &s, &other, NULL));
        must(orset_begin(os));
        a.data = NULL;
        a.len = a.room = 0;
        must(orset_answer(os, site, q.data, q.len, &a));
        size_t len = a.len;
        if (len > sizeof wire)
            abort();
        memcpy(wire, a.data, len);
        arena_used = asker_arena;
        os = asking;
        must(orset_begin(os));
        q.data = NULL;
        q.len = q.room = 0;
        must(r = orset_take(os, x, wire, len, &q));
        if (r == ORSET_OK)
            must(orset_commit(os));
    } while (r == ORSET_OK);
    /* Go on in the common block, in the open transaction. */
    must(orset_commit(os));
    work = asker;
    wake(site);
    follow();
    uint32_t to = sleep_as_state();
    map_put(&stepped, key_a, key_b, to, 0);
    return to;
}

/* Reduction 2: what a batch says is its first number, its ops, and which origin each index in
 * them means. The vector's numbers and hashes are left out: they say how far its sender was. */
static uint32_t number_op(const struct orset_buf *batch)
{
    struct orset_reader r = {batch->data, batch->data + batch->len, false};
    uint64_t w[2 * SITES + 4];
    unsigned n = 0;
    orset_read_u8(&r);
    for (uint64_t i = orset_read_num(&r, SITES); i > 0; i--) {
        w[n++] = orset_read_u64(&r);
        w[n++] = orset_read_u64(&r);
        orset_read_num(&r, UINT64_MAX);
        orset_read_u64(&r);
    }
    w[n++] = orset_read_num(&r, SITES);
    w[n++] = orset_read_num(&r, 0); /* no modseqs */
    w[n++] = orset_read_num(&r, UINT64_MAX);
    orset_read_u64(&r);
    if (r.bad)
        fail("a batch cannot be read");
    struct orset_sum ops = orset_hash(r.at, (size_t)(r.end - r.at)), all;
    w[n++] = ops.lo ^ (ops.hi << 1 | ops.hi >> 63);
    all = orset_hash_words(w, n);
    struct entry *e = map_at(&of_op, all.lo, all.hi);
    if (e->value)
        return e->value;
    map_put(&of_op, all.lo, all.hi, ++nops, 0);
    return nops;
}

static uint32_t add_ship(struct ship *s)
{
    struct orset_buf b = {.alloc = &BUMP};
    uint64_t next;
    s->event.clock = os->clock;
    for (uint32_t i = 1; i < os->nfolders && s->nfolders < FOLDERS_MAX; i++) {
        struct orset_folder f;
        must(orset_folder_get(os, i, &f));
        s->folder[s->nfolders].site = f.id_origin.site;
        s->folder[s->nfolders].counter = f.id_counter;
        s->folder[s->nfolders++].clock = os->folder[i]->name_stamp.clock;
    }
    must(orset_batch_make(os, s->event.number, 1 << 20, NULL, 0, &b, &next));
    s->op = number_op(&b);
    s->len = (uint32_t)b.len;
    s->bytes = pool_take(&pool, b.len);
    memcpy(s->bytes, b.data, b.len);
    ships = one_more(ships, &nships, &ships_room, sizeof *ships);
    ships[nships] = *s;
    return nships++;
}

uint32_t issue(unsigned site, uint32_t state, unsigned operation, bool last, uint32_t *ship_r)
{
    struct map *m = last ? &ended : &stepped;
    uint64_t a = (uint64_t)state << 32 | operation, b = STEP_ISSUE << 8 | site;
    const struct entry *e = map_at(m, a, b);
    *ship_r = e->second;
    if (e->value)
        return e->value;
    struct ship s = {.site = site};
    work_done.issued++;
    load(state);
    wake(site);
    s.event.number = orset_vector_get(os, orset_self(os)) + 1;
    if (!act(&OPERATION[operation], &s.event)) {
        map_put(m, a, b, NONE, 0);
        return NONE;
    }
    if (!last)
        follow();
    *ship_r = add_ship(&s);
    uint32_t to = last ? sleep_for_good() : sleep_as_state();
    map_put(m, a, b, to, *ship_r);
    return to;
}

uint32_t first_state(unsigned site)
{
    work.n = work.used = 0;
    wake(site);
    return sleep_as_state();
}

static void forget_ends(void)
{
    map_clear(&ended);
    nends = 0;
}

void forget_all(void)
{
    map_clear(&of_state);
    map_clear(&of_op);
    map_clear(&stepped);
    forget_ends();
    pool_clear(&pool);
    nstates = nships = nops = 0;
}

#define ENDS_MOST 40000
#define POOL_MOST ((size_t)200 << 20)

bool forget_if_full(void)
{
    if (pool_bytes(&pool) > POOL_MOST || nships > 200000) {
        forget_all();
        return true;
    }
    if (nends > ENDS_MOST)
        forget_ends();
    return false;
}
