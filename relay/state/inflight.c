#include "relay/state/inflight.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "relay/delivery/destination.h"
#include "relay/intake/intake.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/owners/owners.h"
#include "relay/intake/spill.h"

TAILQ_HEAD(taken_list, entry);

#define RENEW               \
    (OWNERS_LEASE / 1000. / \
     4) /* seconds between two looks; twice that fits into a lease and leaves time for an answer */

struct inflight {
    struct relay *relay;
    struct entry **bucket;
    size_t nbuckets; /* a power of two */
    size_t count, bytes;
    struct taken_list taken;
    ev_timer renew;
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
    smtp_rcpts_clear(e->mail.rcpt, e->mail.nrcpt);
    free(e->mail.rcpt);
    e->mail = (struct smtp_mail){
        .envelope = &e->envelope,
        .body = e->holder->str,
        .body_len = (size_t)e->holder->len,
        .rcpt = rcpt,
        .nrcpt = n,
        .owner = e,
        .done = done,
    };
}

void inflight_release(struct entry *e)
{
    struct relay *r = e->relay;
    struct inflight *h = r->inflight;
    struct entry **at = &h->bucket[slot(h, e->id)];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    TAILQ_REMOVE(&h->taken, e, taken);
    h->count--;
    h->bytes -= held_bytes(e);
    e->lane->in_flight--;
    e->lane->leaving -= e->leaving;
    e->lane->destination->in_flight--;
    e->lane->destination->in_hand_bytes -= held_bytes(e);
    intake_released(e);
    spill_released(e);
    metric_set(relay_in_hand, (long long)h->count);
    smtp_rcpts_clear(e->mail.rcpt, e->mail.nrcpt);
    free(e->mail.rcpt);
    free(e->head);
    free(e->body);
    free(e->tried);
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

/* ---- leases ---- */

static void on_renew(struct ev_loop *loop, ev_timer *t, int events)
{
    struct inflight *h = t->data;
    struct entry *e = TAILQ_FIRST(&h->taken);
    /* In the order of taking: what is younger than a look ago has time until the next one. */
    while (e && clock_monotonic() - e->taken_at >= RENEW)
        e = owners_extend(e);
}

struct inflight *inflight_open(struct relay *r)
{
    struct inflight *h = mem_zero(sizeof *h);
    h->relay = r;
    TAILQ_INIT(&h->taken);
    grow(h);
    ev_timer_init(&h->renew, on_renew, RENEW, RENEW);
    h->renew.data = h;
    ev_timer_start(r->loop, &h->renew);
    return h;
}

void inflight_close(struct inflight *h)
{
    ev_timer_stop(h->relay->loop, &h->renew);
    while (!TAILQ_EMPTY(&h->taken))
        inflight_release(TAILQ_FIRST(&h->taken));
    free(h->bucket);
    free(h);
}
