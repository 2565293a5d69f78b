#include "relay/tables/inflight.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/tables/destinations.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"

TAILQ_HEAD(taken_list, entry);

struct inflight {
    struct entry **bucket;
    size_t nbuckets; /* a power of two */
    size_t count, bytes;
    size_t spilled;    /* on their way to Postfix's queue */
    size_t expired;    /* and as a bounce by age */
    unsigned released; /* how often an entry has left the table */
    bool suspect;      /* one is there */
    struct taken_list taken;
};

/* The last bytes of an id are random. */
static size_t slot(const struct inflight *h, const unsigned char id[ENTRYID_LEN])
{
    uint64_t x;
    memcpy(&x, id + ENTRYID_LEN - sizeof x, sizeof x);
    return (size_t)(x & (h->nbuckets - 1));
}

static void grow(struct inflight *h)
{
    struct entry **old = h->bucket;
    size_t n = h->nbuckets;
    h->nbuckets = n ? 2 * n : 256;
    h->bucket = mem_zero(h->nbuckets * sizeof *h->bucket);
    for (size_t i = 0; i < n; i++)
        for (struct entry *e = old[i], *next; e; e = next) {
            next = e->next;
            struct entry **b = &h->bucket[slot(h, e->id)];
            e->next = *b;
            *b = e;
        }
    free(old);
}

struct entry *inflight_find(struct relay *r, const unsigned char id[ENTRYID_LEN])
{
    struct entry *e = r->inflight->bucket[slot(r->inflight, id)];
    while (e && memcmp(e->id, id, ENTRYID_LEN))
        e = e->next;
    return e;
}

static size_t held_bytes(const struct entry *e)
{
    return (size_t)e->holder->len;
}

struct entry *inflight_add(struct relay *r, struct lane *lane, const unsigned char id[ENTRYID_LEN],
                           redisReply *holder)
{
    struct inflight *h = r->inflight;
    ASSERT(lane->destination && holder->str && !inflight_find(r, id));
    if (h->count >= h->nbuckets)
        grow(h);
    struct entry *e = mem_zero(sizeof *e), **b = &h->bucket[slot(h, id)];
    e->relay = r;
    e->lane = lane;
    memcpy(e->id, id, ENTRYID_LEN);
    e->holder = holder;
    e->taken_at = clock_monotonic();
    e->next = *b;
    *b = e;
    TAILQ_INSERT_TAIL(&h->taken, e, taken);
    h->count++;
    h->bytes += held_bytes(e);
    lane->in_flight++;
    lane->destination->in_flight++;
    lane->destination->in_hand_bytes += held_bytes(e);
    metric_set(relay_in_hand, (long long)h->count);
    return e;
}

void entry_set_mail(struct entry *e, struct smtp_rcpt *rcpt, size_t n,
                    void (*done)(struct smtp_mail *, const char *relay))
{
    ASSERT(n && !e->mail.waiting);
    smtp_rcpts_clear(e->mail.rcpt, e->mail.nrcpt);
    free(e->mail.rcpt);
    e->mail = (struct smtp_mail){
        .envelope = &e->envelope,
        .body = e->holder->str,
        .body_len = (size_t)e->holder->len,
        .rcpt = rcpt,
        .nrcpt = n,
        .owner = e,
        .class = e->lane->class,
        .done = done,
    };
}

static size_t is_spilled(const struct entry *e)
{
    return e->spill != SPILL_NONE;
}

static size_t is_expired(const struct entry *e)
{
    return e->expired && !is_spilled(e);
}

void inflight_release(struct entry *e)
{
    struct relay *r = e->relay;
    struct inflight *h = r->inflight;
    struct entry **at = &h->bucket[slot(h, e->id)];
    while (*at != e) {
        ASSERT(*at);
        at = &(*at)->next;
    }
    ASSERT(h->count && h->bytes >= held_bytes(e) && h->spilled >= is_spilled(e) &&
           h->expired >= is_expired(e));
    ASSERT(e->lane->in_flight && e->lane->leaving >= e->leaving);
    ASSERT(e->lane->destination->in_flight && e->lane->destination->in_hand_bytes >= held_bytes(e));
    *at = e->next;
    TAILQ_REMOVE(&h->taken, e, taken);
    h->count--;
    h->bytes -= held_bytes(e);
    e->lane->in_flight--;
    e->lane->leaving -= e->leaving;
    e->lane->destination->in_flight--;
    e->lane->destination->in_hand_bytes -= held_bytes(e);
    h->spilled -= is_spilled(e);
    h->expired -= is_expired(e);
    h->released++;
    destination_want(e->lane->destination);
    if (e->suspect) {
        h->suspect = false;
        destinations_want_all(r);
    }
    metric_set(relay_in_hand, (long long)h->count);
    smtp_rcpts_clear(e->mail.rcpt, e->mail.nrcpt);
    free(e->mail.rcpt);
    free(e->head);
    free(e->body);
    free(e->tried);
    free(e->hop);
    free(e->redo);
    envelope_free(&e->envelope);
    freeReplyObject(e->holder);
    free(e);
}

size_t inflight_count(const struct relay *r)
{
    return r->inflight->count;
}

size_t inflight_bytes(const struct relay *r)
{
    return r->inflight->bytes;
}

struct entry *inflight_first(struct relay *r)
{
    return TAILQ_FIRST(&r->inflight->taken);
}

void inflight_leaving(struct entry *e)
{
    struct lane *lane = e->lane;
    ASSERT(e->state == ENTRY_ACKING || e->state == ENTRY_RETURNING);
    if (e->leaving)
        return;
    e->leaving = true;
    lane->leaving++;
    ASSERT(lane->leaving <= lane->in_flight);
    if (lane->parsed.generation)
        destination_want(lane->destination);
    if (!lane->later || lane->leaving < lane->in_flight)
        return;
    lane->later = false;
    destination_want(lane->destination);
}

/* ---- what is special about some ---- */

void inflight_spill(struct entry *e, enum spill_reason reason)
{
    struct inflight *h = e->relay->inflight;
    h->spilled -= is_spilled(e);
    h->expired -= is_expired(e);
    e->spill = reason;
    h->spilled += is_spilled(e);
    h->expired += is_expired(e);
}

void inflight_expire(struct entry *e)
{
    struct inflight *h = e->relay->inflight;
    h->expired -= is_expired(e);
    e->expired = true;
    h->expired += is_expired(e);
}

size_t inflight_spilled(const struct relay *r)
{
    return r->inflight->spilled;
}

size_t inflight_expired(const struct relay *r)
{
    return r->inflight->expired;
}

void inflight_suspect(struct entry *e)
{
    ASSERT(!e->relay->inflight->suspect); /* it is taken alone */
    e->suspect = true;
    e->relay->inflight->suspect = true;
}

bool inflight_has_suspect(const struct relay *r)
{
    return r->inflight->suspect;
}

unsigned inflight_released(const struct relay *r)
{
    return r->inflight->released;
}

const char *entry_queue_id(const struct entry *e)
{
    const char *id = e->envelope.queue_id;
    return id && *id ? id : "NOQUEUE";
}

bool entry_keeps_place(const struct entry *e)
{
    /* What was read and not taken (spill_to_postfix.h) is where it is. */
    return e->lane->parsed.generation && e->lease && !(e->envelope.marks & ENVELOPE_ASIDE);
}

struct inflight *inflight_open(void)
{
    struct inflight *h = mem_zero(sizeof *h);
    TAILQ_INIT(&h->taken);
    grow(h);
    return h;
}

void inflight_close(struct inflight *h)
{
    while (!TAILQ_EMPTY(&h->taken))
        inflight_release(TAILQ_FIRST(&h->taken));
    free(h->bucket);
    free(h);
}
