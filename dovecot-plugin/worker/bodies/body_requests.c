/* body_requests - bodies that are not here are asked for: once, of whoever sent the op, and again
 * of the next site when no answer came.
 *
 * An answer may lie behind much else in a slow link's lane, and asking again makes that lane
 * longer: the wait doubles each time. A site that has not got it, or has other bytes under its
 * name (a file that rotted; one GUID saved differently, F40), says so at once, or sends those:
 * then the next site is asked after a second, doubling. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#include <time.h>

#define ASK_AGAIN_SECS 10 /* at first, and when a part of it came */
#define ASK_AGAIN_SECS_MAX 600
#define WANTED_MOST 4000

struct body_requests {
    struct session *s;
    uint64_t ask;
    struct orset_buf list;
    uint8_t only[32]; /* asked for last */
    /* peers, bits, of which each that is asked for has just come in vain */
    uint64_t missed;
    /* bodies that are not here; asked for now; of these, without an answer to the last time */
    unsigned n, asked, again;
    bool silent; /* nothing is asked: an earlier session did */
};

struct body_requests *body_requests_begin(struct session *s, uint64_t ask)
{
    struct body_requests *w = i_new(struct body_requests, 1);
    w->s = s;
    w->ask = ask;
    w->list.alloc = session_alloc();
    w->missed = UINT64_MAX;
    if (array_count(&s->wanted) >= WANTED_MOST)
        body_requests_forget(s);
    return w;
}

void body_requests_silent(struct body_requests *w)
{
    w->silent = TRUE;
}

bool body_requests_full(const struct body_requests *w)
{
    return w->n >= PARCEL_WANTS_MAX;
}

struct body_request *body_request_find(struct session *s, const uint8_t sha256[32])
{
    struct body_request *body;
    array_foreach_modifiable (&s->wanted, body) {
        if (memcmp(body->sha256, sha256, 32) == 0)
            return body;
    }
    return NULL;
}

static unsigned wait_of(const struct body_request *body)
{
    return body->missed ? 1u << (I_MIN(body->misses, 10) - 1) : body->wait;
}

static bool is_awaited(const struct body_request *body)
{
    time_t now = time(NULL);
    return now >= body->asked && now - body->asked < wait_of(body);
}

time_t body_request_until(const struct body_request *body)
{
    return body->asked + wait_of(body);
}

bool body_request_is_vain(const struct session *s, const struct body_request *body)
{
    return body->not_at == (1ULL << s->npeers) - 1;
}

void body_requests_soon(struct session *s)
{
    struct body_request *body;
    time_t now = time(NULL);
    array_foreach_modifiable (&s->wanted, body) {
        if (body->missed || body->wait <= ASK_AGAIN_SECS ||
            (now >= body->asked && now - body->asked < ASK_AGAIN_SECS))
            continue;
        body->wait = ASK_AGAIN_SECS;
        plan_look_again(s, body->item);
        session_want_tick(s, 1000);
    }
}

void body_requests_forget(struct session *s)
{
    array_clear(&s->wanted);
    plan_look_again(s, 0);
}

void body_request_missed(struct session *s, struct body_request *body, const struct peer *p)
{
    i_assert(p >= s->peer && p < s->peer + s->npeers);
    body->misses++;
    body->missed_at = (unsigned)(p - s->peer);
    body->not_at |= 1ULL << body->missed_at;
    body->missed = TRUE;
    body->asked = time(NULL);
    body->offset = spool_size(s, body->sha256);
    body->until = body->offset + 1;
    plan_look_again(s, body->item);
    session_want_tick(s, wait_of(body) * 1000);
}

void body_request_awaited(struct body_requests *w)
{
    w->n++;
}

void body_request_given_up(struct body_requests *w)
{
    i_assert(w->n > 0);
    w->n--;
}

/* Not again while an answer may still come. */
struct body_request *body_request_add(struct body_requests *w, const struct orset_message *m,
                                      unsigned item)
{
    struct session *s = w->s;
    struct orset_origin o = orset_origin_get(s->os, m->dot.origin);
    struct parcel_want want = {.site = o.site,
                               .epoch = o.epoch,
                               .number = m->dot.counter,
                               .sha256 = m->facts.sha256,
                               .offset = spool_size(s, m->facts.sha256)};
    struct body_request *body = body_request_find(s, m->facts.sha256);
    time_t now = time(NULL);
    uint64_t missed = body != NULL && body->missed ? 1ULL << body->missed_at : 0;
    w->n++;
    if (body != NULL && body->item != item)
        body->item = 0; /* two mails of the same bytes: all are looked at when it comes */
    if (w->asked == PARCEL_WANTS_MAX || (body != NULL && want.offset >= body->offset &&
                                         want.offset < body->until && is_awaited(body)))
        return body;
    if (body == NULL) {
        body = array_append_space(&s->wanted);
        memcpy(body->sha256, m->facts.sha256, 32);
        body->size = m->facts.size;
        body->wait = ASK_AGAIN_SECS;
        body->item = item;
    } else if (body->missed) {
        body->missed = FALSE; /* an answer came, it was not one that is late */
    } else if (body->offset != want.offset) {
        body->wait = ASK_AGAIN_SECS;
    } else {
        body->wait = I_MIN(body->wait * 2, ASK_AGAIN_SECS_MAX);
        w->again++;
    }
    body->offset = want.offset;
    body->until = want.offset + 1;
    body->asked = now;
    if (w->silent) {
        body->until = want.offset + (uint64_t)PARCEL_PARTS_MAX * PARCEL_PART_MAX;
        return body;
    }
    memcpy(w->only, m->facts.sha256, sizeof w->only);
    w->missed &= missed;
    w->asked++;
    parcel_put_want(&w->list, &want);
    return body;
}

/* Not the one that has just answered in vain; but again after the others, of whom none may
 * answer. */
static uint64_t whom_to_ask(const struct body_requests *w)
{
    struct session *s = w->s;
    i_assert(s->npeers > 0);
    const struct peer *p = w->ask != 0 ? session_peer(s, w->ask) : NULL;
    for (unsigned i = 0; i < s->npeers && (p == NULL || (w->missed & 1ULL << (p - s->peer)) != 0);
         i++)
        p = &s->peer[s->ask_next++ % s->npeers];
    return p->site;
}

void body_requests_end(struct body_requests **_w)
{
    struct body_requests *w = *_w;
    struct session *s = w->s;
    struct orset_buf b = {.alloc = session_alloc()};
    *_w = NULL;
    /* Alone, more of it comes at once (give.c): a large mail would take as many round trips as
     * it has parts. */
    struct body_request *body = w->asked == 1 ? body_request_find(s, w->only) : NULL;
    if (body != NULL)
        body->until = body->offset + (uint64_t)PARCEL_PARTS_MAX * PARCEL_PART_MAX;
    if (w->n > 0 && s->npeers > 0)
        session_want_tick(s, ASK_AGAIN_SECS * 1000);
    if (w->again > 0)
        session_note(s, NOTE_INFO,
                     "%u bodies were asked for and did not come in time: asked for again",
                     w->again);
    if (w->asked > 0 && s->npeers > 0) {
        uint64_t site = whom_to_ask(w);
        parcel_put_wants(&b, w->asked);
        orset_buf_put(&b, w->list.data, w->list.len);
        if (!b.failed)
            session_send(s, site, PARCEL_WANT, TRUE, b.data, b.len);
    }
    orset_buf_free(&b);
    orset_buf_free(&w->list);
    i_free(w);
}
