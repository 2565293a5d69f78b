/* lane - life, storing, removing and looking. How it is laid out is drawn in lane.h. */
#include "redis-module/core/internal.h"

#include <string.h>

#define AHEAD_FROM 10000 /* ids: what is below is in the cache */

bool lane_reserve_one(struct lane *lane, bool leased)
{
    uint64_t away = (uint64_t)lane->leased.n + lane->delayed.n + 1;
    return (!leased || heap_reserve(lane, &lane->leased, (uint64_t)lane->leased.n + 1)) &&
           heap_reserve(lane, &lane->delayed, away) &&
           heap_reserve(lane, &lane->back, lane->back.n + away);
}

/* Gives back the memory of heaps and extras that is not needed. */
static void trim(struct lane *lane)
{
    uint64_t away = (uint64_t)lane->leased.n + lane->delayed.n;
    if (lane->expiry.pages.npages > 1)
        heap_trim(lane, &lane->expiry, lane->expiry.n);
    if (lane->back.pages.npages <= 1)
        return;
    if (away || lane->back.n || lane->back.pages.npages > 16) {
        heap_trim(lane, &lane->leased, lane->leased.n);
        heap_trim(lane, &lane->delayed, away);
        heap_trim(lane, &lane->back, lane->back.n + away);
        return;
    }
    heap_free(lane, &lane->leased);
    heap_free(lane, &lane->delayed);
    heap_free(lane, &lane->back);
}

/* ---- Life ---- */

struct lane *lane_create(struct lane_env *env)
{
    struct lane *lane = env->alloc(sizeof *lane);
    if (!lane)
        return NULL;
    *lane = (struct lane){.env = env, .memory = sizeof *lane, .expiry = {.by_expiry = true}};
    return lane;
}

void lane_free(struct lane *lane)
{
    void (*release)(void *) = lane->env->free;
    arena_free(lane);
    heap_free(lane, &lane->back);
    heap_free(lane, &lane->delayed);
    heap_free(lane, &lane->leased);
    heap_free(lane, &lane->expiry);
    extra_free(lane);
    idindex_free(lane);
    blocks_free(lane);
    release(lane);
}

uint64_t lane_pieces(const struct lane *lane)
{
    return 1 + lane->arena.n + 2 * (uint64_t)lane->blocks.ids + lane->ids.tables +
           lane->extras.pages.npages + lane->back.pages.npages + lane->delayed.pages.npages +
           lane->leased.pages.npages + lane->expiry.pages.npages;
}

struct lane *lane_empty(struct lane *lane)
{
    struct lane *old = lane_create(lane->env);
    if (!old)
        return NULL;
    lane_end_leases(lane);
    uint64_t memory = lane->memory;
    *old = *lane;
    old->owner = NULL;
    *lane = (struct lane){.env = old->env,
                          .owner = lane->owner,
                          .settings = old->settings,
                          .memory = sizeof *lane,
                          .expiry = {.by_expiry = true},
                          .last = old->last,
                          .next = old->next,
                          .stop = old->stop};
    old->memory = memory;
    return old;
}

struct lane *lane_copy(const struct lane *from)
{
    struct lane *to = lane_create(from->env);
    if (!to)
        return NULL;
    struct lane_entry e;
    for (uint64_t seq = 0; lane_next(from, seq, &e); seq = e.seq + 1) {
        struct lane_new entry = {.seq = e.seq,
                                 .id = e.id,
                                 .meta = e.meta,
                                 .meta_len = e.meta_len,
                                 .body = e.body,
                                 .body_len = e.body_len,
                                 .revision = e.revision,
                                 .attempts = e.attempts,
                                 .born = e.born,
                                 .due = e.state == LANE_DELAYED ? e.until : 0,
                                 .expires = e.expires};
        if (lane_push(to, &entry, NULL) != LANE_OK) {
            lane_free(to);
            return NULL;
        }
    }
    to->settings = from->settings;
    return to;
}

struct lane_settings *lane_settings(struct lane *lane)
{
    return &lane->settings;
}

void **lane_owner(struct lane *lane)
{
    return &lane->owner;
}

struct lane_counts lane_counts(const struct lane *lane)
{
    return (struct lane_counts){.length = lane->length,
                                .bytes = lane->bytes,
                                .leased = lane->leased.n,
                                .delayed = lane->delayed.n,
                                .expiring = lane->expiry.n,
                                .waiting = lane->length - lane->leased.n - lane->delayed.n,
                                .memory = lane->memory};
}

/* ---- Storing ---- */

/* The sequence the entry gets, 0 when there is none for it. */
static uint64_t number_it(struct lane *lane, uint64_t wanted)
{
    struct lane_env *env = lane->env;
    if (wanted) {
        if (wanted <= lane->last || wanted > LANE_SEQ_MAX)
            return 0;
        return wanted;
    }
    if (lane->next == lane->stop) {
        if (env->stretches >= (uint64_t)1 << (63 - STRETCH_BITS))
            return 0;
        lane->next = env->stretches ? env->stretches << STRETCH_BITS : 1;
        lane->stop = ++env->stretches << STRETCH_BITS;
    }
    return lane->next;
}

static void use_number(struct lane *lane, uint64_t seq, bool given)
{
    struct lane_env *env = lane->env;
    LANE_ASSERT(seq >= lane->last); /* sequences rise, for ever */
    lane->last = seq;
    if (!given) {
        lane->next = seq + 1;
        return;
    }
    /* Somebody else numbers this lane. Should it ever number by itself, it does so in a stretch of
     * its own.
     */
    lane->next = lane->stop = 0;
    if (env->stretches <= seq >> STRETCH_BITS)
        env->stretches = (seq >> STRETCH_BITS) + 1;
}

static bool fits(const struct lane *lane, uint64_t entries, uint64_t bytes)
{
    const struct lane_settings *s = &lane->settings;
    return (!s->maxlen || lane->length + entries <= s->maxlen) &&
           (!s->maxbytes || lane->bytes + bytes <= s->maxbytes);
}

/* Times of entries have 40 bits: 17 years of milliseconds. */
static int64_t time_field(int64_t t)
{
    const int64_t most = ((int64_t)1 << 39) - 1;
    return t > most ? most : t < -most ? -most : t;
}

/* Everything but the data: on LANE_OK there is a slot with all else in place. `hash` is of the
 * id. */
static enum lane_result insert(struct lane *lane, const struct lane_new *entry, uint64_t hash,
                               struct slot **slot_r, uint32_t *handle_r, uint64_t *seq_r)
{
    uint32_t held = entry->id ? idindex_find(lane, entry->id, hash) : 0;
    bool more = entry->due || entry->revision || entry->attempts || entry->expires;
    if (held) {
        *seq_r = blocks_seq(lane, held);
        return LANE_HELD;
    }
    if (!entry->unbounded && !fits(lane, 1, (uint64_t)entry->meta_len + entry->body_len))
        return LANE_FULL;
    uint64_t seq = number_it(lane, entry->seq);
    if (!seq)
        return LANE_ORDER;
    if ((entry->id && !idindex_reserve(lane, hash)) ||
        (entry->due && !lane_reserve_one(lane, false)) ||
        (entry->expires && !heap_reserve(lane, &lane->expiry, (uint64_t)lane->expiry.n + 1)))
        return LANE_NOMEM;
    struct slot *slot = blocks_append(lane, seq, handle_r);
    if (!slot)
        return LANE_NOMEM;
    *slot = (struct slot){.state = entry->due ? LANE_DELAYED : LANE_WAITING,
                          .born = time_field(entry->born),
                          .body_len = (uint32_t)entry->body_len,
                          .meta_len = (uint32_t)entry->meta_len & LANE_META_MASK};
    if (more) {
        struct extra *x = extra_make(lane, slot, seq);
        if (!x) {
            blocks_remove(lane, seq);
            return LANE_NOMEM;
        }
        x->revision = entry->revision;
        x->attempts = entry->attempts;
        x->expires = time_field(entry->expires);
    }
    if (entry->id) {
        slot->has_id = true;
        memcpy(slot->id, entry->id, LANE_ID_LEN);
        idindex_add(lane, hash, *handle_r);
    }
    if (entry->due)
        heap_add(lane, &lane->delayed, entry->due, slot->extra - 1);
    if (entry->expires)
        heap_add(lane, &lane->expiry, extra_of(lane, slot)->expires, slot->extra - 1);
    use_number(lane, seq, entry->seq != 0);
    lane->length++;
    lane->bytes += (uint64_t)entry->meta_len + entry->body_len;
    *slot_r = slot;
    *seq_r = seq;
    return LANE_OK;
}

uint64_t lane_id_hash(struct lane_env *env, const uint8_t id[LANE_ID_LEN])
{
    size_t i = (id[7] ^ id[8] ^ id[15]) % LANE_AHEAD;
    if (memcmp(env->hashed[i].id, id, LANE_ID_LEN) != 0 || !env->hashed[i].hash) {
        memcpy(env->hashed[i].id, id, LANE_ID_LEN);
        env->hashed[i].hash = lane_hash(env->key, id, LANE_ID_LEN);
    }
    return env->hashed[i].hash;
}

void lane_ahead(const struct lane *lane, const uint64_t *hash, size_t n)
{
    if (lane->ids.n > AHEAD_FROM)
        idindex_ahead(lane, hash, n);
}

enum lane_result lane_push(struct lane *lane, const struct lane_new *entry, uint64_t *seq_r)
{
    size_t len = entry->body_len + entry->meta_len;
    struct ref data = {0, 0};
    struct slot *slot = NULL;
    uint32_t handle = 0;
    uint64_t seq = 0;
    if (entry->body_len > LANE_BODY_MAX || entry->meta_len > LANE_META_MAX)
        return LANE_NOMEM;
    char *to = len ? arena_reserve(lane, len, &data) : NULL;
    if (len && !to)
        return LANE_NOMEM;
    uint64_t hash = entry->id ? lane_id_hash(lane->env, entry->id) : 0;
    enum lane_result result = insert(lane, entry, hash, &slot, &handle, &seq);
    if (seq_r)
        *seq_r = seq;
    if (result != LANE_OK) {
        arena_drop(lane, data, len);
        return result;
    }
    if (!len)
        return LANE_OK;
    if (entry->body_len)
        memcpy(to, entry->body, entry->body_len);
    if (entry->meta_len)
        memcpy(to + entry->body_len, entry->meta, entry->meta_len);
    arena_own(to, handle, false);
    slot->data = data;
    return LANE_OK;
}

size_t lane_push_plain(struct lane *lane, int64_t born, const struct lane_data *data, size_t n,
                       uint64_t *seq_r)
{
    const struct lane_settings *s = &lane->settings;
    struct ref ref;
    uint32_t left, room, handle, i = 0, laid = 0;
    struct slot *slot = blocks_room(lane, lane->next, &handle, &room);
    char *at = slot ? arena_room(lane, &ref, &left) : NULL;
    uint64_t bytes = 0, stretch = lane->stop - lane->next;
    if (!at || s->maxlen || s->maxbytes)
        return 0;
    born = time_field(born);
    for (; i < n && i < room && i < stretch; i++) {
        const struct lane_data *d = &data[i];
        uint32_t len = d->body_len + d->meta_len, size = arena_size(len);
        if (!len || size > left - laid)
            break;
        arena_lay(at + laid, handle + i, len);
        memcpy(at + laid + RECORD_HEAD, d->body, d->body_len);
        memcpy(at + laid + RECORD_HEAD + d->body_len, d->meta, d->meta_len);
        slot[i] = (struct slot){.state = LANE_WAITING,
                                .born = born,
                                .body_len = d->body_len,
                                .meta_len = d->meta_len & LANE_META_MASK,
                                .data = {ref.segment, ref.at + laid}};
        laid += size;
        bytes += len;
    }
    if (!i)
        return 0;
    blocks_appended(lane, i);
    arena_laid(lane, laid);
    *seq_r = lane->next;
    use_number(lane, lane->next + i - 1, false);
    lane->length += i;
    lane->bytes += bytes;
    return i;
}

enum lane_result lane_set_meta(struct lane *lane, uint64_t seq, uint32_t revision, const char *meta,
                               size_t len)
{
    struct slot *slot = blocks_find(lane, seq);
    struct ref copy = {0, 0}, old = {0, 0};
    if (!slot)
        return LANE_ABSENT;
    const struct extra *was = extra_of(lane, slot);
    if (revision <= (was ? was->revision : 0))
        return LANE_STALE;
    if (len > slot->meta_len && !fits(lane, 0, len - slot->meta_len))
        return LANE_FULL;
    struct extra *x = len <= LANE_META_MAX ? extra_make(lane, slot, seq) : NULL;
    char *to = x && len ? arena_reserve(lane, len, &copy) : NULL;
    if (!x || (len && !to))
        return LANE_NOMEM;
    if (len) {
        memcpy(to, meta, len);
        arena_own(to, blocks_handle(lane, seq), true);
    }
    if (x->has_meta)
        old = x->meta;
    lane->bytes += len;
    lane->bytes -= slot->meta_len;
    x->meta = copy;
    x->has_meta = true;
    x->revision = revision;
    slot->meta_len = len & LANE_META_MASK;
    arena_drop(lane, old, 0);
    return LANE_OK;
}

/* ---- Removing ---- */

/* Out of everything but the data. */
static void leave(struct lane *lane, uint64_t seq, struct slot *slot)
{
    struct extra *x = extra_of(lane, slot);
    LANE_ASSERT(x || (slot->state == LANE_WAITING && seq >= lane->fresh));
    if (slot->state == LANE_LEASED) {
        heap_remove(lane, &lane->leased, x->place);
        lease_leave(x);
    } else if (slot->state == LANE_DELAYED) {
        heap_remove(lane, &lane->delayed, x->place);
    } else if (seq < lane->fresh) {
        heap_remove(lane, &lane->back, x->place);
    }
    if (x && x->expires) {
        heap_remove(lane, &lane->expiry, x->expiry_place);
        x->expires = 0;
    }
    if (slot->has_id)
        idindex_remove(lane, lane_id_hash(lane->env, slot->id), blocks_handle(lane, seq));
    LANE_ASSERT(lane->length && lane->bytes >= (uint64_t)slot->meta_len + slot->body_len);
    lane->length--;
    lane->bytes -= (uint64_t)slot->meta_len + slot->body_len;
}

/* The extra goes when it is in no heap any more. */
static void remove_slot(struct lane *lane, uint64_t seq, struct slot *slot)
{
    leave(lane, seq, slot);
    extra_drop(lane, slot);
    blocks_remove(lane, seq);
    trim(lane);
}

static void remove_entry(struct lane *lane, uint64_t seq, struct slot *slot)
{
    const struct extra *x = extra_of(lane, slot);
    bool replaced = x && x->has_meta;
    struct ref data = slot->data, meta = replaced ? x->meta : (struct ref){0, 0};
    /* The record need not be looked at: it is not in the cache any more. */
    size_t len = replaced ? 0 : (size_t)slot->body_len + slot->meta_len;
    remove_slot(lane, seq, slot);
    arena_drop(lane, data, len);
    arena_drop(lane, meta, 0);
}

bool lane_remove(struct lane *lane, uint64_t seq)
{
    struct slot *slot = blocks_find(lane, seq);
    if (slot)
        remove_entry(lane, seq, slot);
    return slot != NULL;
}

/* What a run's records take in one segment after the other. */
struct dropping {
    uint32_t n, segment[64], size[64];
};

static void dropping_add(struct dropping *d, const struct slot *slot)
{
    if (!slot->data.segment)
        return;
    if (!d->n || d->segment[d->n - 1] != slot->data.segment) {
        d->segment[d->n] = slot->data.segment;
        d->size[d->n++] = 0;
    }
    d->size[d->n - 1] += arena_size(slot->body_len + slot->meta_len);
}

/* Slots one after the other (at most 64) that have no extra: they are in no heap and under no
 * lease. */
static void remove_run(struct lane *lane, uint64_t seq, const struct slot *slot, uint32_t n,
                       const struct lane_going *going)
{
    struct dropping d;
    uint64_t bytes = 0;
    uint32_t handle = blocks_handle(lane, seq);
    d.n = 0;
    going->run(going->arg, seq, seq + n - 1);
    for (uint32_t i = 0; i < n; i++) {
        bytes += (uint64_t)slot[i].meta_len + slot[i].body_len;
        dropping_add(&d, &slot[i]);
        if (!slot[i].has_id)
            continue;
        going->id(going->arg, slot[i].id);
        idindex_remove(lane, lane_id_hash(lane->env, slot[i].id), handle + i);
    }
    LANE_ASSERT(n <= 64 && lane->length >= n && lane->bytes >= bytes);
    lane->length -= n;
    lane->bytes -= bytes;
    blocks_remove_run(lane, seq, n);
    for (uint32_t i = 0; i < d.n; i++)
        arena_drop_some(lane, d.segment[i], d.size[i]);
}

static uint32_t without_extra(const struct slot *slot, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && !slot[i].extra)
        i++;
    return i;
}

uint64_t lane_remove_range(struct lane *lane, uint64_t from, uint64_t to,
                           const struct lane_going *going)
{
    uint64_t removed = 0;
    uint32_t n;
    for (struct slot *slot; from <= to && (slot = blocks_run(lane, &from, to, &n));
         from += n, removed += n) {
        uint32_t plain = without_extra(slot, n);
        n = plain ? plain : 1;
        if (plain) {
            remove_run(lane, from, slot, n, going);
            continue;
        }
        going->run(going->arg, from, from);
        if (slot->has_id)
            going->id(going->arg, slot->id);
        remove_entry(lane, from, slot);
    }
    return removed;
}

enum lane_result lane_hand_over(struct lane *from, uint64_t seq, struct lane *to, uint64_t *seq_r)
{
    struct slot *old = blocks_find(from, seq), *slot = NULL;
    if (!old || old->state == LANE_LEASED)
        return LANE_ABSENT;
    struct lane_entry e;
    lane_get(from, seq, &e);
    struct lane_new entry = {.id = e.id,
                             .meta = e.meta,
                             .meta_len = e.meta_len,
                             .body = e.body,
                             .body_len = e.body_len,
                             .revision = e.revision,
                             .attempts = e.attempts,
                             .born = e.born,
                             .due = e.state == LANE_DELAYED ? e.until : 0,
                             .expires = e.expires,
                             .unbounded = true};
    const struct extra *x = extra_of(from, old);
    if (!old->data.segment || !arena_alone(from, old->data) || (x && x->has_meta)) {
        enum lane_result result = lane_push(to, &entry, seq_r);
        if (result == LANE_OK)
            lane_remove(from, seq);
        return result;
    }
    uint32_t handle;
    enum lane_result result =
        insert(to, &entry, e.id ? lane_id_hash(to->env, e.id) : 0, &slot, &handle, seq_r);
    if (result != LANE_OK)
        return result;
    if (!arena_hand_over(from, old->data, to, &slot->data)) {
        lane_remove(to, *seq_r);
        return LANE_NOMEM;
    }
    arena_own(arena_at(to, slot->data), handle, false);
    remove_slot(from, seq, old);
    return LANE_OK;
}

/* ---- Looking ---- */

static void view(const struct lane *lane, uint64_t seq, const struct slot *slot,
                 struct lane_entry *e)
{
    const char *data = slot->data.segment ? arena_at(lane, slot->data) : "";
    *e = (struct lane_entry){.seq = seq,
                             .id = slot->has_id ? slot->id : NULL,
                             .body = data,
                             .meta = data + slot->body_len,
                             .meta_len = slot->meta_len,
                             .body_len = slot->body_len,
                             .born = slot->born,
                             .state = slot->state};
    const struct extra *x = extra_of(lane, slot);
    if (!x)
        return;
    e->revision = x->revision;
    e->attempts = x->attempts;
    e->expires = x->expires;
    e->revoked = x->revoked;
    if (x->has_meta)
        e->meta = x->meta.segment ? arena_at(lane, x->meta) : "";
    if (slot->state == LANE_LEASED) {
        e->lease = x->lease->number;
        e->until = heap_at(&lane->leased, x->place)->key;
    } else if (slot->state == LANE_DELAYED) {
        e->until = heap_at(&lane->delayed, x->place)->key;
    }
}

bool lane_get(const struct lane *lane, uint64_t seq, struct lane_entry *e)
{
    const struct slot *slot = blocks_find(lane, seq);
    if (slot)
        view(lane, seq, slot, e);
    return slot != NULL;
}

bool lane_find(const struct lane *lane, const uint8_t id[LANE_ID_LEN], struct lane_entry *e)
{
    uint32_t handle = idindex_find(lane, id, lane_id_hash(lane->env, id));
    if (handle)
        view(lane, blocks_seq(lane, handle), blocks_at(lane, handle), e);
    return handle != 0;
}

bool lane_next(const struct lane *lane, uint64_t from, struct lane_entry *e)
{
    const struct slot *slot = blocks_next(lane, &from);
    if (slot)
        view(lane, from, slot, e);
    return slot != NULL;
}

uint64_t lane_first_seq(const struct lane *lane)
{
    uint64_t seq = 0;
    return blocks_next(lane, &seq) ? seq : 0;
}

uint64_t lane_last_seq(const struct lane *lane)
{
    return lane->last;
}

bool lane_raise_last(struct lane *lane, uint64_t seq)
{
    if (seq < lane->last || seq > LANE_SEQ_MAX)
        return false;
    if (seq)
        use_number(lane, seq, true);
    return true;
}

uint64_t lane_next_seq(const struct lane *lane)
{
    if (lane->next != lane->stop)
        return lane->next;
    return lane->env->stretches ? lane->env->stretches << STRETCH_BITS : 1;
}
