/* LANE.REVOKE: an entry that could not be stored everywhere in time, or is wanted elsewhere, is
 * taken back from every owner that has or may have it.
 *
 *   removed, absent   it is not there, and a PUSH that is still under way will not be stored
 *   gone              a relay has delivered it: the recipient has the mail, so it must not go anywhere else
 *   leased            a relay is delivering it: ask again until it is removed or gone, at most revoke_wait
 *
 * An owner that does not answer is waited for as long as suspect_after; the command stays in its
 * pipe behind the PUSH, so a server that only stood still executes both. What it may deliver
 * meanwhile is called unsure. */
#include "lib/base/assert.h"
#include "lib/store/store_work.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"

#define OWED_MOST 10000

/* A revocation whose entry was given up as unsure: the sooner its owner hears it, the less is
 * delivered twice. */
struct owed_revoke {
    struct owed_revoke *next;
    char *lane;
    unsigned char id[ENTRYID_LEN];
};

static void send_revoke(struct copy *c);

static void owe(const struct copy *c)
{
    struct link *l = c->link;
    if (l->nowed == OWED_MOST)
        return;
    struct owed_revoke *o = mem_alloc(sizeof *o);
    o->next = NULL;
    o->lane = mem_strdup(c->entry->lane);
    memcpy(o->id, c->entry->id, ENTRYID_LEN);
    *l->owed_last = o;
    l->owed_last = &o->next;
    l->nowed++;
}

static struct owed_revoke *next_owed(struct link *l)
{
    struct owed_revoke *o = l->owed;
    if (!o)
        return NULL;
    l->owed = o->next;
    if (!l->owed)
        l->owed_last = &l->owed;
    ASSERT(l->nowed);
    l->nowed--;
    return o;
}

static void ignore(struct wire *w, redisReply *reply, void *arg)
{
    (void)w, (void)reply, (void)arg;
}

static void send_owed(struct link *l)
{
    struct owed_revoke *o;
    while ((o = next_owed(l))) {
        const char *argv[] = {"LANE.REVOKE", o->lane, (const char *)o->id};
        size_t len[] = {11, strlen(o->lane), ENTRYID_LEN};
        wire_send(node_wire(l->node), ignore, NULL, 3, argv, len);
        free(o->lane);
        free(o);
    }
}

/* Whether all copies are known to be gone or clear; or the patience with them is over. */
static void look(struct entry_work *e)
{
    if (e->phase != PHASE_REVOKING)
        return;
    const struct config *cf = e->work->store->config;
    double waited = clock_monotonic() - e->revoke_started;
    bool open = false, gone = false, unsure = false;
    for (size_t i = 0; i < e->ncopies; i++) {
        struct copy *c = &e->copy[i];
        gone |= c->revoke == REVOKE_GONE;
        if (c->revoke == REVOKE_NONE || c->revoke == REVOKE_CLEAR || c->revoke == REVOKE_GONE)
            continue;
        double patience = c->leased
                              ? (double)cf->revoke_wait / 1000.
                              : store_watch_time(e->work->store, c->link->index, FAR_SUSPECT_AFTER);
        if (waited < patience)
            open = true;
        else
            unsure = true;
    }
    if (gone) {
        /* The others need not be waited for: the relay that delivered acks them, and our
         * revocations are under way. */
        store_entry_done(e, STORE_DELIVERED);
    } else if (open) {
        work_poll_later(e->work);
    } else {
        if (unsure) {
            for (size_t i = 0; i < e->ncopies; i++)
                if (e->copy[i].revoke == REVOKE_AGAIN)
                    owe(&e->copy[i]);
            metric_add(store_unsure, 1);
            store_reason(e, "%s; could not be revoked everywhere, may be sent more than once",
                         e->entry->reason);
        }
        store_entry_done(e, unsure ? STORE_UNSURE : STORE_REFUSED);
    }
}

static void on_revoke(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct copy *c = arg;
    const char *word = NULL;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
        word = reply->element[0]->str;
    c->leased = word && !strcmp(word, "LEASED");
    if (word && (!strcmp(word, "REMOVED") || !strcmp(word, "ABSENT")))
        c->revoke = REVOKE_CLEAR;
    else if (word && !strcmp(word, "GONE"))
        c->revoke = REVOKE_GONE;
    else
        c->revoke = REVOKE_AGAIN; /* leased, connection lost, or refused by Redis itself */
    struct work *work = c->entry->work;
    if (!reply && c->entry->phase == PHASE_DONE)
        owe(c);
    look(c->entry);
    work_unref(work);
}

static void send_revoke(struct copy *c)
{
    c->revoke = REVOKE_AGAIN;
    if (!node_ready(c->link->node))
        return;
    const char *argv[] = {"LANE.REVOKE", c->entry->lane, (const char *)c->entry->id};
    size_t len[] = {11, strlen(c->entry->lane), ENTRYID_LEN};
    if (!wire_send(node_wire(c->link->node), on_revoke, c, 3, argv, len))
        return;
    c->revoke = REVOKE_SENT;
    c->entry->work->refs++;
    metric_add(store_revoked, 1);
}

void store_revoke_start(struct entry_work *e)
{
    ASSERT(e->entry && (e->phase == PHASE_STORING || e->phase == PHASE_HELD));
    e->phase = PHASE_REVOKING;
    e->revoke_started = clock_monotonic();
    for (size_t i = 0; i < e->ncopies; i++) {
        struct copy *c = &e->copy[i];
        if (c->state == COPY_SENT || c->state == COPY_ACKED)
            send_revoke(c);
    }
    look(e);
}

static void ask_again(struct entry_work *e, const struct link *only)
{
    for (size_t i = 0; i < e->ncopies && e->phase == PHASE_REVOKING; i++) {
        struct copy *c = &e->copy[i];
        if (c->revoke == REVOKE_AGAIN && (!only || c->link == only))
            send_revoke(c);
    }
}

void store_revoke_poll(struct work *w)
{
    for (size_t i = 0; i < w->nentries; i++) {
        ask_again(&w->entry[i], NULL);
        look(&w->entry[i]);
    }
}

void store_revoke_again(struct link *l)
{
    send_owed(l);
    for (struct work *w = l->store->live; w; w = w->live_next)
        for (size_t i = 0; i < w->nentries; i++)
            ask_again(&w->entry[i], l);
}
