/* What follows from the lists: missing bodies are fetched, newer results taken over, and what
 * another owner is done with is dropped. */
#include "relay/repair/resync_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "relay/repair/backfill.h"

#define BATCH 1000    /* ids in one ACK */
#define REVISIONS 500 /* envelopes in one GET and META */

/* ---- FETCH ---- */

static void on_fetched(const char *trouble, size_t entries, size_t bytes, void *arg)
{
    struct resync *w = arg;
    struct other_lane *t = w->fetching;
    ASSERT(w->backfill && t);
    w->backfill = NULL;
    t->set->fetched += entries;
    t->set->bytes += bytes;
    metric_add(relay_refilled, (long long)entries);
    if (trouble)
        resync_fail_set(t->set, trouble);
    w->fetching = t->next;
    resync_answered(w);
    resync_fetch_next(w);
    resync_advance(w);
}

void resync_fetch_next(struct resync *w)
{
    while (w->fetching && (!w->fetching->n || !w->fetching->set->active ||
                           w->fetching->set->failed || w->abandoned))
        w->fetching = w->fetching->next;
    struct other_lane *t = w->fetching;
    if (!t)
        return;
    const struct config *c = w->relay->config;
    w->backfill = backfill_open(
        &(struct backfill_options){.loop = w->relay->loop,
                                   .from = node_wire(w->site[t->site].node),
                                   .to = node_wire(w->site[w->self].node),
                                   .lane = t->name,
                                   .lane_len = t->len,
                                   .wanted = t->wanted,
                                   .n = t->n,
                                   .block = c->refill_block,
                                   .rate = c->refill_rate,
                                   .settle = (double)c->settle / 1000.,
                                   .set = t->set->name,
                                   .token = t->set->witness >= 0 ? t->set->token : ""},
        on_fetched, w);
    w->open++;
}

/* ---- REVISE ---- */

/* A GET whose answer becomes a META at the other end. */
struct revising {
    struct resync *w;
    struct other_lane *t;
    struct wire *to;
};

static void on_revised(struct wire *wire, redisReply *reply, void *arg)
{
    struct revising *v = arg;
    struct resync *w = v->w;
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        resync_fail_set(v->t->set, reply ? reply->str : "the connection was lost");
    free(v);
    resync_answered(w);
    resync_advance(w);
}

static bool send_revisions(struct revising *v, const redisReply *list)
{
    size_t argc = 3, most = 3 + 3 * list->elements, n = 0;
    const char **word = mem_alloc(most * sizeof *word);
    size_t *len = mem_alloc(most * sizeof *len);
    char(*revision)[24] = mem_alloc((list->elements + 1) * sizeof *revision), count[24];
    for (size_t i = 0; i < list->elements; i++) {
        const redisReply *e = list->element[i];
        if (e->type != REDIS_REPLY_ARRAY || e->elements < 6 ||
            e->element[1]->type != REDIS_REPLY_STRING ||
            e->element[2]->type != REDIS_REPLY_INTEGER || e->element[5]->type != REDIS_REPLY_STRING)
            continue;
        word[argc] = e->element[1]->str, len[argc++] = e->element[1]->len;
        word[argc] = revision[n], len[argc++] = (size_t)snprintf(revision[n], sizeof revision[n],
                                                                 "%lld", e->element[2]->integer);
        word[argc] = e->element[5]->str, len[argc++] = e->element[5]->len;
        n++;
    }
    word[0] = "LANE.META", len[0] = 9;
    word[1] = v->t->name, len[1] = v->t->len;
    word[2] = count, len[2] = (size_t)snprintf(count, sizeof count, "%zu", n);
    v->t->set->revised += n;
    bool sent = n && wire_send(v->to, on_revised, v, (int)argc, word, len);
    free(word);
    free(len);
    free(revision);
    return sent;
}

static void on_envelopes(struct wire *wire, redisReply *reply, void *arg)
{
    struct revising *v = arg;
    struct resync *w = v->w;
    if (!reply || reply->type != REDIS_REPLY_ARRAY)
        resync_fail_set(v->t->set, reply && reply->str ? reply->str : "the connection was lost");
    else if (send_revisions(v, reply))
        return;
    free(v);
    resync_answered(w);
    resync_advance(w);
}

static void revise(struct resync *w, struct other_lane *t, const struct buf *ids, struct wire *from,
                   struct wire *to)
{
    for (size_t at = 0; at < ids->len; at += (size_t)REVISIONS * ENTRYID_LEN) {
        size_t len = ids->len - at < (size_t)REVISIONS * ENTRYID_LEN
                         ? ids->len - at
                         : (size_t)REVISIONS * ENTRYID_LEN;
        struct revising *v = mem_alloc(sizeof *v);
        *v = (struct revising){w, t, to};
        if (wire_sendf(from, on_envelopes, v, "LANE.GET %b PACKED %b NOBODY", t->name, t->len,
                       ids->data + at, len)) {
            w->open++;
            continue;
        }
        free(v);
        resync_fail_set(t->set, "the connection was lost");
        return;
    }
}

void resync_revise(struct resync *w)
{
    struct wire *own = node_wire(w->site[w->self].node);
    for (struct other_lane *t = w->there; t; t = t->next) {
        if (!t->set->active || t->set->failed)
            continue;
        revise(w, t, &t->newer_there, node_wire(w->site[t->site].node), own);
        revise(w, t, &t->newer_here, own, node_wire(w->site[t->site].node));
    }
}

/* ---- order ---- */

/* not a lane's name by our rule: nobody takes from it, and nobody sees it */
#define ASIDE_LANE "dovelane:order"

static void on_reordered(struct wire *wire, redisReply *reply, void *arg)
{
    struct revising *v = arg;
    struct resync *w = v->w;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[0]->type == REDIS_REPLY_ARRAY &&
                reply->element[1]->type == REDIS_REPLY_ARRAY;
    if (!good)
        resync_fail_set(v->t->set, reply && reply->str
                                       ? reply->str
                                       : "the connection was lost, or moving entries was refused");
    free(v);
    resync_answered(w);
    resync_advance(w);
}

static void ignore(struct wire *wire, redisReply *reply, void *arg)
{
}

/* What was stored here between the loss of what stood before it and its being noticed stands in
 * front of what was fetched now. Moving entries gives them new places, in one transaction:
 * between the two moves they would be nowhere for others. */
static void reorder(struct resync *w, struct other_lane *t)
{
    struct wire *own = node_wire(w->site[w->self].node);
    for (size_t at = 0; at < t->behind.len; at += (size_t)BATCH * ENTRYID_LEN) {
        size_t len = t->behind.len - at < (size_t)BATCH * ENTRYID_LEN ? t->behind.len - at
                                                                      : (size_t)BATCH * ENTRYID_LEN;
        struct revising *v = mem_alloc(sizeof *v);
        *v = (struct revising){w, t, own};
        bool sent = wire_sendf(own, ignore, NULL, "MULTI") &&
                    wire_sendf(own, ignore, NULL, "LANE.MOVE %b " ASIDE_LANE " PACKED %b", t->name,
                               t->len, t->behind.data + at, len) &&
                    wire_sendf(own, ignore, NULL, "LANE.MOVE " ASIDE_LANE " %b UPTO %lld", t->name,
                               t->len, 9223372036854775807LL) &&
                    wire_sendf(own, on_reordered, v, "EXEC");
        if (!sent) {
            free(v);
            resync_fail_set(t->set, "the connection was lost");
            return;
        }
        w->open++;
    }
}

void resync_reorder(struct resync *w)
{
    for (struct other_lane *t = w->there; t; t = t->next)
        if (t->behind.len && t->set->active && !t->set->failed)
            reorder(w, t);
}

/* ---- DROP ---- */

static void on_dropped(struct wire *wire, redisReply *reply, void *arg)
{
    struct resync *w = arg;
    if (!reply || reply->type == REDIS_REPLY_ERROR) {
        log_warning("entries that another owner is done with could not be dropped: %s",
                    reply ? reply->str : "the connection was lost");
        w->abandoned = true;
    }
    resync_answered(w);
    resync_advance(w);
}

static void drop_batch(struct resync *w, struct own_lane *h, struct buf *ids)
{
    if (!ids->len)
        return;
    if (wire_sendf(node_wire(w->site[w->self].node), on_dropped, w, "LANE.ACK %b PACKED %b",
                   h->name, h->len, ids->data, ids->len))
        w->open++;
    else
        w->abandoned = true;
    h->set->dropped += ids->len / ENTRYID_LEN;
    metric_add(relay_orphans, (long long)(ids->len / ENTRYID_LEN));
    buf_consume(ids, ids->len);
}

static void drop_lane(struct resync *w, struct own_lane *h)
{
    struct buf ids = {0};
    bool taking = lanes_get(w->relay, h->name, h->len)->taking;
    /* Only a whole owner's word that it holds something no more takes it away here. */
    ASSERT(h->set->active && !h->set->failed && h->set->witness >= 0 && w->mode != JOIN);
    for (size_t i = 0; i < h->n; i++) {
        struct own_entry *e = &h->entry[i];
        if (e->matched || inflight_find(w->relay, e->id))
            continue;
        if (!e->old || taking) {
            h->set->young = true;
            continue;
        }
        buf_add(&ids, e->id, ENTRYID_LEN);
        if (ids.len == (size_t)BATCH * ENTRYID_LEN)
            drop_batch(w, h, &ids);
    }
    drop_batch(w, h, &ids);
    buf_free(&ids);
}

void resync_drop(struct resync *w)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct own_lane *h = w->bucket[i]; h; h = h->next)
            if (h->set->active && !h->set->failed && h->set->witness >= 0 && w->mode != JOIN)
                drop_lane(w, h);
}
