/* LANE.PUSH: what was submitted in one turn of the loop goes to each node in as few commands as
 * possible.
 *
 * Every connection has its own session, so numbers never have to be carried over a lost
 * connection: what was unanswered is sent again in a new session, and the server knows the ids
 * it holds or removed within `settle` (which is longer than any deadline of ours, config.c
 * checks it). */
#include "lib/base/assert.h"
#include "lib/store/store_work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "lib/base/number.h"

#define BATCH_ENTRIES 64
#define BATCH_BYTES (512 * 1024)
#define FULL_PAUSE 1.0 /* seconds */

struct batch {
    struct link *link;
    uint64_t session;
    size_t n;
    struct copy *copy[BATCH_ENTRIES];
};

void store_push_queue(struct copy *c)
{
    struct link *l = c->link;
    c->next = NULL;
    *l->outbox_last = c;
    l->outbox_last = &c->next;
}

/* ---- answers ---- */

/* reason: its first word counts. */
void store_count_refusal(const struct link *l, const char *reason)
{
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(reason, " :,"), reason);
    metric_series_add(metric_series(METRIC_store_refusals, node_name(l->node), word), 1);
}

static void copy_refused(struct copy *c, const char *why)
{
    c->state = COPY_REFUSED;
    struct entry_work *e = c->entry;
    if (e->phase != PHASE_STORING)
        return;
    store_reason(e, "%s: %s", node_name(c->link->node), why);
    store_revoke_start(e);
}

static bool every_copy_acked(const struct entry_work *e)
{
    for (size_t i = 0; i < e->ncopies; i++) {
        const struct copy *c = &e->copy[i];
        /* An ack counts only while the server that gave it lives: another run_id holds nothing
         * of it. */
        if (c->state != COPY_ACKED || c->life != node_life(c->link->node))
            return false;
    }
    return true;
}

static void acked(struct copy *c)
{
    c->state = COPY_ACKED;
    c->life = node_life(c->link->node);
    if (!c->link->store_seconds)
        c->link->store_seconds =
            metric_series(METRIC_store_seconds, node_name(c->link->node), NULL);
    metric_observe(c->link->store_seconds, clock_monotonic() - c->sent);
    struct entry_work *e = c->entry;
    ASSERT(e->ncopies);
    if (e->phase != PHASE_STORING || !every_copy_acked(e))
        return;
    e->phase = PHASE_HELD;
    store_entry_done(e, STORE_STORED);
}

static void one_answer(struct copy *c, const redisReply *r)
{
    if (r->type == REDIS_REPLY_INTEGER && r->integer > 0) {
        acked(c);
        return;
    }
    const char *word = r->str ? r->str : "?";
    if (!strcmp(word, "DONE")) {
        acked(c);
        return;
    }
    if (!strcmp(word, "MEMORY")) {
        c->link->store->full_until[c->link->index] = clock_monotonic() + FULL_PAUSE;
        word = "memory is full";
    }
    metric_add(store_refused, 1);
    store_count_refusal(c->link, word);
    copy_refused(c, word);
}

static void new_session(struct link *l)
{
    static uint64_t next;
    if (!next) {
        unsigned char id[ENTRYID_LEN];
        entryid_make(id);
        memcpy(&next, id + 8, sizeof next);
    }
    l->session = ++next;
    l->txn = 0;
}

static void answers(struct batch *b, redisReply *reply)
{
    bool whole = reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
                 reply->element[1]->type == REDIS_REPLY_ARRAY &&
                 reply->element[1]->elements == b->n;
    if (whole) {
        for (size_t i = 0; i < b->n; i++)
            one_answer(b->copy[i], reply->element[1]->element[i]);
        return;
    }
    const char *why =
        reply->type == REDIS_REPLY_ERROR ? reply->str : "an answer of another form than expected";
    /* A refusal before the module saw the command used up no number: those behind it in the
     * pipeline have a gap now. They were not stored, and go again in a new session. */
    bool gap = reply->type == REDIS_REPLY_ERROR && !strncmp(why, "TXNGAP", 6);
    if (b->session == b->link->session)
        new_session(b->link);
    for (size_t i = 0; i < b->n; i++) {
        struct copy *c = b->copy[i];
        if (gap && c->entry->phase == PHASE_STORING) {
            c->state = COPY_UNSENT;
            store_push_queue(c);
        } else {
            store_count_refusal(c->link, why);
            copy_refused(c, why);
        }
    }
    if (gap)
        store_push_flush(b->link->store);
}

static void on_push(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct batch *b = arg;
    /* Without a reply the copies stay COPY_SENT: they may have been stored. store_push_again or
     * the deadline goes on with them. */
    if (reply)
        answers(b, reply);
    for (size_t i = 0; i < b->n; i++)
        work_unref(b->copy[i]->entry->work);
    free(b);
}

/* ---- requests ---- */

struct command {
    int argc;
    const char *argv[16 + BATCH_ENTRIES * 5];
    size_t len[16 + BATCH_ENTRIES * 5];
};

static void arg(struct command *c, const char *s, size_t n)
{
    c->argv[c->argc] = s;
    c->len[c->argc++] = n;
}

static size_t key_index(const char **key, size_t *nkeys, const char *lane)
{
    for (size_t i = 0; i < *nkeys; i++)
        if (!strcmp(key[i], lane))
            return i + 1;
    key[(*nkeys)++] = lane;
    return *nkeys;
}

static void send_batch(struct batch *b)
{
    static _Thread_local struct command c;
    struct link *l = b->link;
    const char *key[BATCH_ENTRIES];
    char numkeys[NUMBER_TEXT], session[24], txn[NUMBER_TEXT], n[NUMBER_TEXT],
        k[BATCH_ENTRIES][NUMBER_TEXT];
    size_t nkeys = 0, index[BATCH_ENTRIES];
    ASSERT(b->n && b->n <= BATCH_ENTRIES);
    for (size_t i = 0; i < b->n; i++)
        index[i] = key_index(key, &nkeys, b->copy[i]->entry->lane);
    c.argc = 0;
    arg(&c, "LANE.PUSH", 9);
    arg(&c, numkeys, number_text(numkeys, nkeys));
    for (size_t i = 0; i < nkeys; i++)
        arg(&c, key[i], strlen(key[i]));
    arg(&c, "SESSION", 7);
    arg(&c, session, (size_t)snprintf(session, sizeof session, "%016" PRIx64, l->session));
    arg(&c, txn, number_text(txn, ++l->txn));
    arg(&c, "ENTRIES", 7);
    arg(&c, n, number_text(n, b->n));
    for (size_t i = 0; i < b->n; i++) {
        struct entry_work *e = b->copy[i]->entry;
        arg(&c, k[i], number_text(k[i], index[i]));
        arg(&c, (const char *)e->id, ENTRYID_LEN);
        arg(&c, e->entry->meta, e->entry->meta_len);
        arg(&c, e->work->request->body, e->work->request->body_len);
    }
    b->session = l->session;
    double now = clock_monotonic();
    for (size_t i = 0; i < b->n; i++) {
        b->copy[i]->state = COPY_SENT;
        b->copy[i]->sent = now;
        b->copy[i]->entry->work->refs++;
    }
    wire_send(node_wire(l->node), on_push, b, c.argc, c.argv, c.len);
}

static void flush_link(struct link *l)
{
    struct batch *b = NULL;
    size_t bytes = 0;
    struct copy *c = l->outbox, *next;
    l->outbox = NULL;
    l->outbox_last = &l->outbox;
    for (; c; c = next) {
        next = c->next;
        /* Given up, or the connection went away meanwhile: nothing of it is on the wire, and
         * store_push_again finds it. */
        if (c->entry->phase != PHASE_STORING || !node_ready(l->node))
            continue;
        size_t size = c->entry->work->request->body_len + c->entry->entry->meta_len;
        if (b && (b->n == BATCH_ENTRIES || bytes + size > BATCH_BYTES)) {
            send_batch(b);
            b = NULL;
        }
        if (!b) {
            b = mem_alloc(sizeof *b);
            b->link = l;
            b->n = 0;
            bytes = 0;
        }
        b->copy[b->n++] = c;
        bytes += size;
    }
    if (b)
        send_batch(b);
}

void store_push_flush(struct store *s)
{
    for (size_t i = 0; i < s->nlinks; i++)
        if (s->link[i].outbox)
            flush_link(&s->link[i]);
}

/* Those that another life of the server had are not wanted in this one, if they are ordered: it
 * has to be refilled with what was promised before them first. */
static void push_copy_again(struct copy *c)
{
    struct entry_work *e = c->entry;
    bool stale = c->state == COPY_ACKED && c->life != node_life(c->link->node);
    if (c->state != COPY_SENT && c->state != COPY_UNSENT && !stale)
        return;
    if (e->generation && c->born != node_life(c->link->node)) {
        copy_refused(c, "it was restarted, and the lane is an ordered one");
        return;
    }
    c->state = COPY_UNSENT;
    store_push_queue(c);
}

/* Nothing is in the outbox now: that lasts for one turn of the loop only. The server may have
 * executed what it did not answer: it answers DONE then. In a new life it knows nothing: what
 * the old one acked goes again, too. */
void store_push_again(struct link *l)
{
    new_session(l);
    for (struct work *w = l->store->live, *next; w; w = next) {
        next = w->live_next; /* w leaves the list when that was its last open entry */
        w->refs++;
        for (size_t i = 0; i < w->nentries; i++) {
            struct entry_work *e = &w->entry[i];
            for (size_t k = 0; k < e->ncopies && e->phase == PHASE_STORING; k++)
                if (e->copy[k].link == l)
                    push_copy_again(&e->copy[k]);
        }
        work_unref(w);
    }
    store_push_flush(l->store);
}
