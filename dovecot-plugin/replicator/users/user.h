/* user - what is to be done for whom, and when.
 *
 * A user is in memory while there is something to do, while a worker has it open, or while it
 * counts as active. What is to be done is a set, not a list: a second hint for the same mailbox
 * changes nothing. Only parcels stand in order. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_USER_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_USER_H

#include <ev.h>

#include "dovecot-plugin/replicator/lanes/inbox.h"

struct worker;
struct ending;
struct held_request;

/* What an admin wants of one user, and who hears what comes of it. */
struct admin_request {
    TAILQ_ENTRY(admin_request) link; /* in the user's list, until a worker is asked */
    struct user *user;
    const struct admin_calls *calls;
    bool reads; /* it changes nothing, and makes no user */
    size_t n;
    char *arg[FRAME_ARGS_MAX];
};
struct admin_calls {
    void (*row)(struct admin_request *, struct text);
    /* It is over, and the request is freed: its worker has answered; or there is no answer. later:
     * another time it may work. */
    void (*done)(struct admin_request *, const struct frame_done *);
    void (*failed)(struct admin_request *, const char *why, bool later);
};
TAILQ_HEAD(admin_requests, admin_request);

/* What one user and one peer have to say to each other. Moments are 0 when not set. */
struct user_peer {
    unsigned want; /* bits 1 << enum frame_ship: to be asked of a worker */
    uint64_t unconfirmed;
    int64_t since; /* microseconds since 1970: since when there is something unconfirmed */
    double resend_at, resend_wait, forget_after;
    /* since something was confirmed last. From the second on, one batch is sent: whether the
     * peer can take it by now */
    unsigned resends;
    /* number of the first own op that did not come into the lane; 0: all did that a worker sent */
    uint64_t missing;
    bool more;         /* a worker has more to send: so much goes out for one question */
    double ship_after; /* not before, after a failure */
    double hello_at;
    bool owed; /* ops of its came in, of which it was not told since */
    /* it knows that the mailboxes here are not read yet: when it has confirmed all, it hears that
     * they are */
    bool told_reading;
    bool behind;
    double exchange_at, exchange_wait;
    double exchange_asked; /* of a new state */
    bool asking;           /* its answer is waited for */
    unsigned cut_offs;     /* exchanges, one after the other, that were closed before an answer */
    /* it will not come: the next exchange is due, whatever is said meanwhile */
    bool cut_off;
    /* bytes of mails that were asked for and are charged; of one of them (pace.c) */
    double expected, each;
    double may;                /* bytes that the answer may bring */
    struct held_request *held; /* a request for mails that waits; NULL: none does */
    /* It has not said that it knows that an earlier user of this name was forgotten. Until then
     * nothing else of this one goes there, and nothing of it is taken (retire.h). */
    bool untold;
    bool apart; /* by the userdb's word it is not replicated with it, as of its last opening */
    double told_again; /* when what came of it made that to be told again */
};

/* USER_IN_TURN: it waits for its turn to exchange (turn_is_free). */
enum user_class {
    USER_FIRST,
    USER_SECOND,
    USER_LAST,
    USER_CLASSES,
    USER_IN_TURN = USER_CLASSES,
    USER_NOTHING
};

/* How long workers were held by its questions: of a slow one until they gave it up, of a lengthy
 * one for long, all together. */
enum user_kind { USER_ORDINARY, USER_LENGTHY, USER_SLOW, USER_KINDS };

struct user {
    LIST_ENTRY(user) in_hash;
    LIST_ENTRY(user) in_all;
    TAILQ_ENTRY(user) in_queue;
    struct replicator *r;
    char *name;
    /* Dovecot calls him so: this is another spelling, and nothing is to be done under it. NULL:
     * it is not */
    char *real;
    enum user_class queued; /* in which queue, USER_NOTHING: in none */
    struct worker *worker;  /* has it open, opens or closes it; NULL: nobody */
    bool stirred;           /* something changed since that had nothing to do for it */
    struct ending *ending;  /* its last worker's process has not ended; NULL: it has */
    /* under which workers open it (LOOKUP); 0: to be looked up. Changed while a worker has it
     * only */
    uint64_t credentials;
    bool holds;                   /* a worker's process (holders.h) */
    TAILQ_ENTRY(user) in_holders; /* while it does */
    ev_timer timer;               /* the next moment at which something becomes due */

    struct {                /* to exchange (turn.h) */
        double waits_since; /* also while it is open; 0: it does not */
        unsigned used;      /* turns that ended before the exchange did, one after the other */
        bool has;           /* it may exchange, and until then though others wait: */
        double until;
        /* While a worker has it open. asking: an exchange goes on in that one, which closing it
         * would end. hold: until when it is not closed for that. The next: the present question had
         * it ask a site on, so an exchange makes progress. */
        bool asking;
        double hold;
        bool asked_on;
    } turn;

    bool look_all, sweep, tick;
    /* hints named more mailboxes than one question holds: those whose files changed are looked
     * into, as by a sweep */
    bool look_many;
    size_t nlook; /* mailboxes named by hints */
    struct look {
        char guid[33];
        size_t n;
        char *name;
    } * look; /* FRAME_MAILBOXES_MAX, or NULL */
    struct parcels parcels;
    size_t nparcels, parcel_bytes;
    size_t nwaiting;         /* of the parcels: nobody is opened for them until then: */
    double waiting_until;    /* 0: none waits */
    uint64_t epoch, counter; /* own numbers, as a worker noted them last; 0: none did in this run */
    struct admin_requests admin;
    /* Requests to forget it. */
    struct admin_requests forgets;
    bool ask_userdb; /* before anything else: whether it has this user */

    size_t hints; /* since it was looked at */
    /* until it is looked at again, while so much happens that it is longer than hint_wait; else
     * 0 */
    double look_gap;
    double look_most; /* then it is looked at, whether hints have ended or not */
    double look_after, parcel_after, open_after; /* not before */
    /* after a failure: the next wait; 0 after a success */
    double look_wait, parcel_wait, open_wait;
    /* it could not be opened for good: its parcels are dropped */
    double unknown_until;
    /* its state is new: whatever looks at its mailboxes first asks the others, in turn */
    bool joins;
    double tick_at, sweep_at, active_at;
    double opened_at; /* by the worker that has it */
    bool tick_kept;   /* an earlier session wished it, of which the present one does not know */
    double asked_at;  /* a worker owes an answer, or its end, since then; 0: none does */
    struct {
        double until, wait; /* the second: for how long, the next time longer */
    } kind[USER_KINDS];
    enum user_kind queued_as; /* how it was queued */
    double busy, busy_at;     /* seconds that its questions took lately, as of then */
    bool elsewhere;           /* its last worker said ELSEWHERE */
    double said;              /* when its last failure was logged */
    /* of its mails: as a worker counted, kept over restarts (progress.c) */
    uint64_t unplaced, held;
    uint64_t kept_failed;     /* mails that cannot be kept, so that their removal waits */
    uint64_t unseen;          /* folders that cannot be read, so that all removals wait */
    uint64_t names;           /* of its folders, those that are not shown here by their name */
    uint64_t state_bytes;     /* of its state; 0: no worker said it yet */
    enum frame_joins joining; /* the same of its state */
    bool absent;              /* by the userdb's word: he is not here, or not replicated */
    bool known;               /* in the ledger */
    uint32_t owner;           /* the id that its files have, as a worker said */
    double owner_at;          /* when; 0: none did */
    bool unproven;            /* perhaps its name is made up (unproven.h) */
    size_t named_by; /* while it is: the peer whose parcel named it, from 1 on; 0: a hint did */
    struct user_peer peer[]; /* npeers */
};

/* Nothing of it goes there now, and nothing that comes from there is taken. */
static inline bool user_keeps_from(const struct user_peer *p)
{
    return p->untold || p->apart;
}

/* Something of it is not in the lane to that peer. */
static inline bool user_lacks_some(const struct user_peer *p)
{
    return p->missing || p->more;
}

/* There is a reason to look at it. */
static inline bool user_has_reason(const struct user *u)
{
    return u->look_all || u->look_many || u->nlook > 0;
}

/* Of two moments, each 0 when not set. */
static inline double user_sooner(double a, double b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

/* ---- users.c: the table ---- */

struct users *users_open(struct replicator *);
void users_close(struct users *); /* after workers and inbox */

struct user *user_find(struct users *, const char *name, size_t n);
/* Finds or makes; of another spelling of his name the user. NULL: too many are in memory. */
struct user *user_get(struct users *, const char *name, size_t n);
size_t users_count(const struct users *);
typedef void user_fn(struct user *, void *arg);
void users_each(struct users *, user_fn *, void *arg); /* fn must not free */
/* Dovecot calls him by that name: it gets what is to be done under this one, which stays known
 * as another spelling for a minute. False: it is this one's own. */
bool user_is_another(struct user *, const char *name, size_t n);

/* ---- user.c: what is to be done, and what was ---- */

/* Reasons to look. guid "" and n 0: all mailboxes. */
void user_look(struct user *, const char *guid, const char *name, size_t n);
/* A worker was asked to look: what comes from now on is another reason. Not before hint_wait is
 * over; while hints come one after the other, at their end, but after hint_wait_most at last. A
 * look of a few milliseconds for each few commands would hold up the client that gives them. */
void user_asked_to_look(struct user *);
void user_sweep(struct user *);
/* A parcel to apply; owned by the user until user_parcel_done. */
void user_parcel(struct user *, struct parcel_in_flight *);
/* The userdb is asked anew whether it has this user, who is closed before. */
void user_ask_userdb(struct user *);
/* The admins' requests that no worker was asked yet. later: another time they may work. */
void user_fail_requests(struct user *, const char *why, bool later);
void user_fail_reads(struct user *, const char *why, bool later); /* those that only read */
/* It is in nobody's hand any more: no parcels, no requests, nothing wanted. */
void user_forget_work(struct user *);
/* What a worker's DONE says of it. */
void user_done(struct user *, const struct frame_done *);
/* Failures: the next wait, and whether it is worth a line in the log. */
double user_backoff(double *wait);
bool user_may_say(struct user *);

/* Its files have that id, as a worker says who has it open. */
void user_is_owned(struct user *, uint32_t uid);

/* ---- user_parcels.c: its parcels in flight ---- */

void user_parcel_add(struct user *, struct parcel_in_flight *);
void user_parcel_remove(struct user *, struct parcel_in_flight *);
/* Takes it out of the user's list, acks it and frees it. */
void user_parcel_done(struct user *, struct parcel_in_flight *);
void user_drop_parcels(struct user *); /* all of them */
/* The answers among them: what they answer is known to the worker that asked, and it is gone. */
void user_drop_answers(struct user *);
/* Parcels of a user who cannot take them now wait at their sender. So do those of a user whose
 * worker has not answered for long while the inbox is half full. Beside the first one, 1 MiB of
 * them stays. They confirm nothing, so all of them come again. crowded: the inbox is half full. */
bool user_has_room(const struct user *, size_t bytes, bool crowded);
/* Drops what is in flight that there is no room for, but not what a worker has. */
void user_trim_parcels(struct user *, bool crowded);
/* The same where it is time for that, while the inbox is crowded. */
void user_trim_slow(struct user *);

/* ---- user_peer.c: what it and one peer have to say to each other ---- */

void user_want(struct user *, size_t peer, enum frame_ship);
/* Its worker sends that, to one peer or (site 0) to all. */
void user_send(struct user *, const struct frame_parcel *);
/* Something could not be pushed to that peer: it is to be sent again. first: number of the first
 * own op in it; 0: it has no own op. */
void user_unsent(struct user *, size_t peer, uint64_t first);
/* So many own ops are not confirmed by it. */
void user_unconfirmed(struct user *, size_t peer, uint64_t n);
/* It is not replicated with these sites, u64 each, and with all others. */
void user_apart(struct user *, struct text sites);
/* It says that it has all own ops: nothing is sent to it again. */
void user_all_confirmed(struct user *, size_t peer);

/* ---- user_plan.c: what is due, and when ---- */

/* Puts it into the queue it belongs to, or sets its timer. To be called whenever something
 * changed. */
void user_plan(struct user *);
/* What it waits for now, or would, if it had no worker. */
enum user_class user_class(struct user *, double now);
/* It is to be opened for requests that only read, and for nothing else. */
bool user_is_only_read(const struct user *, double now);
/* Whether that peer is to be asked for an exchange now. A new state asks for none while nobody
 * takes from the lane, though one question in a while would be let through. It waits no longer for
 * that. */
bool user_may_ask(const struct user *, size_t peer);
/* A mailbox of it has changed within active_for, here or there. */
bool user_is_active(const struct user *, double at);
/* When it is done next, of what is done the more seldom the longer nothing has happened. That is
 * after `times` the time that has passed since, but not within least milliseconds. 0: it will not
 * be active any more then. */
double user_later(const struct user *, double now, int64_t least, double times);

/* ---- user_slow.c: for how long its questions hold workers ---- */

/* It is of that kind for an hour from now on, after the next time for two, at most for a day. Slow:
 * its worker was lost after a long silence, or its process needed as long to end (ending.h). The
 * cause is a FIFO among its files, a file system that hangs, or a process that the user stopped.
 * Such users share one worker. Lengthy: its questions took more than USER_LENGTHY_AFTER within a
 * minute or so. The cause is the same, let go in time, or a huge mailbox. They have half of the
 * workers at most. An answer in time does not end that: who hangs at every second question would
 * have a worker of his own for each. */
#define USER_LENGTHY_AFTER 10. /* seconds */
void user_is(struct user *, enum user_kind);
void user_held(struct user *); /* its question ends now */
enum user_kind user_kind(const struct user *);
/* Lengthy, too, who has not answered for so long already. */
enum user_kind user_kind_soon(const struct user *);

#endif
