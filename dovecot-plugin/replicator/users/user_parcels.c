/* user_parcels - a user's parcels in flight (user.h). */
#include "dovecot-plugin/replicator/users/user.h"

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/metrics.h"

/* in flight, beside the first parcel, of a user who cannot take any now, ... */
#define FAILING_BYTES (1024 * 1024)
#define FAILING_MAX 64 /* ... and parcels */

void user_parcel_add(struct user *u, struct parcel_in_flight *p)
{
    TAILQ_INSERT_TAIL(&u->parcels, p, in_user);
    u->nparcels++;
    u->parcel_bytes += p->body.n;
}

void user_parcel_remove(struct user *u, struct parcel_in_flight *p)
{
    ASSERT(u->nparcels > 0 && u->parcel_bytes >= p->body.n && u->nwaiting >= p->waits);
    TAILQ_REMOVE(&u->parcels, p, in_user);
    u->nparcels--;
    u->parcel_bytes -= p->body.n;
    u->nwaiting -= p->waits;
    u->waiting_until = u->nwaiting > 0 ? u->waiting_until : 0;
    p->waits = false;
}

void user_parcel_done(struct user *u, struct parcel_in_flight *p)
{
    user_parcel_remove(u, p);
    inbox_done(u->r->inbox, p);
}

void user_drop_parcels(struct user *u)
{
    metric_add(replicator_dropped, (long long)u->nparcels);
    while (!TAILQ_EMPTY(&u->parcels))
        user_parcel_done(u, TAILQ_FIRST(&u->parcels));
}

void user_drop_answers(struct user *u)
{
    for (struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels), *next; p; p = next) {
        next = TAILQ_NEXT(p, in_user);
        if (!parcel_is_answer(p->kind))
            continue;
        metric_add(replicator_dropped, 1);
        user_parcel_done(u, p);
    }
}

static bool is_slow(const struct user *u)
{
    return u->asked_at != 0 && clock_monotonic() - u->asked_at > USER_LENGTHY_AFTER;
}

bool user_has_room(const struct user *u, size_t bytes, bool crowded)
{
    double now = clock_monotonic();
    bool failing = u->parcel_wait > 0 || u->open_wait > 0;
    if (!failing && !(crowded && is_slow(u)))
        return true;
    if (u->nparcels == 0)
        /* else it would never be tried again */
        return !crowded || (now >= u->parcel_after && now >= u->open_after);
    return !crowded && u->nparcels < FAILING_MAX &&
           u->parcel_bytes - TAILQ_FIRST(&u->parcels)->body.n + bytes <= FAILING_BYTES;
}

void user_trim_parcels(struct user *u, bool crowded)
{
    size_t kept = 0, n = 0;
    for (struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels), *next; p; p = next) {
        bool first = n++ == 0;
        next = TAILQ_NEXT(p, in_user);
        if (first && (!crowded || u->asked_at != 0)) /* a worker may have it */
            continue;
        if (!crowded && n <= FAILING_MAX && kept + p->body.n <= FAILING_BYTES) {
            kept += p->body.n;
            continue;
        }
        metric_add(replicator_dropped, 1);
        user_parcel_done(u, p);
    }
}

void user_trim_slow(struct user *u)
{
    if (u->nparcels > 1 && is_slow(u))
        user_trim_parcels(u, true);
}
