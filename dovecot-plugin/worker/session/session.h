/* session - dovelane-worker's one user at a time. It has what is in memory of him, how his
 * mailboxes are opened, and what this program itself remembers of them (mailbox_table.c, rows.c).
 * What is done with it: worker.h. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SESSION_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SESSION_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/store.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/scan_modseqs.h"

#include <array.h>
#include <guid.h>
#include <hash-decl.h>
#include <str.h>

struct body_request;
struct box;
struct failing;
struct fetching;
struct pending_wants;
struct removed_guids;
struct retry;

/* What HELLO said; the same for all users. */
struct group {
    bool known;
    uint64_t self;
    unsigned nsites;
    uint64_t site[FRAME_SITES_MAX];
    unsigned nnamespaces;
    const char *ns[FRAME_NAMESPACES_MAX];
    const char *public_user;
    const char *replicas;   /* "NAME=SITE " each, own one too */
    uint64_t backlog;       /* own ops kept for a peer */
    unsigned brake_count;   /* removals without a client's request, per folder and hour, ... */
    unsigned brake_percent; /* ... or this share of the folder, if that is more */
    bool log_placed;        /* a line for each mail that is saved */
    bool backup;            /* this site's role: what other sites remove is kept (kept/kept.h) */
    bool on_demand;         /* this site's role: large mails are stored as stubs (bodies/stubs.h) */
    uint64_t on_demand_from; /* bytes */
    unsigned nstubbing;      /* other sites of that role */
    uint64_t stubbing[FRAME_SITES_MAX];
    bool questions;       /* relays ask whether deliveries are safe */
    time_t keep_expunged; /* seconds; 0: not told, nothing is removed for its age */
    unsigned brake_wait;  /* ms; counted when no more went for so long */
};

/* Ops of others that a peer had when its last batch left, and that are not here (bodies/ahead.c).
 * In memory only. */
struct ahead {
    struct orset_dot lacks[ORSET_LACKS_MAX];
    unsigned nlacks;
    uint16_t origin; /* the peer's present one */
    /* Which of its mails wait for them: those from a number on, until a time in milliseconds of the
     * monotonic clock. The later ones first. */
    struct {
        uint64_t from, until;
    } wave[2];
};

/* What is known of a peer; a row of its own each. */
struct peer {
    uint64_t site;
    uint64_t confirmed; /* own numbers it has, of the present epoch */
    uint64_t sent;      /* own numbers put into its lane */
    bool behind;        /* it has what this state has not */
    bool forgotten;     /* its backlog was dropped: it will have to exchange */
    time_t lost_since;  /* it speaks of fewer own numbers than are here */
    bool answered;      /* a new state or epoch asked it, and all that it has came */
    /* its state is new, and has not read its mailboxes yet: so long that is believed; 0: it has */
    time_t reading_until;
    time_t asked_whether_read; /* in this session */
    bool told_reading; /* it was told so of this state, or asked: it waits to hear of the end */
    bool owed; /* ops of it came, perhaps again, and no batch to it carried the vector since */
    bool more; /* sending ended before the last op: enough was sent for one question */
    uint64_t silent_until; /* milliseconds: it was asked for a text, and said nothing */
    struct ahead ahead;
    struct orset_exchange *exchange;
    time_t exchange_since; /* the last question */
};

/* A new state waits that long for a peer's, then it goes on with what the mailboxes have (F36). */
#define JOIN_WAIT_SECS 30
#define JOIN_MOST_SECS 600 /* after which asking again makes that wait no longer */

/* Whether the state of the other sites was heard ("Joining full mailboxes" in
 * docs/replication-protocol.md). */
enum join_phase {
    JOINED,
    /* a new state or epoch: nothing is ingested before an exchange, or join.until */
    JOIN_ASKING,
    JOIN_ALONE /* that wait ended, and not all have answered since */
};
struct join {
    enum join_phase phase;
    time_t until; /* of a new state or epoch: it waits so long for all to answer */
    time_t since; /* when it asked first; 0: it has not, and waits for its turn */
};

/* A mail that a peer asked for by ASK_DISK, and that is not on the disk yet. */
struct asked_guid {
    uint64_t site, asked;
    guid_128_t guid;
};

struct session {
    /* --- as long as the user is open --- */

    struct group *group;
    struct link *link;
    struct mail_user *user;
    struct event *event;
    pool_t pool;
    const char *dir;  /* <control root>/dovelane */
    const char *root; /* the mails' */
    struct file_id state_id, root_id;
    int lock_fd;
    struct state_sqlite *db;
    struct orset_store store;
    struct orset *os;
    uint64_t site[FRAME_SITES_MAX]; /* with which he is replicated, own one too, ascending */
    unsigned nsites;
    struct text retired; /* origins of users of this name who were forgotten (retired.h) */
    unsigned origins;    /* so many of the state's vector were told to main */
    bool created;
    bool fully_open; /* opened: its state may be called clean at the end */

    /* --- rows: what the last commit wrote, or it is read again --- */

    uint64_t noted; /* counter of the last commit */
    bool stale;     /* rolled back: what is in memory of the rows is to be read again */
    ARRAY(struct box *) boxes;
    HASH_TABLE(void *, struct box *) by_folder;
    HASH_TABLE(uint8_t *, struct box *) by_guid; /* one GUID, one name: the first of a chain */
    HASH_TABLE(char *, struct box *) by_vname;
    struct peer peer[FRAME_SITES_MAX];
    unsigned npeers;
    struct join join;
    /* the state was found to be older than the mailboxes, and not all of them were looked at
     * since */
    bool rewound;
    /* rows say that mails are to get other modseqs */
    enum { NO_MODSEQ_REPAIRS, MODSEQ_REPAIRS_LATE, MODSEQ_REPAIRS_SOON } modseq_repairs;
    /* rows say what was about to happen when this was last ended: all mailboxes are looked at
     * before anything else */
    bool cut_short;

    /* --- the question in work --- */

    string_t *error;
    unsigned tick; /* milliseconds until TICK is wanted, 0: none */
    /* bytes of batches that may still go out before main is asked whether the lanes take more */
    size_t send_room;
    struct bodies *bodies; /* that came with the parcel, or NULL */
    /* that the ingest has read and not sent yet, or NULL */
    struct batch_bodies *batch_bodies;
    bool tree_changed; /* a mailbox was not where it was */
    /* whose empty directories are removed by who lists them */
    ARRAY(struct mailbox_list *) dropping;
    /* mails of other sites that were saved since the last DONE, and their bytes */
    uint64_t placed, placed_bytes;
    struct {
        uint64_t mails, bytes, restored, purged; /* since the last DONE */
        uint64_t failed;                         /* mails whose removal waits, as tried last */
        time_t purge_after;
    } kept;

    /* --- since the user was opened: reading the mailboxes --- */

    bool asks_uidnext;   /* other sites, or that is not known (exchange/uidnext_ask.c) */
    bool scanned;        /* at mailboxes, for a question */
    bool scan_again;     /* at all mailboxes: one was half made, or changes */
    uint64_t scan_due;   /* milliseconds of the monotonic clock; 0: not set */
    bool read;           /* all mailboxes were, since then or since the state was made anew */
    uint64_t read_upto;  /* own ops at that time */
    bool no_outside;     /* the last scan of all mailboxes found none that is not replicated */
    bool index_lost;     /* the session is to be opened again */
    bool scripts_listed; /* once in this session */
    bool scripts_lost;   /* as index_lost */
    /* keywords that were not set because of a bound, of which the log tells (orset_left_out()) */
    uint64_t left_out;
    unsigned mend_wait;  /* milliseconds after an mdbox could not be rebuilt; 0: it could */
    uint64_t mend_after; /* of the monotonic clock */
    /* a first look waits for who saves into an mdbox: since when, and when it last found so */
    uint64_t saves_since, saves_last;
    bool saves_told;         /* the log tells of that */
    time_t expunged_dropped; /* rows of mails that were expunged in an mdbox long ago */

    /* --- since the user was opened: what the mailboxes lack --- */

    /* as counted last; of unplaced ones, from UNPLACED_COUNTED on, perhaps not all */
    uint64_t unplaced, quarantined;
    uint64_t unseen;      /* mailboxes for which removals wait, as of the last look (unseen.c) */
    bool uncounted;       /* the state has had others since */
    unsigned other_bytes; /* mails whose bytes are not those agreed on, as counted last */
    bool raises_owed;     /* some sites have not answered a RAISE */
    unsigned raise_wait;  /* seconds until the first of them is due again */
    ARRAY_TYPE(scan_modseqs) scan_modseqs; /* of what scans made ops of (scan_modseqs.h) */
    /* mailboxes were made or deleted that the list's index does not know yet */
    bool reshaped;
    unsigned renames;       /* of mailboxes, by this program */
    unsigned names_waiting; /* folders that are not shown here by their name */
    uint64_t tree_changes;  /* for which mailboxes were arranged last, + 1; 0: not yet */
    /* mails that could not be saved, and when they are tried again */
    ARRAY(struct failing) failing;
    ARRAY(struct retry) retries;       /* what else failed (retry.h) */
    struct plan *plan;                 /* in which order mailboxes get the mails that they lack */
    unsigned arrived;                  /* of them, since something was placed last */
    bool spool_empty;                  /* no body waits in bodies/ */
    bool expecting;                    /* what an earlier session asked for is known */
    ARRAY(struct body_request) wanted; /* bodies that were asked for: no others are taken */
    ARRAY(struct fetching) fetching;   /* texts of stubs that somebody reads now (fetch.c) */
    bool fetched;                      /* such files may be in fetched/ */
    uint64_t fetched_look;             /* milliseconds of the monotonic clock: for old ones */
    bool stubs;                        /* he has a key of stubs */
    unsigned ask_next;                 /* whom to ask when nobody in particular has them */

    /* --- since the user was opened: the peers, and the log --- */

    /* in this transaction; NULL: nobody asks (removed.c). Before its commit, and when it is rolled
     * back: */
    struct removed_guids *removed;
    int (*removed_write)(struct session *);
    void (*removed_forget)(struct session *);
    ARRAY(struct asked_guid) asked; /* by ASK_DISK, and not on the disk yet (on_disk.c) */

    ARRAY(struct pending_wants) pending_wants; /* the first is given next (give.c) */
    time_t told;                               /* when keepers were told of dirty folders */
    struct {
        uint64_t hash;
        time_t at;
    } said[32]; /* notes */
    unsigned said_next;
};

static inline bool is_joining(const struct session *s)
{
    return s->join.phase == JOIN_ASKING;
}

/* aside.c. The state's files get names with the time; the closed state is made anew at the next
 * open. */
void state_put_aside(struct session *, const char *path, const char *why);

/* After a rollback the rows are read again: each struct box and struct peer is another one then.
 * session_begin() does so, too. */
int session_fresh(struct session *);
int session_begin(struct session *);
/* Reserves numbers first, notes the counter after. -1: rolled back. */
int session_commit(struct session *);
void session_rollback(struct session *);
/* Keeps the text and returns -1. */
int session_fail(struct session *, const char *fmt, ...) ATTR_FORMAT(2, 3);
/* The same with what the core said. */
int session_core_failed(struct session *, const char *what);
const char *session_error(struct session *);
/* A line in the log, by main: why a merge decided so. */
enum note_level { NOTE_ERROR, NOTE_WARNING, NOTE_INFO, NOTE_DEBUG };
/* A debug line that tells why a merge decided so; costs nothing when nobody reads it. */
#define session_explain(s, ...)               \
    do {                                      \
        if (event_want_debug((s)->event))     \
            e_debug((s)->event, __VA_ARGS__); \
    } while (0)
void session_note(struct session *, enum note_level, const char *fmt, ...) ATTR_FORMAT(3, 4);
/* The same, also where that was said lately. */
void session_write_note(struct session *, enum note_level, const char *text);
/* The same for a line a mail, at level info: none is kept back for being a repeat. */
void session_report(struct session *, const char *fmt, ...) ATTR_FORMAT(2, 3);
/* Exchanges with all, then compares all mailboxes as if they were never looked at. */
int session_join(struct session *);
/* An exchange comes before the next ingest, which knows that the state is older than the
 * mailboxes. In a transaction. */
int session_exchange_first(struct session *);
/* New numbers under a new epoch; an exchange comes before the next ingest (F12, F20). */
int session_new_epoch(struct session *, const char *why);
uint64_t random_number(void); /* not 0 */
uint64_t clock_msecs(void);   /* of the monotonic clock */
void session_want_tick(struct session *, unsigned msecs);
const struct orset_alloc *session_alloc(void);
void session_send(struct session *, uint64_t site, enum parcel_kind, bool bulk, const void *body,
                  size_t len);
/* A BATCH; first: number of its first op, 0: it has none. */
void session_send_batch(struct session *, uint64_t site, uint64_t first, const void *body,
                        size_t len);

bool storage_known(const struct mail_storage *);
/* There are some to replicate, and all of them can be. */
bool session_namespaces_ok(struct session *, const char **error_r);
/* Whether anybody but the user's login can read the mails (crypt.c). */
bool session_keys_ok(struct session *, const char **error_r);
/* Is it one of the group's namespaces, and this user's to replicate? */
bool session_has_namespace(struct session *, struct mail_namespace *);

#endif
