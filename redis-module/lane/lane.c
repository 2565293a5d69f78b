/* lane - life, storing, removing and looking. How it is laid out is drawn in lane.h. */
#include "internal.h"

#include <string.h>

void *lane_alloc(struct lane *lane, size_t n)
{
    void *p = lane->env->alloc(n);
    if (p)
        lane->memory += n;
    return p;
}

void lane_release(struct lane *lane, void *p, size_t n)
{
    if (!p)
        return;
    lane->memory -= n;
    lane->env->free(p);
}

bool lane_reserve_one(struct lane *lane, bool leased)
{
    uint64_t away = (uint64_t)lane->leased.n + lane->delayed.n + 1;
    return (!leased || heap_reserve(lane, &lane->leased, (uint64_t)lane->leased.n + 1)) &&
           heap_reserve(lane, &lane->delayed, away) && heap_reserve(lane, &lane->back, lane->back.n + away);
}

void lane_trim(struct lane *lane)
{
    if (lane->leased.n || lane->delayed.n || lane->back.n || lane->back.room <= 64)
        return;
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
    *lane = (struct lane){.env = env, .memory = sizeof *lane};
    return lane;
}

static void release_data(struct lane *lane, struct slot *slot)
{
    lane_release(lane, slot->data, slot->data_len);
    if (slot->has_meta)
        lane_release(lane, slot->meta, slot->meta_len);
}

void lane_free(struct lane *lane)
{
    void (*release)(void *) = lane->env->free;
    uint64_t seq = 0;
    for (struct slot *slot; (slot = blocks_next(lane, &seq)); seq++)
        release_data(lane, slot);
    heap_free(lane, &lane->back);
    heap_free(lane, &lane->delayed);
    heap_free(lane, &lane->leased);
    idindex_free(lane);
    blocks_free(lane);
    release(lane);
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
                                 .due = e.state == LANE_DELAYED ? e.until : 0};
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
    lane->last = seq;
    if (!given) {
        lane->next = seq + 1;
        return;
    }
    /* Somebody else numbers this lane. Should it ever number by itself, it does so in a stretch of its own.
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

/* Everything but the data: on LANE_OK there is a slot with all else in place. */
static enum lane_result insert(struct lane *lane, const struct lane_new *entry, struct slot **slot_r,
                               uint64_t *seq_r)
{
    uint64_t held = entry->id ? idindex_find(lane, entry->id) : 0;
    if (held) {
        *seq_r = held;
        return LANE_HELD;
    }
    if (!entry->unbounded && !fits(lane, 1, (uint64_t)entry->meta_len + entry->body_len))
        return LANE_FULL;
    uint64_t seq = number_it(lane, entry->seq);
    if (!seq)
        return LANE_ORDER;
    if ((entry->id && !idindex_reserve(lane)) || (entry->due && !lane_reserve_one(lane, false)))
        return LANE_NOMEM;
    struct slot *slot = blocks_append(lane, seq);
    if (!slot)
        return LANE_NOMEM;
    slot->state = entry->due ? LANE_DELAYED : LANE_WAITING;
    slot->revision = entry->revision;
    slot->attempts = entry->attempts;
    slot->born = entry->born;
    slot->body_len = (uint32_t)entry->body_len;
    slot->meta_len = (uint32_t)entry->meta_len;
    if (entry->id) {
        slot->has_id = true;
        memcpy(slot->id, entry->id, LANE_ID_LEN);
        idindex_add(lane, entry->id, seq);
    }
    if (entry->due)
        heap_add(lane, &lane->delayed, entry->due, seq);
    use_number(lane, seq, entry->seq != 0);
    lane->length++;
    lane->bytes += (uint64_t)entry->meta_len + entry->body_len;
    *slot_r = slot;
    *seq_r = seq;
    return LANE_OK;
}

enum lane_result lane_push(struct lane *lane, const struct lane_new *entry, uint64_t *seq_r)
{
    size_t len = entry->body_len + entry->meta_len;
    char *data = NULL;
    struct slot *slot = NULL;
    uint64_t seq = 0;
    if (entry->body_len > LANE_BODY_MAX || entry->meta_len > LANE_META_MAX)
        return LANE_NOMEM;
    if (len && !(data = lane_alloc(lane, len)))
        return LANE_NOMEM;
    enum lane_result result = insert(lane, entry, &slot, &seq);
    if (seq_r)
        *seq_r = seq;
    if (result != LANE_OK) {
        lane_release(lane, data, len);
        return result;
    }
    if (entry->body_len)
        memcpy(data, entry->body, entry->body_len);
    if (entry->meta_len)
        memcpy(data + entry->body_len, entry->meta, entry->meta_len);
    slot->data = data;
    slot->data_len = (uint32_t)len;
    return LANE_OK;
}

enum lane_result lane_set_meta(struct lane *lane, uint64_t seq, uint32_t revision, const char *meta,
                               size_t len)
{
    struct slot *slot = blocks_find(lane, seq);
    char *copy = NULL;
    if (!slot)
        return LANE_ABSENT;
    if (revision <= slot->revision)
        return LANE_STALE;
    if (len > slot->meta_len && !fits(lane, 0, len - slot->meta_len))
        return LANE_FULL;
    if (len > LANE_META_MAX || (len && !(copy = lane_alloc(lane, len))))
        return LANE_NOMEM;
    if (len)
        memcpy(copy, meta, len);
    if (slot->has_meta)
        lane_release(lane, slot->meta, slot->meta_len);
    lane->bytes += len;
    lane->bytes -= slot->meta_len;
    slot->meta = copy;
    slot->has_meta = true;
    slot->meta_len = (uint32_t)len;
    slot->revision = revision;
    return LANE_OK;
}

/* ---- Removing ---- */

/* Out of everything but the data. */
static void leave(struct lane *lane, uint64_t seq, struct slot *slot)
{
    if (slot->state == LANE_LEASED) {
        heap_remove(lane, &lane->leased, slot->place);
        lease_leave(slot);
    } else if (slot->state == LANE_DELAYED) {
        heap_remove(lane, &lane->delayed, slot->place);
    } else if (seq < lane->fresh) {
        heap_remove(lane, &lane->back, slot->place);
    }
    if (slot->has_id)
        idindex_remove(lane, slot->id, seq);
    lane->length--;
    lane->bytes -= (uint64_t)slot->meta_len + slot->body_len;
}

bool lane_remove(struct lane *lane, uint64_t seq)
{
    struct slot *slot = blocks_find(lane, seq);
    if (!slot)
        return false;
    leave(lane, seq, slot);
    release_data(lane, slot);
    blocks_remove(lane, seq);
    lane_trim(lane);
    return true;
}

enum lane_result lane_hand_over(struct lane *from, uint64_t seq, struct lane *to, uint64_t *seq_r)
{
    struct slot *old = blocks_find(from, seq), *slot = NULL;
    if (!old || old->state == LANE_LEASED)
        return LANE_ABSENT;
    struct lane_new entry = {.id = old->has_id ? old->id : NULL,
                             .meta_len = old->meta_len,
                             .body_len = old->body_len,
                             .revision = old->revision,
                             .attempts = old->attempts,
                             .born = old->born,
                             .due = old->state == LANE_DELAYED ? from->delayed.item[old->place].key : 0,
                             .unbounded = true};
    enum lane_result result = insert(to, &entry, &slot, seq_r);
    if (result != LANE_OK)
        return result;
    slot->data = old->data;
    slot->data_len = old->data_len;
    slot->meta = old->meta;
    slot->has_meta = old->has_meta;
    uint64_t memory = (uint64_t)old->data_len + (old->has_meta ? old->meta_len : 0);
    to->memory += memory;
    from->memory -= memory;
    leave(from, seq, old);
    blocks_remove(from, seq);
    lane_trim(from);
    return LANE_OK;
}

/* ---- Looking ---- */

static void view(const struct lane *lane, uint64_t seq, const struct slot *slot, struct lane_entry *e)
{
    *e = (struct lane_entry){.seq = seq,
                             .id = slot->has_id ? slot->id : NULL,
                             .body = slot->body_len ? slot->data : "",
                             .meta = !slot->meta_len  ? ""
                                     : slot->has_meta ? slot->meta
                                                      : slot->data + slot->body_len,
                             .meta_len = slot->meta_len,
                             .body_len = slot->body_len,
                             .revision = slot->revision,
                             .attempts = slot->attempts,
                             .born = slot->born,
                             .state = slot->state,
                             .revoked = slot->revoked};
    if (slot->state == LANE_LEASED) {
        e->lease = slot->lease->number;
        e->until = lane->leased.item[slot->place].key;
    } else if (slot->state == LANE_DELAYED) {
        e->until = lane->delayed.item[slot->place].key;
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
    uint64_t seq = idindex_find(lane, id);
    return seq && lane_get(lane, seq, e);
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
