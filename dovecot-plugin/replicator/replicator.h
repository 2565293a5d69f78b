/* replicator - what the parts of dovelane-replicator have in common.
 *
 *     hints, sweep ─▶ user (what is to be done for whom) ─▶ sched (who is next) ─▶ worker (frames)
 *     inbox, asked, commits ──▶   ▲                                                  │ SEND
 *                        └── DONE: what is unconfirmed, behind, due ◀────────────────┤
 *     ledger (replicator.db), progress, reserve                                      └──▶ pace ─▶ outbox (lanes)
 *
 * Calls go down: state, lanes, users, workers, admin, replicator.c. What a room finds for one above
 * it goes by callbacks (struct inbox_calls, outbox_calls, admin_calls, ledger_on_loss). Or it goes
 * by what the room says of a user (user.h), which the workers read in the loop's next turn.
 *
 * All of it runs on one libev loop and one thread, and knows nothing of Dovecot. bridge.c embeds
 * the loop in Dovecot's own, so tests run the same code with sockets of their own. Times are
 * seconds of clock_monotonic unless noted. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_REPLICATOR_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_REPLICATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <ev.h>

#include "lib/config/config.h"
#include "dovecot-plugin/replicator/site/group.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/queue.h"
#include "dovecot-plugin/protocol/parcel.h"

/* Seconds between two pings of a node: most of what is asked while nothing happens. Nobody waits
 * for them. A request that is sent over a dead path has the other one tried (wire.h), and TCP's
 * keepalive ends a dead connection. */
#define REPLICATOR_PING 5.

struct reserve;

struct replicator {
    struct ev_loop *loop;
    const struct config *config;
    struct group group;
    char *directory; /* of replicator.db and the reserve */
    bool first;      /* no run before this one is known of: all users are swept */
    bool unclean;    /* the last run did not stop by itself: all users are swept */
    /* a hash of which process started this one: Dovecot's master, whose hints' FIFO goes with it */
    uint64_t parent;
    /* the last run had another one. What was told between its end and the FIFO's is not known:
     * all users are swept */
    bool adopted;
    bool asked_for;      /* relays ask whether deliveries are safe, or did so once */
    bool told_asked_for; /* and so the workers were told */
    bool unswept;        /* a sweep of all has begun and is not over: the next run begins it anew */
    bool stopping;

    struct ledger *ledger;
    struct reserve *reserve;
    struct progress *progress;
    struct pace *pace;
    struct unproven *unproven;
    struct retire *retire;
    struct users *users;
    struct questions *questions;
    struct commits *commits;
    struct fetches *fetches;
    struct sched *sched;
    struct holders *holders;
    struct workers *workers;
    struct resend *resend;
    struct claims *claims;
    struct outbox *outbox;
    struct inbox *inbox;
    struct asked *asked;
    struct hints *hints;
    struct sweep *sweep;
    struct admin *admin;

    ev_prepare turn; /* before the loop waits: what this turn of it has made possible */
    ev_timer look;   /* while somebody waits for a worker */
    ev_timer grace;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* config lives as long as the replicator. self: index of this replica in it. worker_socket:
 * path. NULL when the ledger or the reserve cannot be opened (logged). */
struct replicator *replicator_open(struct ev_loop *, const struct config *, size_t self,
                                   const char *worker_socket);

/* Takes no more hints and parcels, lets the workers close their users, and calls stopped when
 * that is done or eight seconds are over. */
void replicator_stop(struct replicator *, void (*stopped)(void *arg), void *arg);
void replicator_close(struct replicator *);

extern const struct orset_alloc replicator_heap;

/* true at most once in that many seconds per *last (0 at first): for log lines that a peer or
 * client could repeat. */
static inline bool replicator_may_say(double *last, double every)
{
    double now = clock_monotonic();
    if (*last != 0 && now - *last < every)
        return false;
    *last = now;
    return true;
}

/* Arguments for "%.*s" of what came from outside; log_line cleans control characters. */
#define SHOW(t) (int)((t).n < 200 ? (t).n : 200), (const char *)(t).p

static inline double seconds(int64_t ms)
{
    return (double)ms / 1000.;
}

#endif
