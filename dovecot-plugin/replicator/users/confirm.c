/* confirm - decides when a user is opened only to confirm. */
#include "dovecot-plugin/replicator/users/confirm.h"

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"

#define WAITS_MOST 4096 /* bytes of one that waits */

bool confirm_first(struct user *u)
{
    const struct replicator *r = u->r;
    double now = clock_monotonic();
    bool any = false;
    for (size_t i = 0; i < r->group.npeers; i++) {
        struct user_peer *p = &u->peer[i];
        bool resends = p->want & 1u << FRAME_SHIP_CONFIRMED; /* which says it, too */
        if (!p->owed || resends || now < p->ship_after || r->group.peer[i].removed ||
            !outbox_answered(r->outbox, i))
            continue;
        p->owed = false;
        p->want |= 1u << FRAME_SHIP_HELLO;
        any = true;
    }
    return any;
}

/* Not where more follows from it than that ops are confirmed: of a state that is new, of a user
 * whose mails wait for bodies (who spoke, and did not bring them, counts), or where that site
 * waits for the word that this one has read its mailboxes. A user who is apart has rules of his
 * own. */
static bool may_wait(const struct user *u, const struct parcel_in_flight *p)
{
    const struct replicator *r = u->r;
    bool plain = !u->joins && u->unplaced == 0 && !u->peer[p->peer].told_reading &&
                 user_kind(u) == USER_ORDINARY;
    return !u->worker && plain && p->kind == PARCEL_BATCH && p->first == 0 &&
           p->body.n <= WAITS_MOST && take_may_wait(r->inbox) &&
           parcel_confirms(p->body, r->group.self, u->epoch, u->counter);
}

static void forget_older(struct user *u, const struct parcel_in_flight *newest)
{
    struct parcel_in_flight *p;
    TAILQ_FOREACH (p, &u->parcels, in_user)
        if (p != newest && p->waits && p->peer == newest->peer) {
            user_parcel_done(u, p);
            return;
        }
}

/* Of that site one that came later waits already: what waits is the newest. */
static bool is_outdated(const struct parcel_in_flight *p)
{
    const struct parcel_in_flight *later = TAILQ_NEXT(p, in_user);
    while (later && !(later->waits && later->peer == p->peer))
        later = TAILQ_NEXT(later, in_user);
    return later != NULL;
}

void confirm_heard(struct user *u, struct parcel_in_flight *p)
{
    if (p->waits || is_outdated(p) || !may_wait(u, p))
        return;
    p->waits = true;
    u->nwaiting++;
    if (u->waiting_until == 0)
        u->waiting_until = clock_monotonic() + seconds(u->r->config->sweep_active);
    forget_older(u, p);
    take_waits(u->r->inbox, p);
    user_all_confirmed(u, p->peer);
}

void confirm_closed(struct user *u)
{
    for (struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels), *next; p; p = next) {
        next = TAILQ_NEXT(p, in_user);
        confirm_heard(u, p);
    }
}

bool confirm_is_next(const struct user *u, double now)
{
    const struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels);
    return p && p->waits && now >= u->parcel_after;
}

void confirm_sends(struct user *u, const struct frame_parcel *send)
{
    int i = group_peer(&u->r->group, send->site);
    if (i < 0)
        return;
    if (send->kind == PARCEL_ANSWER_READING)
        u->peer[i].told_reading = true;
    else if (send->kind == PARCEL_READING && send->body.n == 1 && *send->body.p == PARCEL_HAS_READ)
        u->peer[i].told_reading = false;
}
