/* core - life of a state: open, transaction, origins and their numbers, keywords. */
#include "dovecot-plugin/orset/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define META_KEY "self"

const char *orset_error_text(const struct orset *os)
{
    return os->error;
}

int orset_fail(struct orset *os, int error, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(os->error, sizeof os->error, format, ap);
    va_end(ap);
    if (error == ORSET_E_MEMORY || error == ORSET_E_STORAGE)
        os->broken = true;
    return error;
}

int orset_storage_fail(struct orset *os, const char *what)
{
    return orset_fail(os, ORSET_E_STORAGE,
                      "%s: the store failed; roll back, look at the disk and its log", what);
}

int orset_corrupt(struct orset *os, const char *what)
{
    if (os->store.corrupt)
        os->store.corrupt(os->store.ctx, what);
    return orset_fail(os, ORSET_E_STORAGE, "the state's rows cannot be true: %s", what);
}

void *orset_mem(struct orset *os, void *p, size_t n)
{
    void *q = os->alloc.resize(os->alloc.ctx, p, n);
    if (!q && n > 0)
        orset_fail(os, ORSET_E_MEMORY, "no memory for %zu bytes; roll back and try again", n);
    return q;
}

int orset_need_transaction(struct orset *os)
{
    if (os->broken)
        return orset_fail(os, ORSET_E_STORAGE,
                          "an earlier call of this transaction failed; roll back first");
    if (!os->open)
        return orset_fail(os, ORSET_E_LIMIT,
                          "a change outside a transaction; call orset_begin first");
    return 0;
}

/* --- rows
 * ---------------------------------------------------------------------------------------------- */

int orset_row_put(struct orset *os, enum orset_table t, const struct orset_key *k,
                  const struct orset_buf *v)
{
    if (v && v->failed)
        return orset_fail(os, ORSET_E_MEMORY, "no memory for a row; roll back and try again");
    if (os->store.put(os->store.ctx, t, k->b, k->n, v && v->len ? v->data : (const void *)"",
                      v ? v->len : 0) < 0)
        return orset_storage_fail(os, "put");
    return 0;
}

int orset_row_del(struct orset *os, enum orset_table t, const struct orset_key *k)
{
    return os->store.del(os->store.ctx, t, k->b, k->n) < 0 ? orset_storage_fail(os, "delete") : 0;
}

int orset_row_get(struct orset *os, enum orset_table t, const struct orset_key *k,
                  struct orset_reader *r)
{
    const uint8_t *v;
    size_t n;
    int got = os->store.get(os->store.ctx, t, k->b, k->n, &v, &n);
    if (got < 0)
        return orset_storage_fail(os, "get");
    *r = got ? orset_reader_of(v, n) : (struct orset_reader){NULL, NULL, true};
    return got;
}

void orset_key_dot(struct orset_key *k, struct orset_dot d)
{
    orset_key_num(k, d.origin);
    orset_key_num(k, d.counter);
}

/* A state that is open, or about to be, has an origin and a folder: index 0 is always one. */
static struct orset_dot known_dot(const struct orset *os, struct orset_reader *r, uint64_t origin,
                                  uint64_t counter)
{
    r->bad |= origin >= os->norigins;
    return r->bad ? (struct orset_dot){0, 0} : (struct orset_dot){(uint16_t)origin, counter};
}

struct orset_dot orset_key_read_dot(const struct orset *os, struct orset_reader *r)
{
    uint64_t origin = orset_key_read(r, UINT16_MAX), counter = orset_key_read(r, ORSET_COUNTER_MAX);
    return known_dot(os, r, origin, counter);
}

struct orset_dot orset_row_read_dot(const struct orset *os, struct orset_reader *r)
{
    uint64_t origin = orset_read_num(r, UINT16_MAX), counter = orset_read_num(r, ORSET_COUNTER_MAX);
    return known_dot(os, r, origin, counter);
}

uint32_t orset_key_read_folder(const struct orset *os, struct orset_reader *r)
{
    uint32_t folder = (uint32_t)orset_key_read(r, ORSET_FOLDERS_MAX);
    r->bad |= folder >= os->nfolders;
    return r->bad ? 0 : folder;
}

/* --- origins and clocks
 * ----------------------------------------------------------------------------------------- */

int orset_find_origin(const struct orset *os, struct orset_origin id)
{
    for (int i = 0; i < os->norigins; i++)
        if (os->origin[i].id.site == id.site && os->origin[i].id.epoch == id.epoch)
            return i;
    return -1;
}

int orset_intern_origin(struct orset *os, struct orset_origin id)
{
    int i = orset_find_origin(os, id);
    if (i >= 0)
        return i;
    if (id.site == 0 || id.epoch == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "an origin with site or epoch 0");
    if (os->norigins >= ORSET_ORIGINS_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "more than %d origins; remove a site's old epochs",
                          ORSET_ORIGINS_MAX);
    struct origin *o = orset_mem(os, os->origin, (os->norigins + 1u) * sizeof *o);
    if (!o)
        return ORSET_E_MEMORY;
    os->origin = o;
    uint64_t words[2] = {id.site, id.epoch};
    uint8_t b[16];
    for (int n = 0; n < 16; n++)
        b[n] = (uint8_t)(words[n / 8] >> 8 * (n % 8));
    o[os->norigins] = (struct origin){.id = id, .hash = orset_hash(b, 16).lo, .dirty = true};
    return os->norigins++;
}

bool orset_covered(const struct orset *os, struct orset_dot d)
{
    return d.counter <= os->origin[d.origin].counter;
}

bool orset_same_dot(struct orset_dot a, struct orset_dot b)
{
    return a.origin == b.origin && a.counter == b.counter;
}

static int order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

int orset_dot_order(const struct orset *os, struct orset_dot a, struct orset_dot b)
{
    const struct orset_origin *x = &os->origin[a.origin].id, *y = &os->origin[b.origin].id;
    int c = order(x->site, y->site);
    if (!c)
        c = order(x->epoch, y->epoch);
    return c ? c : order(a.counter, b.counter);
}

int orset_stamp_order(struct stamp a, struct stamp b)
{
    int c = order(a.clock, b.clock);
    if (!c)
        c = order(a.site, b.site);
    return c ? c : order(a.epoch, b.epoch);
}

/* A stamp from outside. A clock far ahead of all others would be final for its register, and one
 * at the end of the range would leave no successor; both are refused (F32). */
int orset_see_clock(struct orset *os, uint64_t clock)
{
    if (clock > ORSET_CLOCK_MAX || (clock > os->clock && clock - os->clock > ORSET_CLOCK_JUMP))
        return orset_fail(os, ORSET_E_MALFORMED,
                          "Lamport clock %llu, but the highest seen is %llu: a peer counts wrongly",
                          (unsigned long long)clock, (unsigned long long)os->clock);
    return 0;
}

struct stamp orset_next_stamp(struct orset *os)
{
    const struct orset_origin *me = &os->origin[os->self].id;
    return (struct stamp){os->clock + 1, me->site, me->epoch};
}

uint16_t orset_origins(const struct orset *os)
{
    return os->norigins;
}

struct orset_origin orset_origin_get(const struct orset *os, uint16_t i)
{
    return i < os->norigins ? os->origin[i].id : (struct orset_origin){0, 0};
}

uint64_t orset_vector_get(const struct orset *os, uint16_t i)
{
    return i < os->norigins ? os->origin[i].counter : 0;
}

uint16_t orset_self(const struct orset *os)
{
    return os->self;
}

uint64_t orset_left_out(const struct orset *os)
{
    return os->left_out;
}

uint64_t orset_modseqs_risen(const struct orset *os)
{
    return os->modseqs_risen;
}

size_t orset_keywords(const struct orset *os)
{
    return os->nkeywords;
}

bool orset_must_roll_back(const struct orset *os)
{
    return os->broken;
}

uint64_t orset_remembered(const struct orset *os)
{
    return os->remembered;
}

/* --- keywords
 * ---------------------------------------------------------------------------------------------- */

static uint64_t keyword_hash(const char *name, size_t len)
{
    uint8_t low[ORSET_KEYWORD_MAX];
    for (size_t i = 0; i < len; i++)
        low[i] = (uint8_t)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    return orset_hash(low, len).lo;
}

static bool same_keyword(const struct keyword *k, const char *name, size_t len, uint64_t hash)
{
    if (k->hash != hash || k->len != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        char a = k->name[i], b = name[i];
        if ((a >= 'A' && a <= 'Z' ? a + 32 : a) != (b >= 'A' && b <= 'Z' ? b + 32 : b))
            return false;
    }
    return true;
}

static int keyword_cache(struct orset *os, const char *name, size_t len, uint64_t hash)
{
    struct keyword *k = orset_mem(os, os->keyword, (os->nkeywords + 1u) * sizeof *k);
    if (!k)
        return ORSET_E_MEMORY;
    os->keyword = k;
    char *copy = orset_mem(os, NULL, len + 1);
    if (!copy)
        return ORSET_E_MEMORY;
    memcpy(copy, name, len);
    copy[len] = '\0';
    k[os->nkeywords] = (struct keyword){copy, len, hash};
    return os->nkeywords++;
}

int orset_keyword_find(const struct orset *os, const char *name, size_t len)
{
    if (len > ORSET_KEYWORD_MAX)
        return -1;
    uint64_t hash = keyword_hash(name, len);
    for (int i = 0; i < os->nkeywords; i++)
        if (same_keyword(&os->keyword[i], name, len, hash))
            return i;
    return -1;
}

int orset_keyword(struct orset *os, const char *name, size_t len)
{
    int i = orset_keyword_find(os, name, len);
    if (i < 0 && os->nkeywords >= ORSET_MAKE_KEYWORDS_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "this user has %d keywords, and a site makes no more",
                          os->nkeywords);
    return i >= 0 ? i : orset_keyword_make(os, name, len);
}

int orset_keyword_make(struct orset *os, const char *name, size_t len)
{
    if (len == 0 || len > ORSET_KEYWORD_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "a keyword of %zu bytes; 1 to %d are possible", len,
                          ORSET_KEYWORD_MAX);
    int i = orset_keyword_find(os, name, len);
    if (i >= 0)
        return i;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (os->nkeywords >= ORSET_KEYWORDS_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "keyword %.*s: there are %d already", (int)len, name,
                          ORSET_KEYWORDS_MAX);
    struct orset_key key = {0};
    orset_key_num(&key, os->nkeywords);
    if (os->store.put(os->store.ctx, ORSET_T_KEYWORD, key.b, key.n, name, len) < 0)
        return orset_storage_fail(os, "keyword");
    return keyword_cache(os, name, len, keyword_hash(name, len));
}

const char *orset_keyword_name(const struct orset *os, uint16_t i, size_t *len)
{
    if (i >= os->nkeywords)
        return NULL;
    *len = os->keyword[i].len;
    return os->keyword[i].name;
}

uint64_t orset_flag_hash(const struct orset *os, uint16_t flag)
{
    return flag < ORSET_SYSTEM_FLAGS ? flag
                                     : os->keyword[flag - ORSET_SYSTEM_FLAGS].hash | 1ULL << 63;
}

/* --- reading and writing the caches
 * ------------------------------------------------------------------------------ */

static int read_origin(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct orset *os = arg;
    struct orset_reader r = orset_reader_of(v, len);
    struct orset_origin id;
    id.site = orset_read_u64(&r);
    id.epoch = orset_read_u64(&r);
    uint64_t counter = orset_read_num(&r, ORSET_COUNTER_MAX), chain = orset_read_u64(&r);
    uint64_t ahead = orset_read_num(&r, UINT64_MAX);
    uint32_t brought[ORSET_QUOTAS];
    for (int q = 0; q < ORSET_QUOTAS; q++)
        brought[q] = (uint32_t)orset_read_num(&r, UINT32_MAX);
    struct orset_reader k = orset_reader_of(key, key_len);
    uint64_t index = orset_key_read(&k, ORSET_ORIGINS_MAX);
    if (r.bad || k.bad || index != os->norigins || orset_find_origin(os, id) >= 0 || id.site == 0 ||
        id.epoch == 0 || os->norigins >= ORSET_ORIGINS_MAX)
        return orset_corrupt(os, "an origin's row");
    int i = orset_intern_origin(os, id);
    if (i < 0)
        return -1;
    memcpy(os->origin[i].brought, brought, sizeof brought);
    os->origin[i].counter = counter;
    os->origin[i].chain = chain;
    os->origin[i].ahead = ahead;
    os->origin[i].dirty = false;
    return 0;
}

static int read_keyword(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct orset *os = arg;
    struct orset_reader k = orset_reader_of(key, key_len);
    uint64_t index = orset_key_read(&k, ORSET_KEYWORDS_MAX);
    if (k.bad || index != os->nkeywords || index >= ORSET_KEYWORDS_MAX || len == 0 ||
        len > ORSET_KEYWORD_MAX)
        return orset_corrupt(os, "a keyword's row");
    return keyword_cache(arg, (const char *)v, len, keyword_hash((const char *)v, len)) < 0 ? -1
                                                                                            : 0;
}

static int any_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    (void)arg;
    (void)key;
    (void)key_len;
    (void)v;
    (void)len;
    return 1;
}

/* 1: read; 0: there is no state yet. */
static int read_caches(struct orset *os)
{
    struct orset_key k = {0};
    struct orset_reader r;
    orset_key_put(&k, META_KEY, sizeof META_KEY - 1);
    int got = orset_row_get(os, ORSET_T_META, &k, &r);
    if (got == 0 && os->store.each(os->store.ctx, ORSET_T_ORIGIN, "", 0, 0, any_row, NULL) > 0)
        return orset_corrupt(os, "the state's own row is missing");
    if (got <= 0)
        return got;
    os->self = (uint16_t)orset_read_num(&r, ORSET_ORIGINS_MAX);
    os->clock = orset_read_num(&r, ORSET_CLOCK_MAX);
    os->named.lo = orset_read_u64(&r);
    os->named.hi = orset_read_u64(&r);
    os->remembered = orset_read_num(&r, UINT64_MAX);
    os->shared = orset_read_num(&r, ORSET_COUNTER_MAX);
    os->shared_clock = orset_read_num(&r, ORSET_CLOCK_MAX);
    os->doubt = orset_read_num(&r, ORSET_COUNTER_MAX + 1);
    os->aliases = orset_read_num(&r, UINT64_MAX);
    if (r.bad)
        return orset_corrupt(os, "the state's own row");
    const struct orset_store *s = &os->store;
    if (s->each(s->ctx, ORSET_T_ORIGIN, "", 0, 0, read_origin, os) < 0)
        return orset_storage_fail(os, "origins cannot be read");
    if (os->self >= os->norigins)
        return orset_corrupt(os, "the state's own row names no origin");
    if (s->each(s->ctx, ORSET_T_KEYWORD, "", 0, 0, read_keyword, os) < 0)
        return orset_storage_fail(os, "keywords cannot be read");
    return orset_folders_read(os) < 0 ? ORSET_E_STORAGE : 1;
}

static void drop_caches(struct orset *os)
{
    orset_folders_free(os);
    for (int i = 0; i < os->nkeywords; i++)
        os->alloc.resize(os->alloc.ctx, os->keyword[i].name, 0);
    if (os->keyword)
        os->alloc.resize(os->alloc.ctx, os->keyword, 0);
    if (os->origin)
        os->alloc.resize(os->alloc.ctx, os->origin, 0);
    os->keyword = NULL;
    os->origin = NULL;
    os->nkeywords = 0;
    os->norigins = 0;
    os->meta_dirty = os->tree_dirty = false;
    os->copies.good = false;
    os->subscriptions = 0;
}

static int write_caches(struct orset *os)
{
    int r;
    for (uint32_t i = 0; i < os->ndirty; i++)
        if ((r = orset_folder_write(os, os->folder[os->dirty[i]])) < 0)
            return r;
    os->ndirty = 0;
    for (int i = 0; i < os->norigins; i++) {
        struct origin *o = &os->origin[i];
        if (!o->dirty)
            continue;
        struct orset_key k = {0};
        orset_key_num(&k, (uint64_t)i);
        os->row.len = 0;
        orset_buf_u64(&os->row, o->id.site);
        orset_buf_u64(&os->row, o->id.epoch);
        orset_buf_num(&os->row, o->counter);
        orset_buf_u64(&os->row, o->chain);
        orset_buf_num(&os->row, o->ahead);
        for (int q = 0; q < ORSET_QUOTAS; q++)
            orset_buf_num(&os->row, o->brought[q]);
        if ((r = orset_row_put(os, ORSET_T_ORIGIN, &k, &os->row)) < 0)
            return r;
        o->dirty = false;
    }
    if (!os->meta_dirty)
        return 0;
    struct orset_key k = {0};
    orset_key_put(&k, META_KEY, sizeof META_KEY - 1);
    os->row.len = 0;
    orset_buf_num(&os->row, os->self);
    orset_buf_num(&os->row, os->clock);
    orset_buf_u64(&os->row, os->named.lo);
    orset_buf_u64(&os->row, os->named.hi);
    orset_buf_num(&os->row, os->remembered);
    orset_buf_num(&os->row, os->shared);
    orset_buf_num(&os->row, os->shared_clock);
    orset_buf_num(&os->row, os->doubt);
    orset_buf_num(&os->row, os->aliases);
    os->meta_dirty = false;
    return orset_row_put(os, ORSET_T_META, &k, &os->row);
}

int orset_begin(struct orset *os)
{
    if (os->open || os->broken)
        return orset_fail(os, ORSET_E_STORAGE, "begin: the transaction before was not ended");
    if (os->store.begin(os->store.ctx) < 0)
        return orset_storage_fail(os, "begin");
    os->open = true;
    return 0;
}

int orset_homes(struct orset *os)
{
    int r = orset_need_transaction(os);
    return r == 0 && os->tree_dirty ? orset_rehome(os) : r;
}

int orset_commit(struct orset *os)
{
    int r = orset_need_transaction(os);
    if (r == 0 && os->tree_dirty)
        r = orset_rehome(os);
    if (r == 0)
        r = write_caches(os);
    if (r == 0 && os->store.commit(os->store.ctx) < 0)
        r = orset_storage_fail(os, "commit");
    if (r < 0) {
        orset_rollback(os);
        return r;
    }
    os->open = false;
    return 0;
}

void orset_rollback(struct orset *os)
{
    if (os->open)
        os->store.rollback(os->store.ctx);
    os->open = false;
    os->broken = false;
    os->op.failed = os->row.failed = os->hold.failed = false;
    drop_caches(os);
    /* Without memory for the caches the handle stays broken: rollback again, or close. */
    if (read_caches(os) <= 0)
        os->broken = true;
}

/* --- open and close
 * ---------------------------------------------------------------------------------------------- */

static int make_new(struct orset *os, const struct orset_origin *self)
{
    int r = orset_begin(os);
    if (r < 0)
        return r;
    r = orset_intern_origin(os, *self);
    if (r >= 0) {
        os->self = (uint16_t)r;
        os->drawn = self->epoch;
        os->meta_dirty = true;
        r = orset_folder_make(os, (struct orset_dot){ORSET_INBOX_ORIGIN, 0}) ? 0 : ORSET_E_MEMORY;
    }
    return r < 0 ? r : orset_commit(os);
}

int orset_open(struct orset **os_r, const struct orset_alloc *alloc,
               const struct orset_store *store, const struct orset_origin *self, bool *created_r)
{
    *os_r = NULL;
    struct orset *os = alloc->resize(alloc->ctx, NULL, sizeof *os);
    if (!os)
        return ORSET_E_MEMORY;
    memset(os, 0, sizeof *os);
    os->alloc = *alloc;
    os->store = *store;
    os->most_uid_validity = UINT32_MAX - 1;
    os->op.alloc = os->row.alloc = os->hold.alloc = &os->alloc;
    os->group = alloc->resize(alloc->ctx, NULL, ORSET_SAME_MESSAGE_MAX * sizeof *os->group);
    int r = os->group ? read_caches(os) : ORSET_E_MEMORY;
    if (created_r)
        *created_r = r == 0;
    if (r == 0)
        r = make_new(os, self);
    else if (r > 0)
        r = os->origin[os->self].id.site == self->site ? 0 : ORSET_E_LIMIT;
    if (r < 0) {
        orset_close(os);
        return r;
    }
    *os_r = os;
    return 0;
}

void orset_close(struct orset *os)
{
    if (!os)
        return;
    if (os->open)
        os->store.rollback(os->store.ctx);
    drop_caches(os);
    for (size_t i = 0; i < sizeof os->m / sizeof os->m[0]; i++)
        if (os->m[i].flag)
            os->alloc.resize(os->alloc.ctx, os->m[i].flag, 0);
    if (os->group)
        os->alloc.resize(os->alloc.ctx, os->group, 0);
    if (os->copies.v)
        os->alloc.resize(os->alloc.ctx, os->copies.v, 0);
    orset_buf_free(&os->op);
    orset_buf_free(&os->row);
    orset_buf_free(&os->hold);
    os->alloc.resize(os->alloc.ctx, os, 0);
}

void orset_digest(const struct orset *os, uint8_t digest[16])
{
    struct orset_sum s = os->named;
    for (uint32_t i = 0; i < os->nfolders; i++)
        if (orset_folder_live(os->folder[i]))
            orset_sum_add(&s, orset_folder_sum(os, os->folder[i]));
    for (int i = 0; i < 16; i++)
        digest[i] = (uint8_t)((i < 8 ? s.lo : s.hi) >> 8 * (i % 8));
}
