#include "relay/repair/backfill.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

#define BLOCK_BYTES (1024 * 1024)
/* blocks on their way into the own server, beyond which no further one is read */
#define AHEAD 3
#define PAUSE_LEAST 0.005 /* seconds */
#define ID_FOLLOWS 0x80000000u

struct backfill {
    struct backfill_options o;
    backfill_done_fn *done;
    void *arg;
    size_t at; /* the first of wanted that was not read yet */
    bool reading, closed, failed;
    size_t open; /* requests */
    double asked_at, next_at;
    ev_timer pause;
    size_t entries, bytes;
    char trouble[160];
};

static void answered(struct backfill *r)
{
    ASSERT(r->open);
    r->open--;
}

static void fail(struct backfill *r, const char *why)
{
    if (!r->failed)
        snprintf(r->trouble, sizeof r->trouble, "%s", why);
    r->failed = true;
}

static void read_more(struct backfill *);

/* After every answer, and after a pause. */
static void go_on(struct backfill *r)
{
    bool ended = r->closed || r->failed || r->at == r->o.n;
    if (!ended)
        read_more(r);
    ended = r->closed || r->failed || r->at == r->o.n;
    if (!ended || r->open)
        return;
    ev_timer_stop(r->o.loop, &r->pause);
    if (!r->closed)
        r->done(r->failed ? r->trouble : NULL, r->entries, r->bytes, r->arg);
    free(r);
}

/* ---- into the own server ---- */

static void add_little(struct buf *b, uint32_t x)
{
    for (int i = 0; i < 4; i++, x >>= 8)
        buf_addc(b, (char)(x & 0xff));
}

/* ---- what came late ---- */

struct late {
    struct backfill *r;
    struct buf ids, gone;
    size_t n, *wanted; /* of all that were pushed: which of the wanted ones each is */
};

static void end_late(struct late *l)
{
    struct backfill *r = l->r;
    buf_free(&l->ids);
    buf_free(&l->gone);
    free(l->wanted);
    free(l);
    go_on(r);
}

static void on_late_dropped(struct wire *w, redisReply *reply, void *arg)
{
    struct late *l = arg;
    answered(l->r);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        fail(l->r, reply ? reply->str : "the connection it is stored by was lost");
    end_late(l);
}

static bool still_whole(const struct backfill *r, const redisReply *list)
{
    for (size_t i = 0; i + 1 < list->elements; i += 2)
        if (list->element[i]->str && list->element[i + 1]->str &&
            !strcmp(list->element[i]->str, r->o.set))
            return !strcmp(list->element[i + 1]->str, r->o.token);
    return false;
}

/* That it holds something no more says nothing when it lost what it held. */
static void on_late_whole(struct wire *w, redisReply *reply, void *arg)
{
    struct late *l = arg;
    struct backfill *r = l->r;
    answered(r);
    if (!reply || reply->type != REDIS_REPLY_ARRAY || !still_whole(r, reply)) {
        fail(r, "the other owner is not whole any more");
    } else if (l->gone.len && !r->closed) {
        if (wire_sendf(r->o.to, on_late_dropped, l, "LANE.ACK %b PACKED %b", r->o.lane,
                       r->o.lane_len, l->gone.data, l->gone.len)) {
            r->open++;
            return;
        }
        fail(r, "the connection it is stored by was lost");
    }
    end_late(l);
}

static bool has(const redisReply *entries, const char *id)
{
    for (size_t i = 0; i < entries->elements; i++) {
        const redisReply *e = entries->element[i];
        if (e->type == REDIS_REPLY_ARRAY && e->elements > 1 &&
            e->element[1]->type == REDIS_REPLY_STRING && e->element[1]->len == ENTRYID_LEN &&
            !memcmp(e->element[1]->str, id, ENTRYID_LEN))
            return true;
    }
    return false;
}

static void on_late_held(struct wire *w, redisReply *reply, void *arg)
{
    struct late *l = arg;
    answered(l->r);
    if (!reply || reply->type != REDIS_REPLY_ARRAY) {
        fail(l->r, reply && reply->str ? reply->str : "the connection was lost");
        return; /* on_late_whole ends it */
    }
    for (size_t at = 0; at < l->ids.len; at += ENTRYID_LEN)
        if (!has(reply, l->ids.data + at))
            buf_add(&l->gone, l->ids.data + at, ENTRYID_LEN);
}

static void look_again(struct backfill *r, struct late *l)
{
    if (!r->closed && !r->failed && *r->o.token &&
        wire_sendf(r->o.from, on_late_held, l, "LANE.GET %b PACKED %b NOBODY", r->o.lane,
                   r->o.lane_len, l->ids.data, l->ids.len)) {
        r->open++;
        if (wire_sendf(r->o.from, on_late_whole, l, "LANE.WHOLE")) {
            r->open++;
            return;
        }
    } else if (!r->closed && *r->o.token) {
        fail(r, "the connection was lost");
    }
    end_late(l);
}

/* Answers of PUSH, 8 bytes each: stored; -1 held or removed before; -2 revoked; the rest are
 * refusals. */
static void on_pushed(struct wire *w, redisReply *reply, void *arg)
{
    static const char *const words[] = {"", "", "", "FULL", "MEMORY", "POLICY", "WRONGTYPE"};
    struct late *l = arg;
    struct backfill *r = l->r;
    answered(r);
    const redisReply *answers = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3
                                    ? reply->element[1]
                                    : NULL;
    if (!answers || answers->type != REDIS_REPLY_STRING) {
        fail(r, reply && reply->str ? reply->str : "the connection it is stored by was lost");
    } else {
        for (size_t i = 0; i + 8 <= answers->len; i += 8) {
            uint64_t bits = 0;
            for (size_t k = 8; k--;)
                bits = bits << 8 | (unsigned char)answers->str[i + k];
            int64_t answer = (int64_t)bits;
            r->entries += answer > 0;
            if (answer > 0 && r->o.stored && !r->closed && i / 8 < l->n)
                r->o.stored(l->wanted[i / 8], r->arg);
            if (answer < -2) {
                char text[80];
                snprintf(text, sizeof text, "the node does not store copies: %s",
                         answer >= -6 ? words[-answer] : "?");
                fail(r, text);
            }
        }
    }
    if (l->ids.len)
        look_again(r, l);
    else
        end_late(l);
}

static void on_meta(struct wire *w, redisReply *reply, void *arg)
{
    struct backfill *r = arg;
    answered(r);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        fail(r, reply ? reply->str : "the connection it is stored by was lost");
    go_on(r);
}

/* One entry of READ ... PACKED; it points into the answer. */
struct record {
    uint64_t sequence;
    const unsigned char *id;
    uint32_t revision, meta_len, body_len;
    const char *meta, *body;
};

struct block {
    struct buf packed;
    bool is_late;
    struct buf late; /* the ids, then */
    size_t n, nchanged, size;
    struct record *changed; /* those with a revision */
    size_t *wanted;         /* of the n: which of the wanted ones each is */
};

static void add_entry(struct block *b, const struct record *e, size_t wanted)
{
    buf_reserve(&b->packed, (size_t)28 + e->meta_len + e->body_len);
    add_little(&b->packed, 1 | ID_FOLLOWS);
    add_little(&b->packed, e->meta_len);
    add_little(&b->packed, e->body_len);
    buf_add(&b->packed, e->id, ENTRYID_LEN);
    buf_add(&b->packed, e->meta, e->meta_len);
    buf_add(&b->packed, e->body, e->body_len);
    if (b->n % 256 == 0)
        b->wanted = mem_grow(b->wanted, (b->n + 256) * sizeof *b->wanted);
    b->wanted[b->n++] = wanted;
    if (b->is_late)
        buf_add(&b->late, e->id, ENTRYID_LEN);
    if (!e->revision)
        return;
    if (b->nchanged == b->size) {
        b->size = b->size ? 2 * b->size : 64;
        b->changed = mem_grow(b->changed, b->size * sizeof *b->changed);
    }
    b->changed[b->nchanged++] = *e;
}

static const char *target(const struct backfill *r, size_t *len)
{
    *len = r->o.to_lane ? r->o.to_lane_len : r->o.lane_len;
    return r->o.to_lane ? r->o.to_lane : r->o.lane;
}

static void send_changes(struct backfill *r, const struct block *b)
{
    size_t n = 3 + 3 * b->nchanged, k = 0;
    const char **v = mem_alloc(n * sizeof *v);
    size_t *len = mem_alloc(n * sizeof *len);
    char(*revision)[24] = mem_alloc(b->nchanged * sizeof *revision), count[24];
    v[k] = "LANE.META", len[k++] = 9;
    v[k] = target(r, &len[k]), k++;
    v[k] = count, len[k++] = (size_t)snprintf(count, sizeof count, "%zu", b->nchanged);
    for (size_t i = 0; i < b->nchanged; i++) {
        const struct record *e = &b->changed[i];
        v[k] = (const char *)e->id, len[k++] = ENTRYID_LEN;
        v[k] = revision[i],
        len[k++] = (size_t)snprintf(revision[i], sizeof revision[i], "%u", (unsigned)e->revision);
        v[k] = e->meta, len[k++] = e->meta_len;
    }
    if (wire_send(r->o.to, on_meta, r, (int)n, v, len))
        r->open++;
    else
        fail(r, "the connection it is stored by was lost");
    free(v);
    free(len);
    free(revision);
}

static void push(struct backfill *r, struct block *b)
{
    const char *v[] = {"LANE.PUSH", "1", NULL, "PACKED", b->packed.data};
    size_t len[] = {9, 1, 0, 6, b->packed.len};
    if (!b->n)
        return;
    v[2] = target(r, &len[2]);
    struct late *l = mem_zero(sizeof *l);
    l->r = r;
    l->ids = b->late;
    b->late = (struct buf){0};
    l->n = b->n;
    l->wanted = b->wanted;
    b->wanted = NULL;
    if (wire_send(r->o.to, on_pushed, l, 5, v, len)) {
        r->open++;
    } else {
        buf_free(&l->ids);
        free(l->wanted);
        free(l);
        fail(r, "the connection it is stored by was lost");
    }
    if (b->nchanged && !r->failed)
        send_changes(r, b);
    r->bytes += b->packed.len;
    r->next_at += (double)b->packed.len / (double)r->o.rate;
}

/* ---- out of the other ---- */

static uint64_t little(const unsigned char *p, unsigned n)
{
    uint64_t x = 0;
    while (n--)
        x = x << 8 | p[n];
    return x;
}

#define HEAD 52 /* sequence 8, id 16, revision 4, attempts 4, age 8, lengths 4 + 4, state 4 */

/* Takes the next record off the string; false at its end, and where it is not made of whole
 * records. */
static bool next_record(const unsigned char **p, size_t *left, struct record *e)
{
    if (*left < HEAD)
        return false;
    const unsigned char *h = *p;
    *e = (struct record){.sequence = little(h, 8),
                         .id = h + 8,
                         .revision = (uint32_t)little(h + 24, 4),
                         .meta_len = (uint32_t)little(h + 40, 4),
                         .body_len = (uint32_t)little(h + 44, 4)};
    size_t size = (size_t)HEAD + e->meta_len + e->body_len;
    if (size > *left)
        return false;
    e->meta = (const char *)h + HEAD;
    e->body = e->meta + e->meta_len;
    *p += size;
    *left -= size;
    return true;
}

/* What lies between those that are wanted, because some of them went meanwhile, is passed over.
 * What went is not wanted any more. */
static void choose(struct backfill *r, const redisReply *reply, struct block *b)
{
    const struct missing_entry *w = r->o.wanted;
    const unsigned char *p = (const unsigned char *)reply->element[1]->str;
    size_t left = reply->element[1]->len;
    uint64_t next = (uint64_t)reply->element[0]->integer;
    struct record e;
    buf_reserve(&b->packed, left);
    while (next_record(&p, &left, &e)) {
        while (r->at < r->o.n && w[r->at].sequence < e.sequence)
            r->at++;
        if (r->at < r->o.n && w[r->at].sequence == e.sequence &&
            !memcmp(w[r->at].id, e.id, ENTRYID_LEN)) {
            add_entry(b, &e, r->at);
            r->at++;
        }
    }
    if (left) {
        fail(r, "READ gave a string that is not made of whole entries");
        return;
    }
    while (r->at < r->o.n && (!next || w[r->at].sequence < next))
        r->at++;
}

static void on_read(struct wire *wire, redisReply *reply, void *arg)
{
    struct backfill *r = arg;
    struct block b = {0};
    answered(r);
    r->reading = false;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[0]->type == REDIS_REPLY_INTEGER &&
                reply->element[1]->type == REDIS_REPLY_STRING;
    if (!good) {
        fail(r, reply && reply->str ? reply->str
                : reply             ? "READ gave no list"
                                    : "the connection was lost");
    } else if (!r->closed && !r->failed) {
        b.is_late = clock_boottime() - r->asked_at > r->o.settle / 2;
        choose(r, reply, &b);
        read_more(r); /* first, so that the other server works while this one does */
        push(r, &b);
    }
    buf_free(&b.packed);
    buf_free(&b.late);
    free(b.wanted);
    free(b.changed);
    go_on(r);
}

static void read_more(struct backfill *r)
{
    double now = clock_monotonic();
    if (r->reading || r->failed || r->at == r->o.n || r->open > AHEAD || ev_is_active(&r->pause))
        return;
    if (r->next_at < now)
        r->next_at = now;
    if (r->next_at - now > PAUSE_LEAST) {
        ev_timer_set(&r->pause, r->next_at - now, 0.);
        ev_timer_start(r->o.loop, &r->pause);
        return;
    }
    /* Neighbours in the other's list come with one READ. */
    const struct missing_entry *w = r->o.wanted + r->at;
    size_t n = 1, most = r->o.n - r->at;
    while (n < most && n < (size_t)r->o.block && w[n].place == w[n - 1].place + 1)
        n++;
    r->asked_at = clock_boottime();
    if (!wire_sendf(r->o.from, on_read, r, "LANE.READ %b %llu COUNT %llu BYTES %d PACKED",
                    r->o.lane, r->o.lane_len, (unsigned long long)w->sequence,
                    (unsigned long long)n, BLOCK_BYTES)) {
        fail(r, "the connection was lost");
        return;
    }
    r->reading = true;
    r->open++;
}

static void on_pause(struct ev_loop *loop, ev_timer *t, int events)
{
    go_on(t->data);
}

static void on_start(struct ev_loop *loop, ev_timer *t, int events)
{
    struct backfill *r = t->data;
    ev_set_cb(t, on_pause);
    go_on(r);
}

struct backfill *backfill_open(const struct backfill_options *o, backfill_done_fn *done, void *arg)
{
    struct backfill *r = mem_zero(sizeof *r);
    r->o = *o;
    r->done = done;
    r->arg = arg;
    /* Not from within: done must not be called before this returns. */
    ev_timer_init(&r->pause, on_start, 0., 0.);
    r->pause.data = r;
    ev_timer_start(o->loop, &r->pause);
    return r;
}

void backfill_close(struct backfill *r)
{
    r->closed = true;
    if (r->open)
        return;
    ev_timer_stop(r->o.loop, &r->pause);
    free(r);
}
