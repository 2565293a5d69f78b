/* arrivals - marks users by what the inbox and the outbox tell of their parcels. */
#include "dovecot-plugin/replicator/users/arrivals.h"

#include <string.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/users/pace.h"
#include "dovecot-plugin/replicator/users/questions.h"
#include "dovecot-plugin/replicator/users/resend.h"
#include "dovecot-plugin/replicator/users/retire.h"
#include "dovecot-plugin/replicator/users/unproven.h"

#define SAME_LOOKED_AT 64 /* parcels of a user among which a batch is looked for that came before */

/* Sent again, since nothing of it is confirmed: but the first one is still in flight. */
static bool is_in_flight(const struct user *u, const struct parcel_in_flight *came)
{
    const struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels);
    for (int i = 0; came->first && p && i < SAME_LOOKED_AT; i++, p = TAILQ_NEXT(p, in_user))
        if (p->peer == came->peer && p->first == came->first)
            return true;
    return false;
}

/* Whose parcels are taken only to be dropped: nobody else may wait for him. */
static bool is_unwilling(const struct user *u, size_t bytes)
{
    return clock_monotonic() < u->unknown_until ||
           !user_has_room(u, bytes, inbox_crowded(u->r->inbox));
}

static struct user *came(struct replicator *r, struct text name, const struct parcel_in_flight *p)
{
    if (parcel_is_retirement(p->kind)) {
        retire_came(r->retire, name, p);
        return NULL;
    }
    if (questions_heard(r->questions, name, p))
        return NULL;
    struct user *named = user_find(r->users, (const char *)name.p, name.n);
    if (parcel_is_answer(p->kind) && (!named || !named->worker)) /* who asked is gone */
        return NULL;
    if (!unproven_may_name(r->unproven, p->peer, name, named))
        return NULL;
    struct user *u = user_get(r->users, (const char *)name.p, name.n);
    if (u && u->peer[p->peer].untold) {
        retire_tell_again(u, p->peer);
        return NULL;
    }
    if (u && u->peer[p->peer].apart && u->worker)
        return NULL;
    pace_came(r->pace, u, p->peer, p->kind, p->body);
    return u && !is_unwilling(u, p->body.n) && !is_in_flight(u, p) ? u : NULL;
}

static void trim_slow(struct user *u, void *arg)
{
    (void)arg;
    user_trim_slow(u);
}

static void crowded(struct replicator *r)
{
    users_each(r->users, trim_slow, NULL);
}

static bool unsent(struct replicator *r, const char *name, size_t peer, uint64_t first)
{
    struct user *u = user_find(r->users, name, strlen(name));
    if (u)
        user_unsent(u, peer, first);
    return u != NULL;
}

static void plan(struct user *u, void *arg)
{
    (void)arg;
    user_plan(u);
}

static void room(struct replicator *r)
{
    users_each(r->users, plan, NULL);
}

static void resend(struct replicator *r, size_t peer)
{
    resend_all(r->resend, peer);
    retire_resend(r->retire, peer);
}

const struct inbox_calls arrivals_from_inbox = {came, user_parcel, crowded};
const struct outbox_calls arrivals_from_outbox = {unsent, room, resend};
