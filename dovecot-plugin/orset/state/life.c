/* life - open and close, transactions, and the caches that they read and write. */
#include "dovecot-plugin/orset/base/keywords.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/homes.h"

#include <string.h>

#define META_KEY "self"

/* --- reading and writing the caches
 * ------------------------------------------------------------------------------ */

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
    const uint8_t *row = r.at;
    os->self = (uint16_t)orset_read_num(&r, ORSET_ORIGINS_MAX);
    os->clock = orset_read_num(&r, ORSET_CLOCK_MAX);
    os->named.lo = orset_read_u64(&r);
    os->named.hi = orset_read_u64(&r);
    os->remembered = orset_read_num(&r, UINT64_MAX);
    os->shared = orset_read_num(&r, ORSET_COUNTER_MAX);
    os->shared_clock = orset_read_num(&r, ORSET_CLOCK_MAX);
    os->doubt = orset_read_num(&r, ORSET_COUNTER_MAX + 1);
    os->aliases = orset_read_num(&r, UINT64_MAX);
    if (!orset_sealed(row, (size_t)(r.end - row), &r))
        return orset_corrupt(os, "the state's own row");
    if ((got = orset_origins_read(os)) < 0)
        return got;
    if (os->self >= os->norigins)
        return orset_corrupt(os, "the state's own row names no origin");
    if ((got = orset_keywords_read(os)) < 0)
        return got;
    return orset_folders_read(os) < 0 ? ORSET_E_STORAGE : 1;
}

static void drop_caches(struct orset *os)
{
    orset_folders_free(os);
    orset_keywords_free(os);
    orset_origins_free(os);
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
    if ((r = orset_origins_write(os)) < 0)
        return r;
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
    orset_seal(&os->row);
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

bool orset_in_transaction(const struct orset *os)
{
    return os->open;
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

uint64_t orset_left_out(const struct orset *os)
{
    return os->left_out;
}

void orset_on_changed(struct orset *os, orset_changed_fn *fn, void *arg)
{
    os->changed = fn;
    os->changed_arg = arg;
}

void orset_on_joined(struct orset *os, orset_changed_fn *fn, void *arg)
{
    os->joined = fn;
    os->joined_arg = arg;
}

void orset_on_removed(struct orset *os, orset_removed_fn *fn, void *arg)
{
    os->removed = fn;
    os->removed_arg = arg;
}

bool orset_must_roll_back(const struct orset *os)
{
    return os->broken;
}

uint64_t orset_remembered(const struct orset *os)
{
    return os->remembered;
}
