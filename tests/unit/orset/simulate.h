/* simulate - what the simulator's files share; simulate.c says what is simulated and judged.
 *
 *     simulate.c            the dice, the mix of steps, the counts
 *     simulate_host.c       hosts and their disks: crash, power loss, old copies, lost states, death
 *     simulate_mailbox.c    users, ingest, and the work that the state asks of the mailboxes
 *     simulate_links.c      lanes, exchanges, UID rounds
 *     simulate_judge.c      everybody does what is left; then everything is compared */
#ifndef DOVELANE_TESTS_UNIT_ORSET_SIMULATE_H
#define DOVELANE_TESTS_UNIT_ORSET_SIMULATE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/match_mails.h"
#include "tests/support/memstore/memstore.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/store/reserve.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/orset/ops/uid.h"

enum { SITES = 4, NAMESPACES = 2, BOXES = 28, MAILS = 220, LANE = 64 };

/* What can go wrong, or is known to be hard; each is counted, and a long run in which one never
 * happened fails. */
#define FAULTS(X)                                                                    \
    X(CRASH_SAVED, "crash after the mailbox commit, before ingest (F11)")            \
    X(CRASH_INGEST, "crash in ingest, before its commit (F11)")                      \
    X(CRASH_INGESTED, "crash after the ingest commit, before the push (F11)")        \
    X(CRASH_PUSHED, "crash after the push to some lanes (F11)")                      \
    X(CRASH_TAKEN, "crash after a batch was taken, before its commit (F13)")         \
    X(CRASH_UNPLACED, "crash with ops in the state, unplaced (F13)")                 \
    X(CRASH_PLACED, "crash after the mailbox commit, before the UID is bound (F13)") \
    X(CRASH_BOUND, "crash after the UID was bound, before the ack (F13)")            \
    X(CRASH_EXCHANGE, "crash of an asker between two answers")                       \
    X(CRASH_ROUND, "crash of a keeper in its UID round")                             \
    X(BATCH_LOST, "batch lost")                                                      \
    X(BATCH_TWICE, "batch delivered twice")                                          \
    X(BATCH_EARLY, "ops that overtook another origin's, which their site had seen")  \
    X(LANE_LOST, "lane lost whole")                                                  \
    X(ROWS_GONE, "backlog dropped: the peer exchanges")                              \
    X(EXCHANGES, "exchanges begun")                                                  \
    X(EXCHANGE_CUT, "exchange given up half way")                                    \
    X(CLEAN_STOP, "state closed cleanly and opened again")                           \
    X(POWER_LOSS, "power loss: the tail of the state's log gone, the reserve kept")  \
    X(OLD_COPY, "old copy of a state restored, the reserve kept")                    \
    X(OLD_HOST, "whole host restored from an old copy, users work on")               \
    X(ROLLED_BACK, "a peer's vector showed a state to be an old copy")               \
    X(FORK_NOTICED, "two ops under one number noticed by a peer")                    \
    X(RENUMBERED_OPS, "new epoch that renumbered what users did since")              \
    X(STATE_LOST, "state lost, mailboxes kept: joined again")                        \
    X(GUIDS_LOST, "GUIDs of a mailbox lost with the state: joined by SHA-256")       \
    X(NAMESPACE_LEFT, "namespace left out by a site from now on")                    \
    X(NAMESPACE_TAKEN, "namespace taken in by a site again")                         \
    X(DAMAGE, "mails vanished without a user")                                       \
    X(DEATH, "site died for ever")                                                   \
    X(KEEPER_CHANGE, "keeper changed")                                               \
    X(KEEPER_CHANGE_ROUND, "keeper changed in mid-round")                            \
    X(KEEPER_DEATH_ROUND, "keeper died in mid-round")                                \
    X(ROUNDS, "UID rounds begun")                                                    \
    X(ANSWER_LOST, "answer of a UID round lost")                                     \
    X(UIDS_MOVED, "mails renumbered")                                                \
    X(DELIVERED_TWICE, "mail delivered at two sites with other bytes")               \
    X(BODY_REPLACED, "mail saved again with the bytes that won")                     \
    X(GUID_CLAIMED, "another mail saved under a mail's GUID")                        \
    X(BODY_PARTED, "two mails of one GUID parted")                                   \
    X(EQUAL_BY_OPS, "groups judged before the last exchanges, too")                  \
    X(MAILS_MADE, "mails added")

enum fault {
#define X(name, text) name,
    FAULTS(X)
#undef X
        FAULT_KINDS
};
extern uint64_t happened[FAULT_KINDS];

/* content is what the mail is; its GUID is the same number until the mailbox loses GUIDs; body:
 * which bytes it was saved with, where two sites saved one GUID. */
struct mail {
    uint32_t uid;
    uint16_t guid, content;
    uint8_t body, flags;
};

struct box {
    uint32_t uid_next;
    unsigned n;
    struct mail mail[MAILS];
    unsigned nexpunged;
    uint32_t expunged[MAILS]; /* by users: evidence */
    char name[48];            /* kept while the state is lost */
    size_t name_len;
};

struct message {
    uint8_t *bytes;
    size_t len;
};

struct lane {
    struct message m[LANE];
    unsigned n;
};

/* One site's part of one namespace. */
struct site {
    struct group *group;
    unsigned index;
    bool dead, out; /* for ever; leaves this namespace out */
    bool sqlite;
    unsigned unheard; /* peers whose vector an old host has to read before it speaks */
    struct orset_memstore *disk, *old;
    struct state_sqlite *file;
    bool old_file;
    struct box *box, *old_box;
    uint64_t old_epoch, old_reserve;
    /* highest own number ever, kept outside the disk (SQLite: in a reserve file) */
    uint64_t reserve;
    uint64_t epoch;
    struct orset *os;
    uint64_t confirmed[SITES];
    struct orset_exchange *x[SITES];
    struct message question[SITES], answer[SITES];
    /* the keeper's round */
    uint32_t round_folder;
    struct orset_buf ask;
    struct message reply[SITES];
};

/* What users did, for the judge. */
struct known_dot {
    uint64_t site, epoch, counter;
    unsigned removed; /* by these sites */
    bool seen;        /* at the end, by somebody */
};

struct known_mail {
    unsigned site;
    bool removed, unsure; /* by a user; only on a host that was lost */
    bool damaged;         /* vanished from a mailbox: another loss may be one too many */
    bool seen;
    bool claimed; /* two mails have its GUID */
};

enum { SHARED_CONTENTS = 60, CONTENTS = 4000 }; /* below the first: saved again and again, for k */

/* A namespace: the sites that hold it, and what is between them. */
struct group {
    unsigned n; /* sites */
    struct site site[SITES];
    struct lane lane[SITES][SITES];
    unsigned unsure; /* sites that lost something: what only they knew is not judged */
    unsigned disasters, old_hosts;
    struct known_dot *dot;
    size_t ndots, dots_room;
    struct known_mail mail[CONTENTS];
    unsigned nmails;
    unsigned delivered[CONTENTS]; /* by which sites a gateway's mail was saved */
};

extern const struct orset_alloc HEAP;
extern bool healing; /* no more faults */

/* --- simulate.c */
uint64_t dice(void);
unsigned below(unsigned n);
void fail(const char *what, const struct site *);
int must(struct site *, int result);

/* --- simulate_host.c */
bool is_here(const struct site *);
unsigned some_site(struct group *); /* one that is here */
void host_begin(unsigned run);      /* a directory for files, if this run uses them */
void host_end(void);
void site_begin(struct group *, unsigned index, bool sqlite);
void site_end(struct site *);
void commit(struct site *);
void new_epoch(struct site *);
void crash(struct site *, enum fault point);
void power_loss(struct site *);
void back_up(struct site *);
void restore_state(struct site *);
void restore_host(struct site *);
void lose_state(struct site *);
void leave_namespace(struct site *);
void take_namespace(struct site *);
void die(struct site *);

/* --- simulate_mailbox.c */
struct box *box_of(struct site *, uint32_t folder);
struct mail *mail_by_uid(struct box *, uint32_t uid);
bool is_home(struct site *, uint32_t folder);
uint32_t some_home(struct site *);
void facts_of(const struct mail *, struct orset_facts *);
void user(struct site *);
void ingest(struct site *, enum fault crash_at); /* FAULT_KINDS: none */
void ingest_all(struct site *);                  /* its commit included */
void damage(struct site *);
void join_all(struct site *, struct box *old);
/* One row of work. True when one was done. crash_at: CRASH_UNPLACED, _PLACED, _BOUND or
 * FAULT_KINDS. */
bool work(struct site *, unsigned skip, enum fault crash_at);

/* --- simulate_links.c */
void message_clear(struct message *);
void ship(struct site *from, struct site *to);
void deliver(struct site *from, struct site *to, bool faults);
void cut_lane(struct site *from, struct site *to);
void start_exchange(struct site *asker, struct site *giver);
bool exchange_step(struct site *asker, struct site *giver, bool faults);
void end_exchange(struct site *asker, struct site *giver);
void exchange_with_all(struct site *asker);
bool round_step(struct site *keeper, bool faults);
void change_keeper(struct site *);

/* --- simulate_judge.c */
struct known_dot *journal(struct site *, struct orset_dot);
void heal(struct group *);
void judge(struct group *);

#endif
