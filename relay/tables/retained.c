#include "relay/tables/retained.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/smtp/delivery_id.h"
#include "relay/tables/destinations.h"

#define BUCKETS_FIRST 256
#define ASK_AGAIN 30. /* seconds */

/* ---- the two tables ---- */

/* The last bytes of an id are random. */
static size_t slot(const unsigned char id[ENTRYID_LEN], size_t buckets)
{
    uint64_t x;
    memcpy(&x, id + ENTRYID_LEN - sizeof x, sizeof x);
    return (size_t)x & (buckets - 1);
}

/* And so are the first digits of a GUID. */
static size_t guid_slot(const char *guid, size_t buckets)
{
    uint64_t x = 0;
    for (size_t i = 0; i < 16 && guid[i]; i++)
        x = x << 4 | (uint64_t)(guid[i] <= '9' ? guid[i] - '0' : guid[i] - 'a' + 10);
    return (size_t)x & (buckets - 1);
}

static void grow(struct retained_table *t)
{
    size_t n = t->nbuckets ? 2 * t->nbuckets : BUCKETS_FIRST;
    struct retained **bucket = mem_zero(n * sizeof *bucket);
    for (size_t i = 0; i < t->nbuckets; i++)
        for (struct retained *k = t->bucket[i], *next; k; k = next) {
            next = k->next;
            k->next = bucket[slot(k->id, n)];
            bucket[slot(k->id, n)] = k;
        }
    free(t->bucket);
    t->bucket = bucket;
    t->nbuckets = n;
}

static void grow_guids(struct retained_table *t)
{
    size_t n = t->nguids ? 2 * t->nguids : BUCKETS_FIRST;
    struct retained_recipient **guid = mem_zero(n * sizeof *guid);
    for (size_t i = 0; i < t->nguids; i++)
        for (struct retained_recipient *to = t->guid[i], *next; to; to = next) {
            next = to->next;
            to->next = guid[guid_slot(to->guid, n)];
            guid[guid_slot(to->guid, n)] = to;
        }
    free(t->guid);
    t->guid = guid;
    t->nguids = n;
}

struct retained *retained_find(struct relay *r, const unsigned char id[ENTRYID_LEN])
{
    struct retained *k = r->retained->bucket[slot(id, r->retained->nbuckets)];
    while (k && memcmp(k->id, id, ENTRYID_LEN))
        k = k->next;
    return k;
}

static struct retained_recipient *first_of(struct retained_recipient *to, const char *guid)
{
    while (to && strcmp(to->guid, guid))
        to = to->next;
    return to;
}

struct retained_recipient *retained_by_guid(struct relay *r, const char *guid)
{
    return first_of(r->retained->guid[guid_slot(guid, r->retained->nguids)], guid);
}

struct retained_recipient *retained_same_guid(const struct retained_recipient *to)
{
    return first_of(to->next, to->guid);
}

static void tell_metrics(const struct retained_table *t)
{
    metric_set(relay_retained, (long long)t->count);
    metric_set(relay_retained_bytes, (long long)t->bytes);
}

/* ---- lists ---- */

static void unlist(struct retained_table *t, struct retained *k)
{
    if (k->looking)
        return;
    TAILQ_REMOVE(k->look_at > 0. ? &t->waiting : &t->fresh, k, link);
    k->looking = true;
}

static void list_fresh(struct retained_table *t, struct retained *k)
{
    k->looking = false;
    k->look_at = 0.;
    TAILQ_INSERT_TAIL(&t->fresh, k, link);
}

/* From the nearer end: nearly always it belongs to the end, or not far from the beginning. */
void retained_look_in(struct relay *r, struct retained *k, double seconds)
{
    struct retained_table *t = r->retained;
    struct retained *at;
    unlist(t, k);
    k->looking = false;
    k->look_at = clock_monotonic() + seconds;
    at = TAILQ_FIRST(&t->waiting);
    if (at && k->look_at < at->look_at) {
        TAILQ_INSERT_HEAD(&t->waiting, k, link);
        return;
    }
    struct retained *last = TAILQ_LAST(&t->waiting, retained_list);
    if (at && k->look_at - at->look_at < last->look_at - k->look_at) {
        struct retained *next;
        while ((next = TAILQ_NEXT(at, link))->look_at <= k->look_at)
            at = next;
        TAILQ_INSERT_AFTER(&t->waiting, at, k, link);
        return;
    }
    at = last;
    while (at && at->look_at > k->look_at)
        at = TAILQ_PREV(at, retained_list, link);
    if (at)
        TAILQ_INSERT_AFTER(&t->waiting, at, k, link);
    else
        TAILQ_INSERT_HEAD(&t->waiting, k, link);
}

struct retained *retained_next(struct relay *r, double now)
{
    struct retained *k = TAILQ_FIRST(&r->retained->waiting);
    if (!k || k->look_at > now)
        return NULL;
    unlist(r->retained, k);
    return k;
}

struct retained *retained_fresh(struct relay *r)
{
    struct retained *k = TAILQ_FIRST(&r->retained->fresh);
    if (k)
        unlist(r->retained, k);
    return k;
}

/* ---- records ---- */

static size_t count_retained(const struct envelope *env)
{
    size_t n = 0;
    for (size_t i = 0; i < env->nrecipients; i++)
        n += env->recipient[i].state == RECIPIENT_RETAINED;
    return n;
}

static void add_guid(struct retained_table *t, struct retained_recipient *to)
{
    if (t->recipients++ >= t->nguids)
        grow_guids(t);
    size_t at = guid_slot(to->guid, t->nguids);
    to->next = t->guid[at];
    t->guid[at] = to;
}

static void drop_guid(struct retained_table *t, struct retained_recipient *to)
{
    struct retained_recipient **at = &t->guid[guid_slot(to->guid, t->nguids)];
    while (*at != to) {
        ASSERT(*at);
        at = &(*at)->next;
    }
    *at = to->next;
    t->recipients--;
    free(to->address);
}

static struct retained *make(struct entry *e, size_t n)
{
    struct retained_table *t = e->relay->retained;
    const struct envelope *env = &e->envelope;
    struct retained *k = mem_zero(sizeof *k + n * sizeof *k->recipient);
    const char **address = mem_alloc(n * sizeof *address);
    char(*guid)[DISK_GUID_HEX] = mem_alloc(n * sizeof *guid);
    for (size_t i = 0, at = 0; i < env->nrecipients; i++)
        if (env->recipient[i].state == RECIPIENT_RETAINED) {
            address[at] = env->recipient[i].address;
            k->recipient[at++].index = i;
        }
    delivery_id_guids(e->id, e->holder->str, (size_t)e->holder->len, address, n, guid);
    memcpy(k->id, e->id, ENTRYID_LEN);
    k->nrecipients = n;
    k->lane = e->lane;
    k->bytes = (size_t)e->holder->len;
    k->since = clock_monotonic();
    for (size_t i = 0; i < n; i++) {
        struct retained_recipient *to = &k->recipient[i];
        to->of = k;
        to->address = mem_strdup(address[i]);
        memcpy(to->guid, guid[i], sizeof to->guid);
        add_guid(t, to);
    }
    free(address);
    free(guid);
    if (t->count >= t->nbuckets)
        grow(t);
    size_t at = slot(k->id, t->nbuckets);
    k->next = t->bucket[at];
    t->bucket[at] = k;
    t->count++;
    t->bytes += k->bytes;
    k->lane->retained++;
    k->lane->retained_bytes += k->bytes;
    TAILQ_INSERT_TAIL(&t->oldest, k, by_age);
    list_fresh(t, k);
    tell_metrics(t);
    return k;
}

/* The same recipients, in the same order, as when it was made. */
static bool fits(const struct retained *k, const struct envelope *env)
{
    if (k->nrecipients != count_retained(env))
        return false;
    for (size_t i = 0; i < k->nrecipients; i++)
        if (k->recipient[i].index >= env->nrecipients ||
            env->recipient[k->recipient[i].index].state != RECIPIENT_RETAINED)
            return false;
    return true;
}

/* What the envelope says counts: a site's word is about a delivery there. Safe is safe, wherever
 * it was said. */
static void bring_up_to_date(struct relay *r, struct retained *k, const struct envelope *env)
{
    bool moved = false;
    for (size_t i = 0; i < k->nrecipients; i++) {
        struct retained_recipient *to = &k->recipient[i];
        const struct recipient *is = &env->recipient[to->index];
        if (to->site != is->site || to->attempts != is->attempts) {
            to->unknown = to->asked = to->never = k->told = false;
            to->doubts = 0;
            moved = true;
        }
        to->site = is->site;
        to->attempts = is->attempts;
        to->delivered = is->last_attempt;
    }
    if (!moved || retained_is_done(k))
        return;
    unlist(r->retained, k);
    list_fresh(r->retained, k);
}

bool retained_see(struct relay *r, struct retained *k, const struct envelope *env)
{
    if (!fits(k, env))
        return false;
    bring_up_to_date(r, k, env);
    return true;
}

struct retained *retained_keep(struct entry *e, bool *unknown_r)
{
    size_t n = count_retained(&e->envelope);
    struct retained *k = retained_find(e->relay, e->id);
    *unknown_r = false;
    ASSERT(n);
    if (k && (k->lane != e->lane || !fits(k, &e->envelope))) {
        retained_drop(e->relay, k);
        k = NULL;
    }
    if (!k && e->bodyless) {
        *unknown_r = true;
        return NULL;
    }
    if (!k)
        k = make(e, n);
    bring_up_to_date(e->relay, k, &e->envelope);
    return retained_is_done(k) ? NULL : k;
}

void retained_drop(struct relay *r, struct retained *k)
{
    struct retained_table *t = r->retained;
    struct retained **at = &t->bucket[slot(k->id, t->nbuckets)];
    while (*at != k) {
        ASSERT(*at);
        at = &(*at)->next;
    }
    *at = k->next;
    for (size_t i = 0; i < k->nrecipients; i++)
        drop_guid(t, &k->recipient[i]);
    unlist(t, k);
    TAILQ_REMOVE(&t->oldest, k, by_age);
    ASSERT(t->count && t->bytes >= k->bytes && k->lane->retained &&
           k->lane->retained_bytes >= k->bytes);
    t->count--;
    t->bytes -= k->bytes;
    k->lane->retained--;
    k->lane->retained_bytes -= k->bytes;
    tell_metrics(t);
    free(k);
}

void retained_forget(struct relay *r, const unsigned char id[ENTRYID_LEN])
{
    struct retained *k = r->retained->count ? retained_find(r, id) : NULL;
    if (k)
        retained_drop(r, k);
}

bool retained_is_done(const struct retained *k)
{
    if (k->let_go)
        return true;
    for (size_t i = 0; i < k->nrecipients; i++)
        if (!k->recipient[i].safe && !k->recipient[i].never)
            return false;
    return true;
}

const char *retained_let_go(const struct retained *k)
{
    if (k->let_go)
        return k->let_go;
    for (size_t i = 0; i < k->nrecipients; i++)
        if (!k->recipient[i].safe && k->recipient[i].never)
            return "never-known";
    return NULL;
}

double retained_oldest(const struct relay *r)
{
    const struct retained *k = TAILQ_FIRST(&r->retained->oldest);
    return k ? clock_monotonic() - k->since : 0.;
}

double retained_interval(const struct config_destination *d)
{
    double half = (double)d->replicated_wait / 2000.;
    return half < ASK_AGAIN ? half : ASK_AGAIN;
}

bool retained_can_ask(const char *address)
{
    return strlen(address) <= DISK_RCPT_MAX && strchr(address, '@') && !strchr(address, '"');
}

struct retained_table *retained_open(void)
{
    struct retained_table *t = mem_zero(sizeof *t);
    TAILQ_INIT(&t->fresh);
    TAILQ_INIT(&t->waiting);
    TAILQ_INIT(&t->oldest);
    grow(t);
    grow_guids(t);
    return t;
}

void retained_close(struct relay *r)
{
    struct retained *k;
    while ((k = TAILQ_FIRST(&r->retained->oldest)))
        retained_drop(r, k);
    free(r->retained->bucket);
    free(r->retained->guid);
    free(r->retained);
    r->retained = NULL;
}
