/* exhaust_replica - see exhaust_replica.h. */
#include "exhaust_replica.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "exchange.h"
#include "internal.h"
#include "tiny.h"

/* --- operations
 * ------------------------------------------------------------------------------------------------------ */

const struct operation OPERATION[OPERATIONS] = {
    {EV_APPEND, 'F', 0, 1, "amfx"},    {EV_APPEND, 'F', 0, 2, "am"},      {EV_APPEND, 'G', 0, 1, "ax"},
    {EV_APPEND, 'G', 0, 2, "af"},      {EV_EXPUNGE, 'F', 0, 1, "amx"},    {EV_EXPUNGE, 'F', 0, 2, "am"},
    {EV_EXPUNGE, 'G', 0, 1, "ax"},     {EV_EXPUNGE, 'G', 0, 2, "af"},     {EV_FLAG, 'F', 0, 1, "amxr"},
    {EV_FLAG, 'F', 0, 2, "a"},         {EV_FLAG, 'G', 0, 2, "ar"},        {EV_UNFLAG, 'F', 0, 1, "amxr"},
    {EV_UNFLAG, 'G', 0, 2, "ar"},      {EV_MOVE, 'F', 'G', 1, "ax"},      {EV_MOVE, 'G', 'F', 1, "ax"},
    {EV_MOVE, 'G', 'F', 2, "af"},      {EV_CREATE, 'F', 0, 0, "af"},      {EV_CREATE, 'H', 0, 0, "a"},
    {EV_DELETE, 'F', 0, 0, "afx"},     {EV_DELETE, 'G', 0, 0, "af"},      {EV_RENAME, 'F', 'H', 0, "af"},
    {EV_RENAME, 'G', 'H', 0, "af"},    {EV_RENAME, 'H', 'F', 0, "af"},    {EV_SUBSCRIBE, 'F', 0, 0, "ar"},
    {EV_UNSUBSCRIBE, 'F', 0, 0, "ar"}, {EV_ATTRIBUTE, 'F', 'x', 0, "ar"}, {EV_ATTRIBUTE, 'F', 'y', 0, "ar"},
    {EV_CREATE, 'G', 0, 0, "-"},
};

/* --- states by number
 * ------------------------------------------------------------------------------------------------ */

struct state *states;
uint32_t nstates;
static uint32_t states_room;

struct ship *ships;
static uint32_t nships, ships_room;
uint8_t flag_bit = ORSET_SEEN;

struct map {
    struct entry {
        uint64_t a, b;
        uint32_t value, second;
    } * v;
    size_t n, room;
};

static struct map by_content, by_bytes, delivered, issued;

static struct entry *map_at(struct map *m, uint64_t a, uint64_t b)
{
    if (m->n * 2 >= m->room) {
        struct map big = {.room = m->room ? m->room * 2 : 1024};
        big.v = calloc(big.room, sizeof *big.v);
        for (size_t i = 0; i < m->room; i++)
            if (m->v[i].value) {
                size_t j = (m->v[i].a ^ m->v[i].b * 0x9e3779b97f4a7c15ULL) & (big.room - 1);
                while (big.v[j].value)
                    j = (j + 1) & (big.room - 1);
                big.v[j] = m->v[i];
            }
        free(m->v);
        big.n = m->n;
        *m = big;
    }
    size_t j = (a ^ b * 0x9e3779b97f4a7c15ULL) & (m->room - 1);
    while (m->v[j].value && (m->v[j].a != a || m->v[j].b != b))
        j = (j + 1) & (m->room - 1);
    return &m->v[j];
}

static void map_put(struct map *m, struct entry *e, uint64_t a, uint64_t b, uint32_t value, uint32_t second)
{
    *e = (struct entry){a, b, value, second};
    m->n++;
}

static uint64_t scramble(uint64_t a, uint64_t b)
{
    uint64_t w[2] = {a, b};
    return orset_hash_words(w, 2).lo;
}

/* --- one replica's code at work
 * -------------------------------------------------------------------------------------- */

static uint8_t arena[8 << 20];
static size_t arena_used;

static void *bump(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0)
        return NULL;
    size_t *q = (size_t *)(void *)(arena + arena_used);
    arena_used += sizeof *q * 2 + ((n + 15) & ~(size_t)15);
    if (arena_used > sizeof arena)
        abort();
    q[0] = n;
    if (p) {
        size_t old = ((size_t *)p)[-2];
        memcpy(q + 2, p, old < n ? old : n);
    }
    return q + 2;
}

static const struct orset_alloc BUMP = {NULL, bump};
static struct tiny work;
static struct orset *os;

void fail(const char *what)
{
    fprintf(stderr, "FAILED: %s%s%s\n", what, os ? ": " : "", os ? orset_error_text(os) : "");
    exit(1);
}

static void must(int r)
{
    if (r < 0)
        fail(orset_error_name(r));
}

static void wake(unsigned site)
{
    struct orset_store s;
    struct orset_origin me = {site, 1000 + site};
    tiny_interface(&work, &s);
    arena_used = 0;
    os = NULL;
    must(orset_open(&os, &BUMP, &s, &me, NULL));
    must(orset_begin(os));
}

static uint32_t uid_for(uint32_t folder, const struct orset_message *m)
{
    return 1 + folder * 64 + m->facts.guid[0] * 8u + m->k;
}

/* The mailbox does at once what the state wants. A UID depends on the message alone, so that states do not
 * differ by the order of arrival; UIDs have their own test. */
static void follow(void)
{
    struct orset_todo t = {.at_len = 0};
    while (orset_todo_next(os, &t) > 0) {
        switch (t.kind) {
        case ORSET_TODO_FOLDER: must(orset_done_folder(os, t.folder)); break;
        case ORSET_TODO_PLACE:
            must(orset_done_place(os, t.message.folder, t.message.dot, uid_for(t.message.folder, &t.message),
                                  &t.flags));
            break;
        case ORSET_TODO_FLAGS: must(orset_done_flags(os, t.folder, t.uid, &t.flags)); break;
        case ORSET_TODO_REMOVE: must(orset_done_remove(os, t.folder, t.uid)); break;
        case ORSET_TODO_RENUMBER: fail("nobody settles UIDs here"); break;
        case ORSET_TODO_SUBSCRIPTION: must(orset_done_subscription(os, t.name, t.name_len)); break;
        case ORSET_TODO_ATTRIBUTE: must(orset_done_attribute(os, t.folder, t.name, t.name_len)); break;
        }
    }
}

struct showing {
    uint64_t sum;
    unsigned seen[64], n;
    bool wrong;
};

static int show(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct showing *s = arg;
    unsigned id = m->facts.guid[0] * 100u + m->k;
    (void)own;
    for (unsigned i = 0; i < s->n; i++)
        if (s->seen[i] == id)
            return 0;
    s->seen[s->n++] = id;
    return 0;
}

struct pick {
    unsigned guid;
    struct orset_message m;
    bool found;
};

static int pick_one(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct pick *p = arg;
    (void)own;
    if (m->facts.guid[0] == p->guid && (!p->found || m->k < p->m.k)) {
        p->m = *m;
        p->found = true;
    }
    return 0;
}

static struct orset_dot some_dot(uint32_t folder, unsigned id);

static uint64_t shown_here(void)
{
    const uint8_t *v;
    size_t n;
    char name[] = "\0F";
    uint64_t all;
    int got = orset_attribute_get(os, ORSET_NO_FOLDER, "k", 1, &v, &n);
    all = shown_rest(orset_subscribed(os, name, 2), got > 0 ? (char)v[0] : 0);
    for (uint32_t i = 1; i < orset_folders(os); i++) {
        struct orset_folder f;
        struct showing s = {.sum = 0};
        must(orset_folder_get(os, i, &f));
        if (!f.live)
            continue;
        must(orset_each_message(os, i, show, &s));
        for (unsigned j = 0; j < s.n; j++) {
            struct orset_flags flags;
            must(orset_message_flags(os, i, some_dot(i, s.seen[j]), &flags));
            s.sum = shown_message(s.sum, s.seen[j] / 100, s.seen[j] % 100, flags.system & flag_bit);
        }
        all += shown_folder(f.named ? f.name[1] : 0, s.sum);
    }
    return all;
}

struct wanted {
    unsigned id;
    struct orset_dot dot;
};

static int is_wanted(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct wanted *w = arg;
    (void)own;
    w->dot = m->dot;
    return m->facts.guid[0] * 100u + m->k == w->id;
}

static struct orset_dot some_dot(uint32_t folder, unsigned id)
{
    struct wanted w = {id, {0, 0}};
    orset_each_message(os, folder, is_wanted, &w);
    return w.dot;
}

/* Ends the transaction and gives the state its number. */
static uint32_t sleep_as_state(void)
{
    /* Which mailbox shows a folder is settled by the commit; then there may be mails to place anew. */
    must(orset_commit(os));
    must(orset_begin(os));
    follow();
    must(orset_commit(os));
    struct state s = {.shown = shown_here(), .remembered = (uint32_t)orset_remembered(os)};
    orset_digest(os, s.digest);
    tiny_compact(&work);
    struct orset_sum rows = orset_hash(work.row, work.n * sizeof work.row[0]),
                     data = orset_hash(work.data, work.used);
    orset_sum_add(&rows, data);
    rows.hi ^= scramble(rows.lo, data.hi);
    struct entry *e = map_at(&by_content, rows.lo, rows.hi);
    if (e->value)
        return e->value;
    if (nstates == states_room) {
        states_room = states_room ? states_room * 2 : 1024;
        states = realloc(states, states_room * sizeof *states);
    }
    if (nstates == 0)
        nstates = 1; /* 0 is no state */
    s.n = work.n;
    s.used = work.used;
    s.block = malloc(s.n * sizeof work.row[0] + s.used);
    memcpy(s.block, work.row, s.n * sizeof work.row[0]);
    memcpy(s.block + s.n * sizeof work.row[0], work.data, s.used);
    states[nstates] = s;
    map_put(&by_content, e, rows.lo, rows.hi, nstates, 0);
    return nstates++;
}

static void load(uint32_t state)
{
    const struct state *s = &states[state];
    work.n = s->n;
    work.used = s->used;
    memcpy(work.row, s->block, s->n * sizeof work.row[0]);
    memcpy(work.data, s->block + s->n * sizeof work.row[0], s->used);
}

uint32_t deliver(unsigned site, uint32_t state, uint32_t ship)
{
    uint64_t key = scramble((uint64_t)state << 32 | ship, site);
    struct entry *e = map_at(&delivered, key, 1);
    if (e->value)
        return e->value;
    struct orset_batch_result r;
    load(state);
    wake(site);
    must(orset_batch_apply(os, ships[ship].site, ships[ship].bytes, ships[ship].len, &r));
    if (r.applied == 0)
        fail("an op that is new was taken for known");
    /* Delivered twice: nothing changes. */
    must(orset_batch_apply(os, ships[ship].site, ships[ship].bytes, ships[ship].len, &r));
    if (r.applied != 0)
        fail("an op was applied twice");
    follow();
    uint32_t to = sleep_as_state();
    map_put(&delivered, map_at(&delivered, key, 1), key, 1, to, 0);
    return to;
}

/* The state after site took over what the giver's state has. */
uint32_t pull(unsigned site, uint32_t state, unsigned giver, uint32_t giver_state)
{
    static uint8_t wire[65536];
    uint64_t key = scramble((uint64_t)state << 32 | giver_state, site * 8 + giver);
    struct entry *e = map_at(&delivered, key, 3);
    if (e->value)
        return e->value;
    /* Two sites at work: one block and one arena, so each message wakes its site from the numbered state. */
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
    map_put(&delivered, map_at(&delivered, key, 3), key, 3, to, 0);
    return to;
}

/* --- issuing
 * ---------------------------------------------------------------------------------------------------------
 */

/* Folder by its name here; its index in this state. */
static uint32_t named(char c)
{
    char name[2] = {0, c};
    return orset_folder_by_name(os, name, 2);
}

static bool pick(char folder, unsigned guid, struct pick *p)
{
    uint32_t home = named(folder);
    p->guid = guid;
    p->found = false;
    for (uint32_t i = 1; home != ORSET_NO_FOLDER && i < orset_folders(os) && !p->found; i++) {
        struct orset_folder f;
        must(orset_folder_get(os, i, &f));
        if (f.live && f.home == home)
            must(orset_each_message(os, i, pick_one, p));
    }
    return p->found;
}

static int add(char folder, unsigned guid, struct event *e)
{
    uint32_t f = named(folder);
    struct orset_facts facts = {
        .guid = {(uint8_t)guid}, .sha256 = {(uint8_t)guid}, .received = 1, .saved = 1, .size = 1};
    struct orset_flags none = {0};
    struct orset_dot d;
    struct orset_message m;
    if (f == ORSET_NO_FOLDER)
        return 0;
    /* A UID that no other has, until k is known. */
    must(orset_local_add(os, f, 60000, &facts, &none, &d));
    must(orset_message_get(os, f, d, &m));
    must(orset_done_renumber(os, f, 60000, uid_for(f, &m)));
    e->guid = guid;
    e->k = m.k;
    return 1;
}

static int flag(const struct operation *o, bool on)
{
    struct pick p;
    struct orset_flags now;
    if (!pick(o->name, o->guid, &p))
        return 0;
    must(orset_message_flags(os, p.m.folder, p.m.dot, &now));
    if (!!(now.system & flag_bit) == on)
        return 0;
    now.system ^= flag_bit;
    struct orset_folder f;
    must(orset_folder_get(os, p.m.folder, &f));
    must(orset_local_flags(os, f.home, p.m.uid, &now, NULL));
    return 1;
}

static int remove_one(const struct operation *o, const struct pick *p)
{
    struct orset_folder f;
    (void)o;
    must(orset_folder_get(os, p->m.folder, &f));
    must(orset_local_expunge(os, f.home, p->m.uid));
    return 1;
}

/* 1 when the operation is possible here and was done. */
static int act(const struct operation *o, struct event *e)
{
    char name[2] = {0, o->name}, other[2] = {0, o->other};
    uint8_t guid[16] = {9};
    uint32_t folder;
    struct pick p;
    e->kind = o->kind;
    switch (o->kind) {
    case EV_APPEND: return add(o->name, o->guid, e);
    case EV_MOVE: return pick(o->name, o->guid, &p) && add(o->other, o->guid, e) && remove_one(o, &p);
    case EV_EXPUNGE: return pick(o->name, o->guid, &p) && remove_one(o, &p);
    case EV_FLAG: return flag(o, true);
    case EV_UNFLAG: return flag(o, false);
    case EV_CREATE:
        e->name = o->name;
        return named(o->name) == ORSET_NO_FOLDER && orset_local_create(os, name, 2, 5, guid, &folder) == 0;
    case EV_DELETE: return named(o->name) != ORSET_NO_FOLDER && orset_local_delete(os, named(o->name)) == 0;
    case EV_RENAME:
        e->name = o->other;
        return named(o->name) != ORSET_NO_FOLDER && named(o->other) == ORSET_NO_FOLDER &&
               orset_local_rename(os, named(o->name), other, 2) == 0;
    case EV_SUBSCRIBE: return orset_local_subscribe(os, name, 2, true) == 0;
    case EV_UNSUBSCRIBE: return orset_local_subscribe(os, name, 2, false) == 0;
    case EV_ATTRIBUTE:
        e->name = o->other;
        return orset_local_attribute(os, ORSET_NO_FOLDER, "k", 1, (const uint8_t *)&o->other, 1) == 0;
    }
    return 0;
}

/* The operation at this replica: the new state and what it ships, or NONE. */
uint32_t issue(unsigned site, uint32_t state, unsigned operation, uint32_t *ship_r)
{
    uint64_t key = scramble((uint64_t)state << 32 | operation, site);
    struct entry *e = map_at(&issued, key, 2);
    if (e->value) {
        *ship_r = e->second;
        return e->value;
    }
    struct ship s = {.site = site};
    load(state);
    wake(site);
    s.event.number = orset_vector_get(os, orset_self(os)) + 1;
    if (!act(&OPERATION[operation], &s.event)) {
        map_put(&issued, map_at(&issued, key, 2), key, 2, NONE, 0);
        return NONE;
    }
    follow();
    s.event.clock = os->clock;
    for (uint32_t i = 1; i < os->nfolders && s.nfolders < FOLDERS_MAX; i++) {
        struct orset_folder f;
        must(orset_folder_get(os, i, &f));
        s.folder[s.nfolders].site = f.id_origin.site;
        s.folder[s.nfolders].counter = f.id_counter;
        s.folder[s.nfolders++].clock = os->folder[i]->name_stamp.clock;
    }
    struct orset_buf b = {.alloc = &BUMP};
    uint64_t next;
    must(orset_batch_make(os, s.event.number, 1 << 20, NULL, 0, &b, &next));
    uint32_t to = sleep_as_state();
    struct orset_sum h = orset_hash(b.data, b.len);
    struct entry *known = map_at(&by_bytes, h.lo ^ to, h.hi);
    if (!known->value) {
        if (nships == ships_room) {
            ships_room = ships_room ? ships_room * 2 : 1024;
            ships = realloc(ships, ships_room * sizeof *ships);
        }
        nships += nships == 0;
        s.bytes = malloc(b.len);
        s.len = (uint32_t)b.len;
        memcpy(s.bytes, b.data, b.len);
        ships[nships] = s;
        map_put(&by_bytes, known, h.lo ^ to, h.hi, nships, 0);
        nships++;
        known = map_at(&by_bytes, h.lo ^ to, h.hi);
    }
    *ship_r = known->value;
    map_put(&issued, map_at(&issued, key, 2), key, 2, to, *ship_r);
    return to;
}

uint32_t first_state(unsigned site)
{
    work.n = work.used = 0;
    wake(site);
    return sleep_as_state();
}

void forget_all(void)
{
    struct map *maps[] = {&by_content, &by_bytes, &delivered, &issued};
    for (unsigned i = 0; i < 4; i++) {
        free(maps[i]->v);
        memset(maps[i], 0, sizeof *maps[i]);
    }
    for (uint32_t i = 1; i < nstates; i++)
        free(states[i].block);
    for (uint32_t i = 1; i < nships; i++)
        free(ships[i].bytes);
    nstates = nships = 0;
}
