/* turn - gives turns, and takes them back. */
#include "dovecot-plugin/replicator/users/turn.h"

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/users/holders.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"

/* Seconds for which a user's worker waits for the answer of an exchange while others wait for a
 * worker. */
#define HOLD 2.
/* The same of an only worker: nobody else answers the peers meanwhile, so one of two sites gives
 * way. */
#define HOLD_ONLY 0.2
#define TURNS 20  /* as many first turns take as long as a worker's answer may */
#define DOUBLED 3 /* times at most */

static double turn_length(const struct user *u)
{
    unsigned doubled = u->turn.used < DOUBLED ? u->turn.used : DOUBLED;
    return seconds(u->r->config->worker_timeout) / TURNS * (double)(1U << doubled);
}

bool turn_may_ask(const struct user *u, bool is_next)
{
    return u->turn.has || user_kind(u) != USER_ORDINARY ||
           (is_next && turn_is_free(u->r, u->turn.used > 0));
}

bool turn_is_free(const struct replicator *r, bool used)
{
    size_t n = 0, all = 0, used_up = 0, most = (size_t)r->config->replicator_workers;
    const struct user *u;
    TAILQ_FOREACH (u, r->holders, in_holders) {
        bool ordinary = u->turn.has && user_kind(u) == USER_ORDINARY;
        all += u->turn.has;
        n += ordinary;
        used_up += ordinary && u->turn.used > 0;
    }
    if (used && used_up > 0 && 2 * (used_up + 1) >= most)
        return false;
    return n == 0 || all + 1 < most;
}

void turn_take(struct user *u)
{
    ASSERT(u->holds);
    if (!u->turn.has)
        u->turn.until = clock_monotonic() + turn_length(u);
    u->turn.waits_since = 0;
    u->turn.has = true;
}

/* A turn without an end, however it ends: but who took little of it may have met a site that is
 * away. */
void turn_leave(struct user *u)
{
    if (u->turn.has && u->turn.asking && clock_monotonic() >= u->turn.until - turn_length(u) / 2)
        u->turn.used++;
    u->turn.has = false;
}

void turn_forget(struct user *u)
{
    turn_leave(u);
    u->turn.asking = u->turn.asked_on = false;
    u->turn.hold = 0;
}

void turn_pause(struct user *u)
{
    u->turn.has = u->turn.has && u->turn.asking;
}

double turn_hold_for(const struct replicator *r)
{
    bool first = r->config->replicator_workers > 1;
    for (size_t i = 0; i < r->group.npeers && !first; i++)
        first = r->group.self < r->group.peer[i].site;
    return first ? HOLD : HOLD_ONLY;
}

/* An exchange lives in the worker's memory. Closed for somebody else's sake between question and
 * answer it would begin anew with each opening, and with more users than workers never end. A
 * site that takes nothing gives no answer. */
bool turn_answered(struct user *u, const struct parcel_in_flight *parcel,
                   const struct frame_done *d, bool is_next)
{
    const struct replicator *r = u->r;
    bool was = u->turn.asking, asks = false, answer = parcel && parcel_is_answer(parcel->kind);
    u->turn.asking = false;
    for (size_t k = 0; k < d->nsites; k++) {
        int i = group_peer(&r->group, d->site[k].site);
        bool answered =
            answer && i == (int)parcel->peer && (u->turn.asked_on || !d->site[k].asking);
        if (answered && d->result == FRAME_OK)
            u->peer[i].cut_offs = 0;
        asks = asks || d->site[k].asking;
        u->turn.asking = u->turn.asking ||
                         (d->site[k].asking && i >= 0 && outbox_answered(r->outbox, (size_t)i));
    }
    if (!asks && was)
        u->turn.used = 0;
    /* One that asks by itself is before nobody. */
    if (!u->turn.asking || !turn_may_ask(u, is_next)) {
        u->turn.hold = 0;
        return false;
    }
    if (!was || u->turn.asked_on || u->turn.hold == 0)
        u->turn.hold = clock_monotonic() + turn_hold_for(r);
    turn_take(u);
    return true;
}

/* Not all of them, else all wait for answers here and at the peer nobody is left who gives them. */
bool turn_holds(const struct user *u, double now)
{
    const struct user *o;
    size_t before = 0;
    if (now >= u->turn.hold || now >= u->turn.until)
        return false;
    TAILQ_FOREACH (o, u->r->holders, in_holders) {
        if (o == u)
            break;
        before += now < o->turn.hold && now < o->turn.until;
    }
    return before == 0 || before + 1 < (size_t)u->r->config->replicator_workers;
}
