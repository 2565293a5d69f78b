/* worker - dovelane-worker: one user's mailboxes and the user's OR-Set state, kept equal to each
 * other in both directions.
 *
 *     main ──frames──▶ serve.c ──▶ user.c     OPEN and CLOSE: the user, the lock, the state
 *                         ├──────▶ round.c    the steps of a question, in order
 *                         ├──────▶ parcels.c  what a peer sent
 *                         └──────▶ admin.c    verbs of doveadm for this user
 *
 *     round.c ─▶ ingest/    mailboxes ─▶ ops: which mailboxes there are, what became of their mails
 *             ─▶ exchange/  ops ─▶ parcels for a peer; exchanges of states; UID rounds
 *             ─▶ apply/     state ─▶ mailboxes: folders, mails, flags, UIDs, removals
 *     below them:
 *         named/    attributes, Sieve scripts, subscriptions
 *         bodies/   mails as bytes: which are here, which are asked for, in which order
 *         logs/     the mailboxes' index logs, the plugin's journal
 *         session/  the user: mailboxes, the connection with main, what this program remembers
 *
 * Reasons in the comments (F1 ...) are rows of docs/failure-catalogue.md; the order of commits
 * is that of docs/replicator.md. Everything here runs with the user's privileges. Functions
 * return 0 (or more) or -1; then why is in session_error(). What concerns one mail, folder or
 * name only is logged and retried, it stops nobody else (F14). */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_WORKER_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_WORKER_H

#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/bodies/plan.h"

/* --- log.c ------------------------------------------------------------------------------------ */

enum log_verdict {
    LOG_SCAN_UNBROKEN, /* touched and removed say all that happened since the cursor */
    /* the same index, but the log does not reach back: whatever is missing was removed, by whom
     * is not known */
    LOG_SCAN_GAP,
    LOG_SCAN_BROKEN /* another index: what is missing is damage (F1) */
};

/* What clients said of a mail under the UID that it had before. */
struct late_change {
    uint32_t uid; /* it has now */
    struct orset_flags set, cut;
    bool expunged;
};

/* One record's change of flags: a client's, or one of this program's or another one that acts
 * for no client. */
struct flag_change {
    uint32_t uid1, uid2;
    struct orset_flags set, cut;
    bool own;
};
ARRAY_DEFINE_TYPE(flag_change, struct flag_change *);

struct attribute_change {
    const char *what; /* '+' or '-': unset; 'p' or 's'; the key */
    /* it stands in another file than the cursor, and was written after that file was made: a
     * backup has no such record */
    bool fresh;
};
ARRAY_DEFINE_TYPE(attribute_change, struct attribute_change);

struct expunged_mail {
    guid_128_t guid;
    uint32_t uid;
};

struct log_scan {
    enum log_verdict verdict;
    const char *why;                  /* not unbroken: for the log */
    bool rebuilt;                     /* broken, and yet the same index: its log began anew */
    bool restored;                    /* the same index of an earlier time, by a backup */
    ARRAY_TYPE(seq_range) touched;    /* UIDs to look at */
    ARRAY_TYPE(seq_range) requested;  /* UIDs a client asked to expunge, or this program */
    ARRAY_TYPE(seq_range) by_clients; /* those of clients alone */
    ARRAY_TYPE(seq_range) saved;      /* by this program, or another one that acts for no client */
    /* for each of those flags: the mails on which a client set it */
    ARRAY_TYPE(seq_range) reasserts[ORSET_SYSTEM_FLAGS];
    ARRAY_TYPE(attribute_change) attributes; /* in the log's order */
    ARRAY(struct late_change) late;
    /* in order; of a mailbox that is rewound, adopted, or whose log began anew */
    ARRAY_TYPE(flag_change) flag_changes;
    /* Of a rewound mailbox only: */
    /* mails that this program expunged: where such a mail is there under another UID, it got
     * that one */
    ARRAY(struct expunged_mail) former;
    /* number of the file with which the log begins, or of the oldest that is there */
    uint32_t first;
    uint64_t first_modseq; /* with which that one begins */
    bool begins;           /* the log is there from its first record on */
    /* broken, and it began after what was read last: with a rebuild of the index */
    bool anew;
    /* since then: expunges by clients of whose mails the log has the GUIDs */
    ARRAY(struct expunged_mail) asked;
    /* it was never looked at, and its log is there from its first record on */
    bool complete;
    /* What this program wrote behind where its row says that it was about to: */
    ARRAY_TYPE(seq_range) own_flags; /* mails whose flags or keywords it changed */
    ARRAY_TYPE(seq_range) own_saved; /* the mails of one transaction */
    bool anything;
    struct cursor end;
};

/* The opened and, where needed, synced mailbox against the cursor. Memory from the data stack. */
int log_scan(struct session *, struct mailbox *, const struct box *, struct log_scan *);
/* An open mailbox is the one of the cursor, or that one later on: by its index, its UIDNEXT and
 * the file of its log. */
bool log_is_known(struct mailbox *, const struct cursor *);
/* One log record's hash, type included; hdr: size is the data's. */
uint64_t log_record_hash(const struct mail_transaction_header *hdr, const void *data);
/* Adds what a record says of flags and keywords, unless it is of a sync. */
void log_flag_changes(struct session *, const struct mail_transaction_header *hdr, const void *data,
                      ARRAY_TYPE(flag_change) * flag_changes);
/* Which file it is, whatever it holds: a copy is another one. path "": dir is its descriptor. 0:
 * unknown. */
uint64_t log_identity(int dir, const char *path);
/* Where the log of the opened mailbox ends, as it is seen. */
struct log_pos log_end(struct mailbox *);

/* --- index_log_replay.c ----------------------------------------------------------------------- */

ARRAY_DEFINE_TYPE(backup_path, char *);
/* What the logs beside the index say behind the cursor. */
struct index_log_replay {
    ARRAY_TYPE(seq_range) requested;      /* expunges that clients asked for */
    ARRAY_TYPE(flag_change) flag_changes; /* changes of flags, in order */
    bool goes_on;                         /* the log that is there now goes on from them */
};
/* Adds to it (cursor NULL: nothing), and the paths of all of them to read. */
void index_log_replay_read(struct session *, struct mailbox *, const struct cursor *,
                           const struct log_scan *, struct index_log_replay *said,
                           ARRAY_TYPE(backup_path) * read);
void index_log_replay_pass(ARRAY_TYPE(backup_path) * from, ARRAY_TYPE(backup_path) * to);
/* The files, when what they say is committed. */
void index_log_replay_remove(ARRAY_TYPE(backup_path) *);
/* Ends the array. */
void index_log_replay_forget(ARRAY_TYPE(backup_path) *);

/* --- write_intent.c --------------------------------------------------------------------------- */

/* What is about to be committed to a mailbox is said in a row first. After a crash, or a commit
 * that failed, the mailbox's log tells whether it happened, and the state hears of it exactly:
 * whatever a client did since then is his. */
enum write_intent_kind { WRITE_INTENT_PLACE = 1, WRITE_INTENT_FLAGS };
struct write_intent {
    struct log_pos from;
    struct orset_buf row;
};
void write_intent_begin(struct write_intent *, struct mailbox *, enum write_intent_kind);
/* PLACE: the UID asked for, 0: the next one; in the order of the saves. FLAGS: folder and dot
 * are not used. */
void write_intent_add(struct write_intent *, uint32_t uid, uint32_t folder, struct orset_dot,
                      const struct orset_flags *);
void write_intent_free(struct write_intent *);
/* Inside a transaction of the state: before, and after. */
int write_intent_put(struct session *, struct box *, struct write_intent *);
int write_intent_end(struct session *, struct box *);
/* Inside ingest's transaction. */
int write_intent_recover(struct session *, struct mailbox *, struct box *, const struct log_scan *);
/* An earlier one is not known to have ended: nothing else is begun there. */
bool write_intent_unfinished(struct session *, const struct box *);
/* Which of n mails got which UID of one transaction's, by those that were asked for. False: they
 * are not as many. */
bool write_intent_assign(const ARRAY_TYPE(seq_range) * saved, const uint32_t *asked, uint32_t *got,
                         unsigned n);

/* --- ingest.c, mailbox_diff.c, removals.c ----------------------------------------------------- */

/* Called when a part is committed: its ops go to the peers. */
typedef int send_fn(struct session *);
/* INGEST: n 0 looks at all mailboxes. joined: the wait for the other sites has just ended. */
int ingest(struct session *, const struct frame_ingest *, bool joined, send_fn *);
/* One mailbox, committed in parts; its expunges go into later. */
struct ingest {
    ARRAY(struct removal) removals;        /* made into ops when all adds are (F17) */
    ARRAY(struct scanned_mailbox) scanned; /* whose cursors move with them */
    ARRAY_TYPE(backup_path) backups;       /* that were read */
    ARRAY(char *) outside;                 /* names of mailboxes that are not replicated */
    /* new mails whose bytes could not be read: what they are copies of stays */
    ARRAY_TYPE(mail_guid) unread;
    unsigned unread_sorted; /* how many of them there were when they were sorted */
    unsigned pending;       /* changes since the last commit */
    /* NULL, or its parts go to the peers as they are committed, with session.batch_bodies */
    send_fn *send;
    /* a mailbox could not be looked at: nothing is removed, since what was moved may be there */
    bool locked;
    bool postponed; /* a mail was not removed yet */
    /* mailboxes that were not deleted yet: what the journal says of them is needed again */
    ARRAY_TYPE(guid_128_t) staying;
    bool names; /* and what it says of subscriptions */
    /* some were read, which go when all that they say is committed */
    bool intents;
    /* unread has mails of replicated mailboxes that are beyond a bound */
    bool beyond;
    bool inbox; /* there is another one than the one that was renamed */
};
void ingest_stays(struct ingest *, const struct box *);
/* The tree: mailboxes against rows and folders; and subscriptions. Inside a transaction. */
int mailbox_diff_ingest(struct session *, struct ingest *);
/* 1: it could not be read either when nothing was missed last; 0; -1 */
int unreadable_was(struct session *, const char *vname);
/* in place of those before */
int unreadable_keep(struct session *, const char *const *vnames, unsigned n);
/* A client deleted the mailbox; forgets the row. Inside a transaction. */
int box_say_deleted(struct session *, struct box *);
/* Behind all adds: removals, then deletions. Inside a transaction. */
int mails_leave(struct session *, struct ingest *);
int mailboxes_leave(struct session *, struct ingest *);
/* Of an INBOX that was renamed, behind the adds of what it was renamed to. 1: its mails have
 * left it, and the one that is there now is to be looked at; 0: nothing, or not now; -1 */
int inbox_leave(struct session *, struct ingest *);
/* The mailboxes that are to be compared whole, now. */
int ingest_marked(struct session *);
int ingest_one(struct session *, struct box *);
/* What a sweep compares: files that change when the mailbox does. 0: unknown, look. */
uint64_t ingest_stamp(struct mailbox *);
/* Ends the quarantine by orset_local_expunge or orset_local_missing of each mail in it. How many
 * they were, or -1. In a transaction. */
int quarantine_end(struct session *, struct box *,
                   int (*fn)(struct orset *, uint32_t folder, uint32_t uid));
/* Decides on what is quarantined and is gone still; what went besides is the next scan's to
 * judge. How many mails that were, or -1. */
int quarantine_decide(struct session *, struct box *, bool accept);

/* --- guids.c: Maildir only --- */

struct known_guid {
    uint32_t uid;
    const char *guid;
};
ARRAY_DEFINE_TYPE(known_guid, struct known_guid);
/* Writes them into dovecot-uidlist. -1: they wait, which was noted. */
int guids_restore(struct session *, struct mailbox *, const ARRAY_TYPE(known_guid) *);

/* --- mdbox.c: mdbox only ---------------------------------------------------------------------- */

bool mdbox_is(const struct mailbox *);
/* The map that is open here was removed: the session is to be opened again. */
bool mdbox_map_is_removed(struct session *);
/* Before mails of the opened mailbox are judged, in a transaction. Where the map, or the
 * mailbox' index, is another one, and the files have mails that the map does not know, the
 * storage is rebuilt. 1: it was, the mailbox is closed and to be opened anew, and all are to be
 * looked at; 0: nothing; -1: nothing can be judged now, which was noted. */
int mdbox_mend(struct session *, const struct box *, struct mailbox *);
/* The opened mailbox, or the map, is another one than the last scan of it saw, or was rebuilt
 * since. */
bool mdbox_is_other(struct session *, const struct box *, struct mailbox *);
/* A mail was expunged on somebody's word; its bytes stay until a purge. In a transaction. */
int mdbox_expunged(struct session *, uint32_t folder, const uint8_t guid[16]);
struct expunged_guid {
    guid_128_t guid;
};
ARRAY_DEFINE_TYPE(expunged_guid, struct expunged_guid);
/* All of a folder, sorted, with those that are about to go. */
int mdbox_expunged_load(struct session *, uint32_t folder, ARRAY_TYPE(expunged_guid) *);
/* Such a mail that a rebuild put back: its bytes are named once, as no client's copy is. */
bool mdbox_is_back(struct mail *, const uint8_t guid[16], ARRAY_TYPE(expunged_guid) *);

/* --- body.c ----------------------------------------------------------------------------------- */

/* Bodies that a scan has read, at most as many as go along with one batch: what it found new is
 * sent with them, without reading them again, and what is a copy without any. */
struct batch_bodies *batch_bodies_create(void);
void batch_bodies_free(struct batch_bodies **);
void batch_bodies_clear(struct batch_bodies *);
/* Another one like the last would not fit beside them. */
bool batch_bodies_is_full(const struct batch_bodies *);
bool batch_bodies_find(const struct batch_bodies *, const uint8_t sha256[32], struct text *body_r);
/* The mail read last was copied or moved from one that the peers mostly have by now, or get with
 * this batch: they copy it likewise, and who has not asks. Its bytes are not kept. */
void batch_bodies_skip_last(struct batch_bodies *);
/* The op that adds it is this one of this site's. */
void batch_bodies_copied(struct batch_bodies *, uint64_t number);
bool batch_bodies_is_copied(const struct batch_bodies *, uint64_t number);

/* Everything of a mail that never changes; reads the body once, and keeps it if kept is not NULL
 * and it fits. guid_text is on the data stack. */
int body_facts(struct mail *, struct orset_facts *, struct batch_bodies *bodies);
/* Part of the canonical form (canonical.h), or, where that is not it, of all the bytes with
 * CRLF. 1; 0: no such mail any more, or its bytes are not those of that SHA-256; -1 */
int body_read(struct mail *, const uint8_t sha256[32], uint64_t offset, size_t most, buffer_t *part,
              uint64_t *size_r);
/* The mail has these bytes, as body_read() has them. One that cannot be read has not. */
bool body_is_of(struct mail *, const uint8_t sha256[32]);

/* Whether two mails are one message: their bytes are equal below the lines that a delivery puts
 * in front (Return-Path, Delivered-To, Received), CRs aside. 1, 0; -1: one cannot be read. A
 * stream is one that can go back: it is given at its start, and is there again afterwards. */
int body_same_mail(struct mail *, struct istream *);
int body_same_mails(struct mail *, struct mail *);

/* The GUID of a mail that is another message than the one whose GUID it has: first 16 bytes of
 * SHA-256("dovelane-parted:" guid sha256). */
void body_own_guid(uint8_t own_r[16], const uint8_t guid[16], const uint8_t sha256[32]);

/* mailbox_copy(), whose copy shows as many bytes as the mail has. */
int copy_mail(struct mail_save_context **, struct mail *);
/* Saves what the stream has; ends or cancels the save. */
int save_stream(struct mail_save_context *, struct istream *);

/* Bodies that came with a parcel, by SHA-256; NULL where absent. Points into the parcel. */
struct bodies *bodies_create(void);
void bodies_free(struct bodies **);
/* checked: body_is() says so */
void bodies_put(struct bodies *, const uint8_t sha256[32], struct text mail, bool checked);
unsigned bodies_count(const struct bodies *);
bool bodies_has(const struct bodies *, const uint8_t sha256[32]);
bool body_is(struct session *, const uint8_t sha256[32], struct text mail);
/* The body as a stream, from the parcel in work or the spool, or NULL. Checked against its hash. */
struct istream *body_open(struct session *, const uint8_t sha256[32]);
/* A part of a body that was asked for. 1: whole now, 0: *next_r is the offset to ask for, -1 */
int spool_put(struct session *, const struct parcel_body *, uint64_t *next_r);
/* What is whole there is dropped unless its bytes are those. */
bool spool_is(struct session *, const uint8_t sha256[32]);
/* something whole, whose bytes are not looked at */
bool spool_has(struct session *, const uint8_t sha256[32]);
/* What came with the parcel in work, whole: false when it cannot be kept. */
bool spool_keep(struct session *, const uint8_t sha256[32]);
void spool_drop(struct session *, const uint8_t sha256[32]);
/* Removes what is there when nothing waits for it: of mails that were removed before they were
 * whole. */
void spool_clear(struct session *);
/* How much of it is there. */
uint64_t spool_size(struct session *, const uint8_t sha256[32]);

/* --- validity.c ------------------------------------------------------------------------------- */

/* Of an open mailbox that never had a mail. uid_next: its UIDNEXT, 0: as it is (a Maildir's
 * always). False: it has had one since, or it failed, and all is as it was. */
bool validity_set(struct mailbox *, uint32_t uid_validity, uint32_t uid_next);

/* --- sync.c ----------------------------------------------------------------------------------- */

/* Between these two a mail is saved, and its file is not waited for ... */
void sync_gather(void);
void sync_let(void);
/* ... but here, for those of many mails at once: they are on the disk, or -1 and errno. Before
 * the mailbox's commit. */
int sync_gathered(void);

/* --- flags.c ---------------------------------------------------------------------------------- */

/* Dovecot's system flags as the core's bits. */
uint8_t flags_system(enum mail_flags);
void flags_of_mail(struct session *, struct mail *, struct orset_flags *);
const char *flags_text(struct session *, const struct orset_flags *); /* for the log */
bool flags_equal(const struct orset_flags *, const struct orset_flags *);
void flags_unite(struct orset_flags *, const struct orset_flags *more);
void flags_without(struct orset_flags *, const struct orset_flags *less);
/* A Maildir's file names carry keywords as letters; dovecot-keywords, which names them, is
 * written later, and a crash between leaves letters that Dovecot calls unknown-0, unknown-1, ...
 * True when there were such: nobody set them, and whose place they took is damage. */
bool flags_drop_nameless(struct session *, const struct mailbox *, struct orset_flags *);
/* Of a Maildir that is open: where that file is lost, the letters in use get these names before
 * another keyword gets one of them. */
void flags_name_letters(struct mailbox *);
/* Without the keywords that the mailbox cannot hold: they are not seen there (F29). */
void flags_holdable(struct session *, struct mailbox *, const struct orset_flags *wanted,
                    struct orset_flags *seen);
/* Keywords that the mailbox cannot hold are left out (F29). *keywords is NULL for none, else the
 * caller's. */
void flags_to_dovecot(struct session *, struct mailbox *, const struct orset_flags *,
                      enum mail_flags *, struct mail_keywords **);

/* --- body_requests.c -------------------------------------------------------------------------- */

struct body_requests *body_requests_begin(struct session *, uint64_t ask);
/* item: 1 and the number in the plan of what it is for, 0: for something else. NULL: it was not
 * asked for, as many others were. */
struct body_request *body_request_add(struct body_requests *, const struct orset_message *,
                                      unsigned item);
time_t body_request_until(const struct body_request *); /* then it may be asked for again */
/* each site said that it has not got it */
bool body_request_is_vain(const struct session *, const struct body_request *);
bool body_requests_full(const struct body_requests *); /* as many as can be asked for at once */
/* what is wanted from now on was asked for before: only its answer is taken */
void body_requests_silent(struct body_requests *);
void body_requests_end(struct body_requests **); /* asks */
/* NULL: not asked for */
struct body_request *body_request_find(struct session *, const uint8_t sha256[32]);
/* Counts one whose answer may still come. */
void body_request_awaited(struct body_requests *);
void body_request_given_up(struct body_requests *); /* that one, just wanted, is in nobody's way */
void body_requests_forget(struct session *);        /* no answer is awaited any more */
/* A site is back, perhaps: what was asked for again and again in vain is, at the next TICK. */
void body_requests_soon(struct session *);
/* Who was asked has not got it: somebody else is asked at a later TICK. */
void body_request_missed(struct session *, struct body_request *, const struct peer *);

/* --- patience.c ------------------------------------------------------------------------------- */

/* The mails of this mailbox wait no longer for those before them whose bodies did not come. */
bool patience_is_over(struct session *, uint32_t folder);
int patience_begin(struct session *, uint32_t folder); /* from now on some wait */
/* another site did: at the end of each parcel */
int patience_spoken(struct session *);
/* inside a transaction: the first mail in the order was placed */
int patience_renew(struct session *, uint32_t folder);
/* of all mailboxes: nothing waits any more */
int patience_forget(struct session *);
/* a whole part came of the body for item - 1 of the plan; 0: of another */
int patience_grown(struct session *, unsigned item);

/* --- give.c ----------------------------------------------------------------------------------- */

/* A peer's WANT. What is too much for one question is kept, and given at the next TICK. */
enum frame_result give_parcel(struct session *, uint64_t site, struct text body);
void give_rest(struct session *);
void give_free(struct session *);

/* --- journal.c, subscriptions.c --------------------------------------------------------------- */

/* The plugin's journal. NULL is freed, too. */
struct journal;
/* TRUE when there was something; it stays until it is dropped */
int journal_take(struct session *, struct journal **, bool *taken);
int journal_read(struct journal *); /* with what was written since */
bool journal_deleted(struct journal *, const guid_128_t guid);
/* What a folder that was deleted was called then. NULL: it was not, or nobody says. */
const char *journal_last_name(struct journal *, const guid_128_t guid);
bool journal_in_use(struct session *); /* what its last lines say is under way */
bool journal_subscription(struct journal *, const char *vname, bool on);
/* All that was concluded from it is committed, but for the deletions of these mailboxes, and,
 * with names, what it says of subscriptions. */
int journal_settle(struct session *, const ARRAY_TYPE(guid_128_t) * waiting, bool names);
void journal_free(struct journal **);

int subscriptions_ingest(struct session *, struct ingest *, struct journal *);
int subscriptions_apply(struct session *);

/* --- apply.c, tree.c, place.c, attributes.c --------------------------------------------------- */

int flags_apply(struct session *);
int removals_apply(struct session *);
int named_apply(struct session *); /* subscriptions and attributes */
#define UNPLACED_COUNTED PARCEL_WANTS_MAX
void count_waiting(struct session *); /* s->unplaced and quarantined are those of the state */
int tree_apply(struct session *);     /* folders that came or changed */
/* A mailbox has an earlier UIDVALIDITY than its folder by now: it is applied once more. */
bool tree_is_behind(struct session *);
int tree_apply_deletions(struct session *);
/* Compares one mailbox with the state: what it has is not known. */
typedef int scan_fn(struct session *, struct box *);
/* Mails without a body are asked for from ask (0: nobody in particular). */
int place_apply(struct session *, uint64_t ask, scan_fn *);
/* Only what the parcel in work brought: nothing more is asked for. */
int place_arrived(struct session *, uint64_t ask, scan_fn *);
/* Bodies come that this session did not ask for: so an earlier one of this user's did. */
int place_expect(struct session *, scan_fn *);
int renumber_apply(struct session *);
/* 1: what an earlier process, or a commit that failed, began in its mailbox is not known to have
 * ended; a scan of it is asked for. 0; -1 */
int renumber_unfinished(struct session *, uint32_t folder);
int bodies_apply(struct session *, uint64_t ask); /* mails whose bytes are not those agreed on */
/* Ends a change of UIDs that a crash cut short; row: what it left. uids: old ones, added to. 1;
 * 0: not now, the mailbox is locked; -1 */
int renumber_recover(struct session *, struct mailbox *, struct box *, const uint8_t *row,
                     size_t len, ARRAY_TYPE(seq_range) * uids);
/* modseq_repair.c: own changes that a batch's sender had not heard of. Inside the batch's
 * transaction; and when that is committed. */
int modseq_repair_note(struct session *, const struct peer *, uint64_t confirmed);
void modseq_repair_noted(struct session *, struct peer *, uint64_t confirmed);
int modseq_repair_apply(struct session *);
/* All that are there, or those that the log says were changed: only such a one was unset by
 * somebody. In a transaction. */
enum attributes_said {
    ATTRIBUTES_BY_USER, /* somebody changed them */
    ATTRIBUTES_UNSAID,  /* nothing is known to tell of a change */
    ATTRIBUTES_OTHER    /* the same, and the mailbox is another one, of an old backup perhaps */
};
int attributes_ingest(struct session *, struct mailbox *, uint32_t folder, enum attributes_said);
/* fresh: only changes that are */
int attributes_ingest_changed(struct session *, struct mailbox *, uint32_t folder,
                              const ARRAY_TYPE(attribute_change) * changes, bool fresh);
/* Behind a scan whose log does not tell all. lost: what is missing went with the index, and is
 * set again; but no access rights, which only a mailbox that was made again gets back. In a
 * transaction, both. */
int attributes_restore(struct session *, struct mailbox *, uint32_t folder, bool lost);
int rights_restore(struct session *, uint32_t folder);
int scripts_ingest_all(struct session *); /* Sieve scripts, also those that no log tells of */
/* 1: it waits */
int attribute_apply(struct session *, uint32_t folder, const char *key, size_t len);

/* --- identity.c ------------------------------------------------------------------------------- */

enum identity {
    IDENTITY_SAME,
    IDENTITY_OTHER,  /* another mail has the UID */
    IDENTITY_GONE,   /* the index has it, the storage does not */
    IDENTITY_UNKNOWN /* it cannot be read now; the mailbox's error says why */
};

/* The mail with that UID, or NULL. */
struct mail *mail_by_uid(struct mailbox_transaction_context *, uint32_t uid);
/* The mailbox that is open is the one that was looked at last. FALSE: it will be looked at
 * before anything is done to it. */
bool identity_head(struct session *, struct box *, struct mailbox *);
/* guid: of the state's message; zeros: not known, and any will do. sha256: of its bytes, which
 * prove it where the GUID differs; NULL: only the GUID does. */
enum identity identity_of(struct session *, struct mail *, const uint8_t guid[16],
                          const uint8_t *sha256);
/* The same. FALSE: nothing may be done to the mail; where it is another one, the mailbox will be
 * compared whole. */
bool identity_allows(struct session *, struct box *, struct mail *, const uint8_t guid[16],
                     const uint8_t *sha256);
/* What identity_allows() does where it is not the same. */
void identity_refuses(struct session *, struct box *, struct mail *, enum identity);

/* --- reading.c -------------------------------------------------------------------------------- */

/* A site's state is new, and it has not said yet that it has read its mailboxes: what is not
 * known of it may be there. */
bool peers_are_reading(struct session *);
/* Milliseconds after which none is believed to read any more, whatever it says; 0: none is. */
uint64_t peers_read_within(struct session *);
/* A site may have had a mailbox for long of which it has not told here: one is reading, or did not
 * answer this new state. Of a mailbox that never had a mail nothing is said then. */
bool peers_may_know_older(struct session *);
/* All is looked at when that is over. */
void wait_for_peers(struct session *);
/* To those who wait for that word and have confirmed what was read. */
int peers_say_read(struct session *);
int peer_is_reading(struct session *, struct peer *); /* its answer says so */
/* *over_r: nobody reads any more, so all mailboxes are to be looked at. */
enum frame_result reading_parcel(struct session *, struct peer *, struct text body, bool *over_r);

/* --- send_ops.c, peer.c, uid_rounds.c --------------------------------------------------------- */

#define OUTBOX_MOST (8 * 1024 * 1024) /* bytes of batches for one question, and one more of them */
/* from: of NEW, what was sent from there on is to be sent again; 0: nothing. Of CONFIRMED, 1:
 * one batch; 0: all. */
int ship(struct session *, uint64_t site, enum frame_ship how, uint64_t from);
int send_new_ops(struct session *); /* to all */

/* Rows that every peer has are dropped; a forgotten one will exchange (F38). Inside a
 * transaction. */
int peer_drop_confirmed(struct session *);
void peer_drop_exchange(struct session *, struct peer *);
void peer_asked(struct session *, struct peer *); /* an answer is awaited from now on */
/* Of a new state: main does not know it, and wants all asked whenever the user was opened. */
bool peer_has_answered(const struct session *, const struct peer *);
int peer_ask(struct session *, uint64_t site); /* begins an exchange */
/* The same when main asks: a new state asks nobody again who has answered it. */
int peer_exchange(struct session *, const struct peer *);
/* One is asked, or (NULL) all are: from now on a new state waits for those that have not
 * answered. */
int peer_join(struct session *, const struct peer *);
void peer_join_waits(struct session *);   /* wants a TICK when that wait is over */
int peer_exchanges_run(struct session *); /* those that got no answer begin anew */

/* Called when the UIDs of a folder were settled: the mailbox is to get them. */
typedef int settled_fn(struct session *);
int uid_rounds_run(struct session *, settled_fn *);
int uid_rounds_follow(struct session *);  /* those that came while mails lacked */
void uid_rounds_wanted(struct session *); /* asks for a TICK when a folder is dirty */
enum frame_result uid_rounds_parcel(struct session *, const struct frame_parcel *, settled_fn *);

/* --- round.c ---------------------------------------------------------------------------------- */

/* What changed in the mailboxes becomes ops, which go out; then all that the mailboxes lack. */
int round_ingest(struct session *, const struct frame_ingest *);
/* Does what the mailboxes still lack, in the core's order. Mails without a body are asked for
 * from ask (0: nobody in particular). */
int round_apply(struct session *, uint64_t ask);
int round_settled(struct session *); /* settled_fn */
int round_tick(struct session *);
/* Behind each question. What its result is then. */
enum frame_result round_end(struct session *, enum frame_result);

/* --- serve.c, user.c, parcels.c, admin.c ------------------------------------------------------ */

/* Serves one connection until it ends. */
void serve_begin(int fd, struct mail_storage_service_ctx *, void (*ended)(void));
void serve_end(void);

/* The number of a user's credentials, without opening anything of his, and *name_r (data stack),
 * what Dovecot calls him. 0: *permanent_r, *error_r (data stack) say why not. */
uint64_t user_credentials(struct mail_storage_service_ctx *, const char *username,
                          const char **name_r, bool *permanent_r, const char **error_r);
/* credentials: those he should have; 0: whatever they are. NULL: *permanent_r, *error_r (data
 * stack) say why not; *error_r is NULL when another process has to be asked, since he has
 * others, or this one has. */
struct session *session_open(struct link *, struct group *, struct mail_storage_service_ctx *,
                             const char *username, uint64_t credentials, bool *permanent_r,
                             const char **error_r);
void session_close(struct session **);
/* An old backup has the place of the state or of the mails, they are gone, or the state is no
 * database: what is open here is nobody's any more. The session is to be closed and opened
 * again. */
bool session_replaced(struct session *);

/* A peer's parcel. FRAME_REFUSED: it will never be understood. */
enum frame_result parcel_take(struct session *, const struct frame_parcel *);
enum frame_result admin(struct session *, const char *const *args);

#endif
