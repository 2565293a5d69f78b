/* selector - parses a selector, and walks the entries that it names. */
#include "redis-module/commands/selector.h"

#include <stdio.h>

static bool check_sequences(struct args *a, const char *name, uint64_t n)
{
    uint64_t seq;
    while (n--)
        if (!args_number(a, name, 0, LANE_SEQ_MAX, &seq))
            return false;
    return true;
}

bool args_ids(struct args *a, struct selector *s)
{
    const uint8_t *id;
    *s = (struct selector){.by = BY_IDS};
    if (!args_count(a, "number of ids", 0, 1, &s->n))
        return false;
    s->arg = a->argv + a->at;
    for (uint64_t i = 0; i < s->n; i++)
        if (!args_id(a, false, &id))
            return false;
    return true;
}

static bool packed_ids(struct args *a, struct selector *s)
{
    RedisModuleString *ids;
    size_t len;
    if (!args_string(a, "packed ids", &ids))
        return false;
    s->by = BY_IDS;
    s->packed = RedisModule_StringPtrLen(ids, &len);
    s->n = len / ID_LEN;
    if (len % ID_LEN == 0)
        return true;
    char text[100];
    snprintf(text, sizeof text,
             "ERR value: length of packed ids is %zu, allowed are multiples of 16", len);
    RedisModule_ReplyWithError(a->ctx, text);
    return false;
}

bool args_selector(struct args *a, struct selector *s)
{
    *s = (struct selector){0};
    if (args_word(a, "UPTO"))
        return args_number(a, "sequence", 0, LANE_SEQ_MAX, &s->upto);
    if (args_word(a, "RANGES")) {
        if (!args_count(a, "number of ranges", 0, 2, &s->n))
            return false;
        s->arg = a->argv + a->at;
        return check_sequences(a, "sequence", 2 * s->n);
    }
    if (args_word(a, "SEQS")) {
        s->by = BY_SEQS;
        if (!args_count(a, "number of sequences", 0, 1, &s->n))
            return false;
        s->arg = a->argv + a->at;
        return check_sequences(a, "sequence", s->n);
    }
    if (args_word(a, "IDS"))
        return args_ids(a, s);
    if (args_word(a, "PACKED"))
        return packed_ids(a, s);
    return args_expected(a, "UPTO, RANGES, SEQS, IDS or PACKED");
}

/* Checked by args_selector. */
static uint64_t sequence(RedisModuleString *s)
{
    size_t len;
    const char *p = RedisModule_StringPtrLen(s, &len);
    uint64_t x = 0;
    for (; len; len--, p++)
        x = x * 10 + (uint64_t)(*p - '0');
    return x;
}

/* The i-th range. */
static void range_of(const struct selector *s, uint64_t i, uint64_t *from, uint64_t *to)
{
    *from = s->arg ? sequence(s->arg[2 * i]) : 0;
    *to = s->arg ? sequence(s->arg[2 * i + 1]) : s->upto;
}

static const uint8_t *id_of(const struct selector *s, uint64_t i)
{
    return (const uint8_t *)(s->packed ? s->packed + i * ID_LEN
                                       : RedisModule_StringPtrLen(s->arg[i], NULL));
}

static void tell_ahead(const struct selector *s, uint64_t from, const struct selector_calls *call)
{
    for (uint64_t i = from; i < s->n && i < from + LANE_AHEAD; i++)
        call->ahead(call->arg, id_of(s, i));
    call->ahead(call->arg, NULL);
}

/* The same of the entries from there on; how many that are. */
static uint64_t tell_ahead_entries(struct lane *lane, uint64_t from, uint64_t to,
                                   const struct selector_calls *call)
{
    struct lane_entry e;
    uint64_t n = 0;
    for (; n < LANE_AHEAD && lane_next(lane, from, &e) && e.seq <= to; n++, from = e.seq + 1)
        if (e.id)
            call->ahead(call->arg, e.id);
    call->ahead(call->arg, NULL);
    return n;
}

static void each_in_range(struct lane *lane, uint64_t from, uint64_t to,
                          const struct selector_calls *call)
{
    struct lane_entry e;
    for (uint64_t told = 0; lane_next(lane, from, &e) && e.seq <= to; from = e.seq + 1) {
        if (call->ahead && told-- == 0)
            told = tell_ahead_entries(lane, from, to, call) - 1;
        call->entry(call->arg, &e);
    }
}

/* One sequence or id; lease 0: any. */
static void one(const struct selector *s, uint64_t i, struct lane *lane, uint64_t lease,
                const struct selector_calls *call)
{
    struct lane_entry e;
    const uint8_t *id = NULL;
    bool there = false;
    if (s->by == BY_SEQS) {
        there = lane && lane_get(lane, sequence(s->arg[i]), &e);
    } else {
        id = id_of(s, i);
        there = lane && lane_find(lane, id, &e);
    }
    if (there && (!lease || e.lease == lease)) {
        if (call->entry)
            call->entry(call->arg, &e);
    } else if (call->absent) {
        call->absent(call->arg, id);
    }
}

void selector_each(const struct selector *s, struct lane *lane, const struct selector_calls *call)
{
    uint64_t n = s->by == BY_RANGES && !s->arg ? 1 : s->n, from, to;
    for (uint64_t i = 0; i < n; i++) {
        if (s->by != BY_RANGES) {
            if (s->by == BY_IDS && call->ahead && i % LANE_AHEAD == 0)
                tell_ahead(s, i, call);
            one(s, i, lane, 0, call);
            continue;
        }
        range_of(s, i, &from, &to);
        if (lane && call->range)
            call->range(call->arg, from, to);
        else if (lane)
            each_in_range(lane, from, to, call);
    }
}

void selector_each_leased(const struct selector *s, struct lane *lane, uint64_t lease,
                          const struct selector_calls *call)
{
    struct lane_entry e;
    uint64_t n = s->by == BY_RANGES && !s->arg ? 1 : s->n, from, to;
    for (uint64_t i = 0; i < n; i++) {
        if (s->by != BY_RANGES) {
            one(s, i, lane, lease, call);
            continue;
        }
        /* The lease goes with its last entry, so the one after is asked for before each. */
        struct lane_lease *held = lane ? lane_lease_find(lane, lease) : NULL;
        range_of(s, i, &from, &to);
        uint64_t seq = held ? lane_lease_next(held, from ? from - 1 : 0) : 0;
        while (seq && seq <= to) {
            uint64_t after = lane_lease_next(held, seq);
            lane_get(lane, seq, &e);
            call->entry(call->arg, &e);
            seq = after;
        }
    }
}
