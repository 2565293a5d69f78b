/* session - dovelane-worker's one user at a time: what is in memory of it, how its mailboxes are
 * opened, and what this program itself remembers of them (mailbox_table.c, rows.c). What is done
 * with it: worker.h. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SESSION_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SESSION_H

#include "dovecot-plugin/compat.h"

#include <array.h>
#include <buffer.h>
#include <guid.h>
#include <hash-decl.h>
#include <seq-range-array.h>
#include <str.h>

#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/orset/ops/batch.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/join.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/orset/state/tree.h"
#include "dovecot-plugin/orset/ops/uid.h"

/* --- the program ------------------------------------------------------------------------------ */

struct link; /* the connection with main */

/* What HELLO said; the same for all users. */
struct group {
    bool known;
    uint64_t self;
    unsigned nsites;
    uint64_t site[FRAME_SITES_MAX];
    unsigned nnamespaces;
    const char *ns[FRAME_NAMESPACES_MAX];
    const char *public_user;
    uint64_t backlog;       /* own ops kept for a peer */
    unsigned brake_count;   /* removals without a client's request, per folder and hour, ... */
    unsigned brake_percent; /* ... or this share of the folder, if that is more */
    unsigned brake_wait;    /* ms; counted when no more went for so long */
};

/* --- one user --------------------------------------------------------------------------------- */

/* Where the scan of a mailbox's log stopped (F2). The log is never entered at an offset
 * remembered here: the library is asked for the offset of modseq before, and the record found
 * there must be the one that was read last. */
struct cursor {
    uint32_t indexid;  /* 0: none yet */
    uint32_t file_seq; /* of the last record */
    uint64_t log_id;   /* which file has that number (log_identity()); 0: unknown, or none yet */
    uint32_t uid_validity, uid_next;
    uint64_t before, modseq; /* highest modseq before and after the last record that raised it */
    uint64_t hash;           /* of that record */
    uint64_t stamp;          /* of the files a sweep stats; 0: unknown */
};

/* A place in a mailbox's index log: a record's begin, or its end at some moment. seq 0: none. */
struct log_pos {
    uint32_t seq;
    uint64_t offset;
};

/* A mail that this program gave another UID: what a client says of the old one, behind that
 * place, is meant for the new one. */
struct moved {
    uint32_t uid, new_uid;
    struct log_pos from; /* where the log ended when the copy was read */
    time_t at;
};
ARRAY_DEFINE_TYPE(moved, struct moved);

/* A mailbox and the folder whose UIDs it has. */
struct box {
    uint32_t folder;
    /* it was there and is not: made again from the state (F1), or deleted by the state's word */
    bool gone;
    bool deleting; /* the state said so and this program is about to do it */
    bool all;      /* look at the whole mailbox at the next ingest */
    bool restored; /* by an old backup, so that its flags are old ones */
    bool rewound;  /* not looked at since the state was found to be older than the mailbox */
    /* it was this folder's + 1, and was not looked at since; what its log says behind the cursor
     * is of that one's mails. 0: no */
    uint32_t adopted;
    /* some of its mails were beyond a bound, and perhaps are: they are not replicated */
    bool beyond;
    /* the mailbox that was its own has a name beyond a bound now, and perhaps the folder's GUID */
    bool estranged;
    bool astray;     /* not where the state wants it: moved aside, or along with its parent */
    guid_128_t guid; /* of the local mailbox; zeros: none; box_set_guid() */
    /* where it was seen last, not where the state wants it (F4); box_set_vname() */
    char *vname;
    char *moving; /* where this program is about to rename it to, or NULL */
    struct cursor at;
    time_t brake_since; /* removals without a client's request since then */
    uint32_t brake_used;
    /* UIDs whose mails went without a client's request, of which an admin was told: they wait
     * for accept or restore */
    ARRAY_TYPE(seq_range) quarantine;
    unsigned vanished;     /* mails that went since, and are not judged yet */
    time_t vanished_since; /* as many since then */
    /* until there a scan whose cursor stayed told which flags clients set though they were set.
     * In memory only */
    struct log_pos reasserted;
    bool saving; /* a row says that this process saves there (Maildir) */
    /* it says so of an earlier one, which did not end well: what that had not finished looks
     * like new mail. 0: none */
    pid_t saver;
    /* a row says what this program was about to commit behind there (write_intent.c) */
    struct log_pos writing;
    ARRAY_TYPE(moved) moved; /* by old UID */
    /* a UID names another mail than the state says: the next scan goes by GUIDs. In memory only */
    bool doubted;
    /* no other comparison for that reason before, by the monotonic clock; in memory only */
    uint64_t doubt_again;
    /* and the same for a scan of a mailbox that is another than the one looked at last */
    uint64_t head_again;
    /* with its storage, by this program, since it was looked at (mdbox.c); in memory only */
    bool rebuilt;
    bool lost;        /* it was there, and is another one; in memory only */
    bool waits;       /* the last scan could not tell which mails it has; in memory only */
    bool failed;      /* in this pass of placing */
    uint32_t log_seq; /* of the file in which its log ended at the last scan; in memory only */
    /* the highest, as the last scan saw it; 0: none since the user was opened. In memory only */
    uint64_t modseq;
    bool found;  /* when mailboxes were listed last */
    bool absent; /* and then not, nor one that has its place */
    /* a client deleted it, or renamed the INBOX, and the state is not told yet (removals.c); in
     * memory only */
    bool leaving;
    bool hinted;                        /* the question is about this one */
    struct box *next_guid, *next_vname; /* another one of that GUID, that name (mailbox_table.c) */
    /* ingested since this session began, and nothing was placed that the state does not know of */
    bool scanned;
};

/* A mail of a mailbox that is to go. */
struct removal {
    uint32_t folder, uid;
    guid_128_t guid; /* another mail may have the UID by the time it leaves */
    bool mdbox;      /* its bytes stay there for a while */
};

struct mail_guid {
    guid_128_t guid;
};
ARRAY_DEFINE_TYPE(mail_guid, struct mail_guid);

/* A mailbox that was looked at. */
struct scanned_mailbox {
    struct box *x;
    struct cursor cursor; /* which moves to here with the scan's last commit */
    struct box was;       /* before the scan */
    struct log_pos end;   /* of the log, as it saw it */
    /* not all of what it found could be said: the cursor stays, and another scan finds it again */
    bool undone;
};

/* A mail that could not be saved: a full disk is not asked several times a second. */
struct failing {
    uint32_t folder;
    struct orset_dot dot;
    unsigned wait;  /* milliseconds between this try and the next */
    uint64_t again; /* of the monotonic clock */
};

/* What a peer asked for and did not get yet. */
struct pending_wants {
    uint64_t site;
    buffer_t *body; /* of its parcel */
    size_t done;    /* wants that were answered */
};

/* A body that was asked for. */
struct body_request {
    uint8_t sha256[32];
    uint64_t size, offset, until; /* until: where the parts asked for end */
    time_t asked;                 /* or when a part came */
    unsigned wait;                /* seconds after which it is asked for again */
    unsigned misses;              /* answers without it: not held there, or other bytes */
    uint64_t not_at;              /* peers that gave these, a bit each */
    bool missed;                  /* the last answer was one, and came when asked says */
    unsigned missed_at;           /* number of the peer that gave it */
    unsigned item;                /* 1 and the number in the plan; 0: not known, or more than one */
};

/* Own changes that have modseqs above those that a peer told, or a row says that they are to get
 * them: no batch of its needs to look at them again. That holds as long as no modseq that a peer
 * told has risen, and no mail has got another UID or index. */
struct modseqs_repaired {
    uint16_t self;       /* whose numbers these are */
    uint64_t from, upto; /* numbers behind from, up to upto */
    uint64_t when;       /* modseq_repair_when() */
};

/* What is known of a peer; a row of its own each. */
struct peer {
    uint64_t site;
    uint64_t confirmed; /* own numbers it has, of the present epoch */
    uint64_t sent;      /* own numbers put into its lane */
    bool behind;        /* it has what this state has not */
    bool forgotten;     /* its backlog was dropped: it will have to exchange */
    time_t lost_since;  /* it speaks of fewer own numbers than are here */
    struct modseqs_repaired modseqs_repaired; /* in memory only */
    bool answered; /* a new state or epoch asked it, and all that it has came */
    /* its state is new, and has not read its mailboxes yet: so long that is believed; 0: it has */
    time_t reading_until;
    time_t asked_whether_read; /* in this session */
    bool told_reading; /* it was told so of this state, or asked: it waits to hear of the end */
    bool owed;         /* ops of it came, and no batch to it carried the vector since */
    bool more;         /* sending ended before the last op: enough was sent for one question */
    struct orset_exchange *exchange;
    time_t exchange_since; /* the last question */
};

/* A new state waits that long for a peer's, then it goes on with what the mailboxes have (F36). */
#define JOIN_WAIT_SECS 30
#define JOIN_MOST_SECS 600 /* after which asking again makes that wait no longer */

/* Which file a path names; born, where the file system knows: an inode's number may come again. */
struct file_id {
    uint64_t dev, ino, born;
};

struct session {
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
    bool created;
    uint64_t noted; /* counter of the last commit */
    /* rolled back: what is in memory of the rows is to be read again */
    bool stale;
    ARRAY(struct box *) boxes;
    HASH_TABLE(void *, struct box *) by_folder;
    HASH_TABLE(uint8_t *, struct box *) by_guid; /* one GUID, one name: the first of a chain */
    HASH_TABLE(char *, struct box *) by_vname;
    struct peer peer[FRAME_SITES_MAX];
    unsigned npeers;
    /* a new state or epoch: nothing is ingested before an exchange, or join_until */
    bool exchange_first;
    /* of a new state or epoch: it waits so long for all to answer */
    time_t join_until;
    /* when it asked first; 0: it has not, and waits for its turn */
    time_t join_since;
    bool unasked; /* that wait ended, and not all have answered since */
    /* all mailboxes were read since it was opened, or made anew */
    bool read;
    uint64_t read_upto; /* own ops at that time */
    /* how often mails got another UID or index (struct modseqs_repaired) */
    uint64_t modseq_repairs_anew;
    bool modseq_repairs; /* rows say that mails are to get other modseqs */
    /* the state was found to be older than the mailboxes, and not all of them were looked at
     * since */
    bool rewound;
    struct bodies *bodies; /* that came with the parcel in work */
    /* bytes of batches that may still go out before main is asked whether the lanes take more */
    size_t send_room;
    /* that the ingest in work has read and not sent yet, or NULL */
    struct batch_bodies *batch_bodies;
    /* as counted last; of unplaced ones, from UNPLACED_COUNTED on, perhaps not all */
    uint64_t unplaced, quarantined;
    bool uncounted; /* the state has had others since */
    /* mails of other sites that were saved since the last DONE, and their bytes */
    uint64_t placed, placed_bytes;
    /* keywords that were not set because of a bound, of which the log tells (orset_left_out()) */
    uint64_t left_out;
    /* the last scan of all mailboxes found none that is not replicated */
    bool no_outside;
    bool tree_changed; /* a mailbox was not where it was */
    /* whose empty directories are removed by who lists them */
    ARRAY(struct mailbox_list *) dropping;
    /* mailboxes were made or deleted that the list's index does not know yet */
    bool reshaped;
    bool index_lost;     /* the session is to be opened again */
    bool scripts_listed; /* once in this session */
    bool scripts_lost;   /* as index_lost */
    bool scanned;        /* at mailboxes, for a question since it was opened */
    bool scan_again;     /* at all mailboxes: one was half made, or changes */
    uint64_t scan_due;   /* milliseconds of the monotonic clock; 0: not set */
    /* rows say what was about to happen when this was last ended: all mailboxes are looked at
     * before anything else */
    bool cut_short;
    /* mails that could not be saved, and when they are tried again */
    ARRAY(struct failing) failing;
    unsigned other_bytes; /* mails whose bytes are not those agreed on, as counted last */
    bool spool_empty;     /* no body waits in bodies/ */
    ARRAY(struct body_request) wanted;         /* bodies that were asked for: no others are taken */
    ARRAY(struct pending_wants) pending_wants; /* the first is given next (give.c) */
    bool expecting;                            /* what an earlier session asked for is known */
    struct plan *plan;       /* in which order mailboxes get the mails that they lack */
    unsigned arrived;        /* of them, since something was placed last */
    unsigned ask_next;       /* whom to ask when nobody in particular has them */
    time_t told;             /* when keepers were told of dirty folders */
    unsigned mend_wait;      /* milliseconds after an mdbox could not be rebuilt; 0: it could */
    uint64_t mend_after;     /* of the monotonic clock */
    time_t expunged_dropped; /* rows of mails that were expunged in an mdbox long ago */
    unsigned tick;           /* milliseconds until TICK is wanted, 0: none */
    bool fully_open;         /* opened: its state may be called clean at the end */
    struct {
        uint64_t hash;
        time_t at;
    } said[32]; /* notes */
    unsigned said_next;
    string_t *error;
};

/* --- link.c ----------------------------------------------------------------------------------- */

struct link_events {
    void (*asked)(void *owner, const struct frame *); /* main's question, or its word */
    void (*ended)(void *owner);                       /* the connection: it is to be destroyed */
};
struct link *link_create(int fd, const struct link_events *, void *owner);
void link_destroy(struct link **);
/* After so many seconds without a frame a question will never be answered; 0: not told. */
void link_set_patience(struct link *, unsigned secs);
/* Without a user there is nothing that takes long. */
void link_set_user_open(struct link *, bool);
void link_put_off_end(struct link *); /* as a frame does */
void link_break(struct link *);       /* it ends behind what is asked now */
/* A frame to main. -1: the connection is gone. */
int link_send(struct link *, const struct frame *);
/* Sends RESERVE and waits. 0, -1: not written, do not commit. new_epoch_r may be NULL. */
int link_reserve(struct link *, enum frame_reserve, uint64_t epoch, uint64_t counter,
                 bool *new_epoch_r);
/* A row of an admin's answer. */
void link_reply(struct link *, const char *fmt, ...) ATTR_FORMAT(2, 3);

/* --- credentials.c ---------------------------------------------------------------------------- */

/* Those of a user who was looked up and not opened yet, as a number that is equal for equal
 * ones; not 0. fields: the userdb's. */
uint64_t credentials_of(struct mail_storage_service_user *, const char *const *fields);
/* Whether this process may open that user, who has these: it has none yet, or the same. Who has
 * a root directory (mail_chroot) needs a process that has opened nobody: 2.3 finds his home
 * elsewhere the second time. */
bool credentials_fit(struct mail_storage_service_user *, uint64_t);
/* After the user was opened, or could not be: whatever this process became by it, it is for
 * good. */
void credentials_keep(uint64_t);
uint64_t credentials_kept(void); /* 0: none yet */

/* --- sieve.c ---------------------------------------------------------------------------------- */

/* Sieve scripts become attributes of INBOX, if Pigeonhole is installed. */
void sieve_load(void);

/* --- session.c, commits.c, namespaces.c, files.c ---------------------------------------------- */

/* aside.c. The state's files get names with the time; the closed state is made anew at the next
 * open. */
void state_put_aside(struct session *, const char *path, const char *why);

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
/* Zeros: there is none, or path is NULL. */
struct file_id file_id(const char *path);
bool same_file(const struct file_id *then, const char *path);
/* Is it one of the group's namespaces, and this user's to replicate? */
bool session_has_namespace(struct session *, struct mail_namespace *);
/* A file of the worker's own in the user's directory, for reading: never waits, follows no link.
 * What is no regular file is removed, and is ENOENT. -1 and errno. */
int session_open_file(struct session *, const char *path);

/* --- open.c ----------------------------------------------------------------------------------- */

/* Before any user: mailboxes that are being made are opened by nobody (MAIL_ERROR_INUSE) but
 * under the lists' lock. */
void open_init(void);
void open_deinit(void);
struct mailbox *session_mailbox(struct session *, const char *vname, enum mailbox_flags);
void session_lists_init(struct session *);
void session_lists_deinit(struct session *);
/* Until unlocked nobody makes, renames or deletes a mailbox: Dovecot does that under this lock.
 * Not for long: clients wait. May be nested. */
int session_lock_lists(struct session *);
void session_unlock_lists(struct session *);
/* Marks the list's index as old, as a CREATE does; before the lists' lock, where one follows
 * that may make the INBOX: a client's process that brings the index up to date has the index's
 * lock, and wants the lists' to make that INBOX. */
void session_mark_list(struct mailbox_list *);
/* Opens it, when a CREATE that is under way has ended; what the library remembers of its index
 * from an earlier time is read anew, also that somebody deleted it. */
int session_open_refreshed(struct mailbox *);
/* Whether what failed with the mailbox just now was the lock of a Maildir's uidlist, which is
 * not waited for: all are looked at again soon then. */
bool session_box_is_locked(struct session *, struct mailbox *);
/* Or that it is being deleted, which may be refused yet. */
bool session_box_is_going(struct session *, const struct mailbox *);
/* A sync of a Maildir whose uidlist is locked leaves out what is new there, and does not say so:
 * with that lock it finds all. False: not now. */
bool session_sync_whole(struct session *, struct mailbox *);
bool is_maildir(const struct mailbox *);
/* A Maildir, with that file of Dovecot's own: Dovecot replaces them, and never removes one. */
bool maildir_has(struct mailbox *, const char *name);
/* Opens the row's mailbox as its index is now. Without a sync, which would keep others waiting
 * (F9). */
int session_open_mailbox(struct session *, const struct box *, struct mailbox *);
/* Or has another one its name by now? Then all are looked at soon. */
bool session_is_box(struct session *, const struct box *, struct mailbox *);
/* Its index was removed since it was looked at in this session: the library has it open, and
 * what it reads and writes there nobody else sees. The user is opened anew soon. */
bool session_index_is_lost(struct session *, const struct box *, struct mailbox *);
/* Ends a transaction in which mails were only read. It is rolled back: a commit writes what was
 * learnt by the way into the mailbox's index log and the list's index, under locks that clients'
 * commands wait for, and then the mailbox looks changed. */
void session_read_end(struct mailbox_transaction_context **);
/* Before a modseq is set. 0, -1 */
int session_enable_modseq(struct mailbox *);

/* crash.c: dies there when DOVELANE_CRASH_AT names this step; compiled to nothing but in test
 * builds. */
#ifdef DOVELANE_TEST_CRASH
void crash_at(const char *step);
/* step "deleting": its index is marked deleted, and it is there still */
void crash_while_deleting(struct mailbox *);
/* steps "creating" and "opened": its directory is there, and nothing in it; its index, without a
 * UIDVALIDITY */
void crash_while_creating(struct mailbox *);
#else
#define crash_at(step) ((void)0)
#define crash_while_creating(box) ((void)0)
#define crash_while_deleting(box) ((void)0)
#endif

/* --- rows.c: this program's own rows, in the core's transactions ------------------------------ */

int rows_load(struct session *);
int rows_put_box(struct session *, const struct box *);
int rows_put_peer(struct session *, const struct peer *);
int rows_put_join(struct session *);
int rows_put_rewound(struct session *, bool);
int rows_put(struct session *, char kind, const void *key, size_t key_len, const void *value,
             size_t len);
int rows_del(struct session *, char kind, const void *key, size_t key_len);
/* 1 and the value, good until the next call on the store; 0; -1 */
int rows_get(struct session *, char kind, const void *key, size_t key_len, const uint8_t **value,
             size_t *len);
int rows_each(struct session *, char kind, orset_row_fn *, void *arg);
/* A row holds what cannot be true: the state is put aside at the user's next question, and made
 * anew. -1 */
int rows_corrupt(struct session *, const char *what);
#define ROW_UIDS_MAX 10000000 /* UIDs that one row names, in ranges */
/* Kinds of rows() above that have no struct: */
/* names as seen last, each with a length; "-": those that went (subscriptions.c) */
#define ROW_SUBSCRIPTIONS 's'
#define ROW_RENUMBER 'r'     /* folder: UIDs that a move is about to expunge */
#define ROW_ROUND 'u'        /* folder: a UID round under way */
#define ROW_ROUND_ANSWER 'v' /* folder, site: its bytes */
#define ROW_STEPPED 'n' /* folder: when a round followed another site's UIDNEXT by a step only */
#define ROW_ROOT 'd'    /* the mail directory: struct file_id */
/* the directory of Sieve scripts, when one was last seen in it: struct file_id, path; "-": how
 * many are gone, since when */
#define ROW_SIEVE 'e'
/* folder, key: hash of the value seen last, since when, and of those before it (attributes.c) */
#define ROW_ATTRIBUTES 'a'
#define ROW_SAVING 'm' /* folder, a Maildir: process that saves there */
/* folder: what is about to be committed to its mailbox (write_intent.c) */
#define ROW_WRITE_INTENT 'w'
#define ROW_MOVED 'o' /* folder: UIDs that got another one lately */
/* storage directory of an mdbox: the index id of its map, what its last rebuild left (mdbox.c) */
#define ROW_MAP 'y'
#define ROW_EXPUNGED 'g' /* time, folder, GUID of a mail of an mdbox that was expunged */
/* bytes of a mailbox's name in a row: the library's names are longer in UTF-8 than in the form
 * that it bounds */
#define ROW_NAME_MAX (4 * FRAME_NAME_MAX)
/* hashes of the names of mailboxes that could not be read when nothing was missed (unreadable.c) */
#define ROW_UNREADABLE 'q'
/* folder: UIDs whose changes are to be dated behind a peer's modseq (modseq_repair.c) */
#define ROW_MODSEQ_REPAIR 'k'
/* folder: how often other sites spoke while mails waited for the body of one before them, and
 * when last (patience.c) */
#define ROW_WAITS 'h'
/* the state was found to be older than the mailboxes; until all were looked at */
#define ROW_REWOUND 'x'

/* Before this program saves into a mailbox. A Maildir's file is there before its line in
 * dovecot-uidlist, where its GUID is: ended in between, it looks like somebody's new mail. Only
 * the process' number in the file's name tells whose it is. */
int rows_say_saving(struct session *, struct mailbox *, struct box *);
/* what an earlier process left was looked at; in a transaction */
int rows_saved(struct session *, struct box *);
int rows_close(struct session *); /* nothing is half done */
/* its file has that process' number, and no GUID but its name */
bool saved_by(struct mail *, pid_t saver);
/* its file has that process' number, whatever its GUID */
bool file_by(struct mail *, pid_t saver);

/* --- moved.c ---------------------------------------------------------------------------------- */

/* Inside a transaction. */
int moved_add(struct session *, struct box *, const struct moved *, unsigned n);
int moved_load(struct session *, struct box *, const uint8_t *value, size_t len);

/* --- mailbox_table.c: the mailboxes in memory ------------------------------------------------- */

void mailbox_table_init(struct session *);
void mailbox_table_clear(struct session *);
void mailbox_table_deinit(struct session *);
/* Nothing of it is known to have been read. */
void box_unread(struct box *);
struct box *box_by_folder(struct session *, uint32_t folder);
/* The mailbox that holds this folder's UIDs: its own, or that of its home. */
struct box *box_of_folder(struct session *, uint32_t folder);
struct box *box_by_guid(struct session *, const guid_128_t guid);
/* One that is there, if one is, of those that had that name when they were last seen. */
struct box *box_by_vname(struct session *, const char *vname);
struct box *box_first_of_vname(struct session *, const char *vname); /* of its chain */
struct box *box_add(struct session *, uint32_t folder);
void box_drop(struct session *, struct box *); /* its row is box_forget()'s */
void box_set_vname(struct session *, struct box *, const char *vname);
/* NULL: none */
void box_set_guid(struct session *, struct box *, const uint8_t guid[GUID_128_SIZE]);
void box_forget(struct session *, struct box *); /* row and all */
struct peer *session_peer(struct session *, uint64_t site);

/* --- names.c ---------------------------------------------------------------------------------- */

/* The folder name of a mailbox: namespace key, components, NUL between. False: INBOX, or no name
 * (error). */
bool name_of_vname(struct session *, const char *vname, buffer_t *name);
bool vname_is_inbox(struct session *, const char *vname);
/* Where the local layout shows this name, escaped where it must be. NULL: its namespace is not
 * here. */
const char *vname_of_name(struct session *, const char *name, size_t len);
/* For the log. */
const char *name_text(const char *name, size_t len);

#endif
