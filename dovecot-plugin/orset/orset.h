/* orset - the mailboxes of one user and namespace as OR-Sets. Any number of replicas change them
 * without asking each other, and once all have each other's operations, all are equal.
 *
 * The core does no I/O, reads no clock, knows neither Dovecot nor Redis. Its state is rows in a
 * struct orset_store, its tasks are rows too (orset_task_next), so a crash at any point loses
 * neither.
 *
 * Literature: Shapiro et al., "A comprehensive study of convergent and commutative replicated data
 * types", INRIA RR-7506, 2011: OR-Set. Bieniusa et al., "An optimized conflict-free replicated
 * set", INRIA RR-8083, 2012: dots and one vector instead of tombstones.
 *
 * THE RULES. "Rule N" in a comment of this folder means these; docs/replication-protocol.md has
 * them as users see them, with numbers of its own. F1 ... are rows of docs/failure-catalogue.md.
 *
 *  1 Dots. Each op of a replica takes the next numbers of its origin (site, epoch), without gaps. A
 *    thing that an op adds (a message, one flag on one message, a folder's presence, a
 *    subscription) is marked by one of the op's numbers: its dot. The vector holds, per origin, the
 *    highest number that is *in the state*, placed in a mailbox or not.
 *  2 A remove names the dots it saw and takes nothing else away. So an add that it did not see
 *    survives it (add wins).
 *  3 Order is kept per origin, none is needed across origins. A remove that names a dot the vector
 *    does not cover yet is remembered until that dot is covered; so is a flag on a message not
 *    covered yet. Nothing waits. Bounded: ORSET_PENDING_MAX entries per op origin, beyond that the
 *    origin's stream stops until a state exchange.
 *  4 A message is all live dots with equal (folder, GUID, k). k is the smallest positive integer
 *    that no live dot of (folder, GUID) has at the adding replica. Its flags are the union over its
 *    live dots, its facts those of the dot with the smallest (SHA-256, dot); a local change acts on
 *    each dot.
 *  5 Flags and keywords: enable wins. At most one dot per origin, flag and message dot; an enable
 *    replaces the dots seen, a disable removes them. \Deleted: disable wins, its dot is kept too;
 *    shown if an enable and no disable lives.
 *  6 A folder's id is the dot of its create, INBOX's is a constant. It exists while a presence dot
 *    or a message of it lives; each add and rename puts a fresh presence dot in place of those
 *    seen. Its name is a Lamport register of (namespace key, path components). Two ids with one
 *    name show as one mailbox; that is computed, not stored. UIDVALIDITY is a max register. The
 *    registers stay when the folder is gone, because a concurrent add may bring it back.
 *  7 Attributes (METADATA, ACL, Sieve) are Lamport registers per key; so are the folder's keeper
 *    and agreed UIDs.
 *  8 Lamport stamps are (clock, site, epoch); no wall clock is in any rule.
 *
 * RETURNS. 0 (ORSET_OK) or more is success, below 0 an enum orset_error; orset_error_text() then
 * says what, which value and the way out. After ORSET_E_MEMORY or ORSET_E_STORAGE the transaction
 * can only be rolled back. After any other error nothing of the failed call is in the state, and
 * the transaction may go on.
 *
 * THREADS. One struct orset is used by one thread at a time. Nothing is global. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_ORSET_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_ORSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dovecot-plugin/orset/store.h"

/* Bounds of everything that comes from outside. Rule: what could exceed them is refused before
 * anything changes. A bound that a peer's ops have (PEER) has a lower one for this site's own
 * (MAKE): no site makes what its peers refuse. */
#define ORSET_ORIGINS_MAX 4096         /* sites times epochs ever seen */
#define ORSET_COUNTER_MAX (1ULL << 48) /* numbers of one origin */
#define ORSET_CLOCK_MAX (1ULL << 48)   /* Lamport clocks and keeper terms */
#define ORSET_PEER_ORIGINS_MAX 1024    /* of the origins above, brought by one site's messages */
/* a stamp further ahead of all stamps seen is refused: clocks cannot be used up */
#define ORSET_CLOCK_JUMP (1ULL << 24)
#define ORSET_FOLDERS_MAX 1000000
#define ORSET_PEER_FOLDERS_MAX 200000
/* of any site's: this one makes no more then. All ever made go in one hello */
#define ORSET_MAKE_FOLDERS_MAX 50000
#define ORSET_NAME_MAX 1024 /* bytes of a folder name, separators included */
#define ORSET_COMPONENTS_MAX 64
#define ORSET_GUID_TEXT_MAX 255
#define ORSET_KEYWORD_MAX 255    /* bytes of one keyword */
#define ORSET_KEYWORDS_MAX 60000 /* different ones per user and namespace */
#define ORSET_PEER_KEYWORDS_MAX 20000
/* Of any site's: this one makes no more then. Sites that are apart make as many each, and a peer's
 * share must hold those of several. A site that hands a state on brings all of them. */
#define ORSET_MAKE_KEYWORDS_MAX 2500
#define ORSET_MESSAGE_KEYWORDS_MAX 100  /* on one message */
#define ORSET_MESSAGE_FLAGDOTS_MAX 4000 /* flag dots on one message dot */
/* live dots of one message; and copies of one GUID in a folder */
#define ORSET_SAME_MESSAGE_MAX 1000
/* of these dots, one site's. It makes one, when those before are gone */
#define ORSET_PEER_SAME_MAX 16
#define ORSET_ATTRIBUTE_KEY_MAX 1024
#define ORSET_ATTRIBUTE_MAX (1024 * 1024) /* bytes of a value: a Sieve script */
#define ORSET_PEER_MARKS_MAX 300          /* flag dots of one site's on one message dot */
#define ORSET_MAKE_MARKS_MAX 200          /* keywords beyond are not set on it here */
/* live dots of one site's on one subscription. It makes one */
#define ORSET_PEER_SUBSCRIBED_MAX 16
/* bytes of all subscriptions: then no more are made here */
#define ORSET_MAKE_SUBSCRIPTIONS_MAX (512 * 1024)
#define ORSET_PENDING_MAX 10000          /* remembered dots per site that named them */
#define ORSET_PENDING_EXCHANGE_MAX 50000 /* the same, brought by exchanges with that site */
#define ORSET_OP_DOTS_MAX 1000           /* dots named by one op */
#define ORSET_OP_MAX (2 * 1024 * 1024)   /* bytes of one op */
/* UID claims above it are not used: Dovecot panics near 2^32 (F32) */
#define ORSET_UID_MAX 0x7fffffffU
#define ORSET_UID_JUMP 1000000U /* nor those further above UIDNEXT */
#define ORSET_UID_STEP 100000U  /* by which one round follows another site's UIDNEXT */
#define ORSET_MODSEQ_MAX (1ULL << 62)
/* What a site asks others for: no mailbox has had so many changes. */
#define ORSET_RAISE_MAX (1ULL << 48)
#define ORSET_DATE_MAX (1LL << 40) /* seconds since 1970 */
#define ORSET_SIZE_MAX (1ULL << 40)

/* First byte of everything on the wire. */
#define ORSET_WIRE_VERSION 1

enum orset_error {
    ORSET_OK = 0,
    ORSET_KNOWN = 1, /* the op was in the state already; nothing changed */
    ORSET_E_MEMORY = -1,
    ORSET_E_STORAGE = -2,   /* the store failed, or holds rows that cannot be read */
    ORSET_E_MALFORMED = -3, /* bytes from a peer break the grammar or a bound */
    /* the op's number is not the next one: ask for the range again, or exchange */
    ORSET_E_GAP = -4,
    /* an op kind or version this program does not know: stop this origin's stream (F14) */
    ORSET_E_KIND = -5,
    ORSET_E_FORGED = -6, /* a peer's op names what it cannot know: alarm */
    ORSET_E_FORKED = -7, /* one number, two contents: alarm, new epoch at that origin (F20) */
    ORSET_E_ROLLED_BACK =
        /* a peer knows more of this replica than it does: orset_new_epoch, then exchange (F20) */
    -8,
    /* too much to remember: a state exchange with this origin comes first (F18) */
    ORSET_E_EXCHANGE = -9,
    ORSET_E_LIMIT = -10, /* a local change breaks a bound; the text names it */
    ORSET_E_ABSENT = -11 /* no such folder, message, row */
};

struct orset;

/* A replica: its site (chosen by the admin, unique in the group, not 0) and the epoch of its
 * state (random, not 0). */
struct orset_origin {
    uint64_t site, epoch;
};

/* A dot as this state writes it. origin is an index into its own table of origins
 * (orset_origin_get) and means nothing elsewhere. counter 0: no dot. */
struct orset_dot {
    uint16_t origin;
    uint64_t counter;
};

/* Of the origins of which a peer has more than this state, so many are named. */
#define ORSET_LACKS_MAX 8

/* A folder is named by its index in this state: stable here, meaningless elsewhere. */
#define ORSET_INBOX 0U
#define ORSET_NO_FOLDER UINT32_MAX /* "the server" in attributes */

/* Flags of a message. Bits of system: ORSET_ANSWERED ...; keywords are numbers of
 * orset_keyword(), rising. */
enum { ORSET_ANSWERED = 1, ORSET_FLAGGED = 2, ORSET_DELETED = 4, ORSET_SEEN = 8, ORSET_DRAFT = 16 };
#define ORSET_SYSTEM_FLAGS 5

struct orset_flags {
    uint8_t system;
    uint16_t nkeywords;
    uint16_t keyword[ORSET_MESSAGE_KEYWORDS_MAX];
};

/* What never changes of a message. guid is mail_generate_guid_128_hash(GUID). guid_text is the GUID
 * itself where it is not the hex form of guid (Maildir base names), else NULL. Owned by the code
 * that fills it in. */
struct orset_facts {
    uint8_t guid[16];
    uint8_t sha256[32];      /* of the canonical form (docs/replication-protocol.md) */
    int64_t received, saved; /* INTERNALDATE and save date, seconds since 1970 */
    uint64_t size;           /* bytes of that form */
    const char *guid_text;
    size_t guid_text_len;
};

/* A message dot as it is in the state. */
struct orset_message {
    uint32_t folder;
    struct orset_dot dot;
    uint32_t k;
    struct orset_facts facts; /* guid_text points into the handle: good until the next call */
    uint32_t claim;           /* the UID it had at its origin, 0: none */
    uint32_t uid;             /* bound here, 0: not placed */
    uint32_t agreed;          /* the UID it should have everywhere (rule 7), 0: none yet */
};

struct orset_folder {
    uint32_t index;
    struct orset_origin id_origin; /* {0, 0} for INBOX */
    uint64_t id_counter;
    bool live;        /* a presence dot or a message lives */
    bool named;       /* false while the create has not come yet */
    const char *name; /* namespace key, then each path component, separated by NUL */
    size_t name_len;
    uint8_t guid[16];      /* mailbox GUID its creator gave it */
    uint32_t uid_validity; /* 0: none known */
    uint32_t uid_next;     /* of the local mailbox, as last told */
    /* Another site, the one named, gave out all UIDs below this, perhaps to mails that are removed
     * by now; 1: no site did, as far as ops show */
    uint32_t uid_given;
    uint64_t given_site;
    /* the folder whose mailbox shows this one; itself unless names are equal */
    uint32_t home;
    uint64_t messages;    /* live dots */
    uint64_t keeper_site; /* 0: nobody chosen, the lowest site of the group */
    uint64_t peer_modseq; /* highest HIGHESTMODSEQ a peer told for it (F33) */
    /* of the batch applied last: the modseqs that its changes have where they were made; 0: it
     * did not tell */
    uint64_t batch_lo, batch_hi;
};

/* --- life
 * ---------------------------------------------------------------------------------------------- */

/* Opens the state in store, or makes a new one there (its own transaction) with the given origin.
 * An existing state keeps its own epoch; ORSET_E_LIMIT when its site is another one. The store and
 * the allocator's ctx stay the caller's and must outlive the handle. *created_r (may be NULL) is
 * true for a new state: exchange before ingest (F12). */
int orset_open(struct orset **os_r, const struct orset_alloc *, const struct orset_store *,
               const struct orset_origin *self, bool *created_r);
void orset_close(struct orset *);

/* Every change stands between begin and commit. Commit writes what is cached, then commits the
 * store. After an error of commit the transaction is rolled back. */
int orset_begin(struct orset *);
int orset_commit(struct orset *);
void orset_rollback(struct orset *);
bool orset_in_transaction(const struct orset *);
/* Inside a transaction: which mailbox shows which folder, as its commit will have it. */
int orset_homes(struct orset *);

/* The highest UIDVALIDITY that is believed from now on: the caller's clock in seconds + 1 day
 * (F23). Peers' ops above it are ORSET_E_MALFORMED. At first 2^32 - 2. */
void orset_bound_uid_validity(struct orset *, uint32_t most);

/* Text of the last error, never NULL, good until the next call. */
const char *orset_error_text(const struct orset *);

/* A new epoch for this replica (random, not 0, never used). It is for the time after a restore,
 * when the reserve file is ahead, and when orset_batch_apply, orset_answer or orset_take said
 * ORSET_E_ROLLED_BACK (F12, F20). Needs a transaction. What was given a number since the state may
 * have been restored gets a new number and stamp. Exempt is what a peer shows to be the same as
 * here. Nothing that a user did since is lost. Outgoing rows go (peers get what they lack by
 * exchange), exchanges under way are to be given up. Then exchange, then ingest. */
int orset_new_epoch(struct orset *, uint64_t epoch);
/* All numbers this state has given are its own history. Called right after orset_open, in a
 * transaction, when a reserve that was not restored with the state says RESERVE_NEW_EPOCH. The new
 * epoch then renumbers nothing, and what users removed before stays removed. */
int orset_epoch_trust(struct orset *);
/* A state that may be an old copy is in doubt when its reserve cannot know (it was restored with
 * it). It is in doubt from its open on, over restarts, until it has exchanged, as the asker, with
 * all peers it reaches. Meanwhile its users work on. A number given since that any peer mentions
 * shows the old copy (ORSET_E_ROLLED_BACK). Its caller sends nothing but hellos, and orset_answer
 * refuses (ORSET_E_EXCHANGE): a twin that one peer has taken cannot be had back. Of two in doubt
 * that wait for each other, one draws a new epoch at once, which ends the doubt; so may anyone. */
int orset_epoch_doubt(struct orset *, bool in_doubt);

/* --- what the state says
 * ---------------------------------------------------------------------------------------- */

uint16_t orset_origins(const struct orset *); /* how many indices there are */
struct orset_origin orset_origin_get(const struct orset *, uint16_t index);
uint64_t orset_vector_get(const struct orset *, uint16_t index); /* highest number in the state */
/* The state covers that number of that origin: what is not in it was removed, or never was. */
bool orset_knows(const struct orset *, uint64_t site, uint64_t epoch, uint64_t counter);
uint16_t orset_self(const struct orset *); /* index of this replica */
/* fn is called for each mail to which an op of a peer, or an exchange, gives flags, even those that
 * it has. It is called for each mail that these let be removed, too. It is called in the middle of
 * that, so it calls nothing here. NULL: none is. */
typedef void orset_changed_fn(void *arg, uint32_t home, uint32_t uid);
void orset_on_changed(struct orset *, orset_changed_fn *fn, void *arg);
/* fn is called for each mail that a mailbox has, when another site's dot of the same message comes.
 * A user who removes the mail later takes that dot, too. fn is called in the middle of that, and
 * may be NULL. */
void orset_on_joined(struct orset *, orset_changed_fn *fn, void *arg);
/* fn is called for each message that a removal takes out of the state, in the middle of that, so it
 * calls nothing here. NULL: none is. */
typedef void orset_removed_fn(void *arg, const struct orset_facts *);
void orset_on_removed(struct orset *, orset_removed_fn *fn, void *arg);
/* keywords of mails that orset_local_flags() did not set, since the open: a bound */
uint64_t orset_left_out(const struct orset *);
size_t orset_keywords(const struct orset *); /* different ones */
/* a call has failed half done: the transaction cannot be committed */
bool orset_must_roll_back(const struct orset *);
/* rows kept for dots not covered yet */
uint64_t orset_remembered(const struct orset *);

/* The canonical digest: equal on two replicas exactly when their live elements and registers are
 * (but for hash collisions). UIDs bound, task rows, origin indices and dead folders do not
 * count. */
void orset_digest(const struct orset *, uint8_t digest_r[16]);

uint32_t orset_folders(const struct orset *);
int orset_folder_get(const struct orset *, uint32_t index, struct orset_folder *);
/* The index of the live folder with that name (the one whose mailbox shows it), ORSET_NO_FOLDER
 * when there is none. */
uint32_t orset_folder_by_name(const struct orset *, const char *name, size_t len);
/* Whether a live folder has that name, or one below it. */
bool orset_has_name(const struct orset *, const char *name, size_t len);

/* 1 and the message that has this UID in the mailbox of folder, 0 when there is none. Its dot is
 * the one with the smallest (SHA-256, dot), whose facts are the message's. */
int orset_message_by_uid(struct orset *, uint32_t folder, uint32_t uid, struct orset_message *);
int orset_message_get(struct orset *, uint32_t folder, struct orset_dot, struct orset_message *);
/* The flags the message with this dot should show: the union over its live dots. */
int orset_message_flags(struct orset *, uint32_t folder, struct orset_dot, struct orset_flags *);
/* 1: somebody cleared \Deleted, and nobody who had seen that has set it since; 0 */
int orset_message_rescued(struct orset *, uint32_t folder, struct orset_dot);
/* Calls fn for each live dot of the folder in dot order until it returns non-zero, which is
 * returned. fn must not change the state. */
typedef int orset_message_fn(void *arg, const struct orset_message *,
                             const struct orset_flags *own);
int orset_each_message(struct orset *, uint32_t folder, orset_message_fn *, void *arg);
/* The same for those of one GUID, by k, then dot. fn must not call the core. */
int orset_each_copy(struct orset *, uint32_t folder, const uint8_t guid[16], orset_message_fn *,
                    void *arg);
/* 1: a live message of some folder that is placed here has this GUID and these bytes. 0: none has,
 * or it is one of very many of that GUID. */
int orset_mail_lives(struct orset *, const uint8_t guid[16], const uint8_t sha256[32]);

/* Where the messages of that GUID are, of all folders. */
enum orset_where {
    ORSET_NOWHERE, /* there is none */
    ORSET_DOOMED,  /* none lives, and one waits for its ORSET_TASK_REMOVE */
    ORSET_WAITING, /* one that lives is not placed here, or is_there said so */
    ORSET_PLACED   /* all that live are placed here */
};
/* is_there is asked for each that has a UID, and calls nothing here. */
typedef bool orset_there_fn(void *arg, uint32_t home, uint32_t uid);
int orset_guid_where(struct orset *, const uint8_t guid[16], orset_there_fn *is_there, void *arg);

/* Keywords: compared without regard to ASCII case; the spelling seen first here is the one shown
 * here. Returns the number, or ORSET_E_LIMIT: it is to be left out, the mail goes without. The
 * name is good until close. */
int orset_keyword(struct orset *, const char *name, size_t len);
const char *orset_keyword_name(const struct orset *, uint16_t keyword, size_t *len);

bool orset_subscribed(struct orset *, const char *name, size_t len);
/* 1 and the value (good until the next call), 0 when unset. */
int orset_attribute_get(struct orset *, uint32_t folder, const char *key, size_t key_len,
                        const uint8_t **value, size_t *len);
/* 1: some site has set it, or unset it; 0 */
int orset_attribute_known(struct orset *, uint32_t folder, const char *key, size_t key_len);

/* --- local changes: ingest
 * -------------------------------------------------------------------------------------- */
/* The caller gives the mailbox as it is now. The core compares it with what this replica last saw
 * there, not with what the state wants (F4). So a second scan makes no op, and what a mailbox could
 * not hold is not read back as a user's removal. All return ORSET_OK when an op was made,
 * ORSET_KNOWN when there was nothing to do. */

/* A mailbox was created. The id is in *folder_r. uid_validity 0: not known yet. */
int orset_local_create(struct orset *, const char *name, size_t len, uint32_t uid_validity,
                       const uint8_t guid[16], uint32_t *folder_r);
/* The mailbox of folder has another name. All ids shown in it get it. One that other sites have
 * deleted lives by it: who renamed its mailbox, which is here still, has not seen that (rule 6).
 * Not for INBOX (F25: create, then move the mails). */
int orset_local_rename(struct orset *, uint32_t folder, const char *name, size_t len);
/* The mailbox was deleted by a user (the caller has the intent as evidence, F1): removes all
 * presence and message dots seen. A folder that lives on by mails that were not placed yet is an
 * ORSET_TASK_FOLDER: it is to be made again. */
int orset_local_delete(struct orset *, uint32_t folder);
/* A UID not seen before. Binds it, without an op, to an unplaced message of the same GUID in that
 * mailbox (F13), else adds a dot. A UID that waits for its ORSET_TASK_REMOVE is ORSET_KNOWN, *dot_r
 * then {0, 0}. A mail in the mailbox of a folder that another mailbox shows by now is to be placed
 * there and removed here. flags: as the mailbox has them now. *dot_r may be NULL. */
int orset_local_add(struct orset *, uint32_t folder, uint32_t uid, const struct orset_facts *,
                    const struct orset_flags *flags, struct orset_dot *dot_r);
/* What orset_local_add() has bound to another site's message, a client has saved here, too. Adds a
 * dot of this site's own to it, so that a removal that had not seen it does not take it away (rule
 * 1). ORSET_KNOWN: it has one, or is not bound, or its bytes are others. A dot of an earlier epoch
 * is one, too: the state may be older than the mailbox, and the other sites know the mail as it was
 * saved here. What they removed or cleared of it since, they had seen. */
int orset_local_also(struct orset *, uint32_t folder, uint32_t uid, const struct orset_facts *,
                     const struct orset_flags *flags, struct orset_dot *dot_r);
/* The mail under this UID waits for an ORSET_TASK_BODY. It is another message than the one it is
 * bound to, though the mailbox has it under the same GUID (there). That one is to be placed, and
 * this mail becomes a message of its own. Its GUID, in facts, is a function of the old one and of
 * its bytes: what several sites part the same way is one message. ORSET_KNOWN: nothing was done,
 * since the mailbox has that message under another UID, so that this mail may give way. facts and
 * flags are those of orset_local_add(), but without a text. */
int orset_local_part(struct orset *, uint32_t folder, uint32_t uid, const uint8_t there[16],
                     const struct orset_facts *facts, const struct orset_flags *flags);
/* A mail that was removed is in the mailbox again by nobody's doing: an ORSET_TASK_REMOVE
 * without an op. 1; 0: a live message of any folder has that GUID, so that it may be wanted
 * (orset_local_add), or it is bound. */
int orset_local_back(struct orset *, uint32_t folder, uint32_t uid, const uint8_t guid[16]);
/* The calls that follow speak of these UIDs. It is a hint, good before any change of many mails of
 * one mailbox (a scan, a transaction's flag changes), a hundred at a time. In the memory store it
 * halves what a change of mails all over a large mailbox costs; SQLite has no use for it. UIDs that
 * are not there do no harm, and nothing changes. In the order of UIDs, please: their rows stand in
 * that order. */
void orset_prefetch(struct orset *, uint32_t folder, const uint32_t *uids, size_t n);

/* The flags a UID has now. reassert: flags a client set again explicitly though they were set (F4),
 * or which the mailbox lost since by another site's op. Flags that are found to be cleared now do
 * not count. May be NULL. May be NULL. */
int orset_local_flags(struct orset *, uint32_t folder, uint32_t uid, const struct orset_flags *now,
                      const struct orset_flags *reassert);
/* The same where a client set \Deleted and cleared it since. That becomes an op, also where the
 * mailbox was seen with it since by another site's op. Not where it is found to be set now. */
int orset_local_undeleted(struct orset *, uint32_t folder, uint32_t uid,
                          const struct orset_flags *now, const struct orset_flags *reassert);
/* The flags that a UID was last seen with here. 1; 0: no message is bound to it. */
int orset_flags_seen(struct orset *, uint32_t folder, uint32_t uid, struct orset_flags *);
/* A UID was removed on evidence. A user who removed a mail whose bytes are not those agreed on has
 * seen no others. So the message goes only as far as sites saved it with these, and else is to be
 * placed. */
int orset_local_expunge(struct orset *, uint32_t folder, uint32_t uid);
/* The same for a mail whose folder is shown in another mailbox by now (two ids with one name). It
 * had this UID in the folder's own mailbox, and was removed on evidence before it left that for the
 * other one (orset_done_remove). ORSET_KNOWN when it has left, or is gone. */
int orset_local_expunge_moved(struct orset *, uint32_t folder, uint32_t uid);
/* The same for flags that a client set and cleared there, by his last word on each. */
int orset_local_flags_moved(struct orset *, uint32_t folder, uint32_t uid,
                            const struct orset_flags *set, const struct orset_flags *cut);
/* That folder is shown in another one's mailbox, and the mail waits to leave its own. 1 or 0 */
int orset_leaves_moved(struct orset *, uint32_t folder, uint32_t uid, const uint8_t guid[16]);
/* A mail that folder's mailbox has under this UID, which was folder old's mailbox before; no
 * message is bound to it. 1: it is one that other sites have removed, and is to go here, too (an
 * ORSET_TASK_REMOVE without an op); 0: it is not. */
int orset_local_removed_moved(struct orset *, uint32_t folder, uint32_t old, uint32_t uid,
                              const uint8_t guid[16]);
/* A user deleted the mailbox of such a folder: the mails it had, and the folder's presence. */
int orset_local_delete_moved(struct orset *, uint32_t folder);
/* A user deleted the mailbox that he knew by this name. Some mails were shown by that name in a
 * mailbox that they are leaving, and wait to be placed in another one: they go, too. So does their
 * folder's presence, where is_shown says that it has no mailbox; it calls nothing here.
 * ORSET_KNOWN: there are no such mails. */
typedef bool orset_shown_fn(void *arg, uint32_t folder);
int orset_local_delete_left(struct orset *, const void *name, size_t len, orset_shown_fn *is_shown,
                            void *arg);
/* A UID is missing without evidence: damage. The message stays and is to be placed again. */
int orset_local_missing(struct orset *, uint32_t folder, uint32_t uid);
int orset_local_subscribe(struct orset *, const char *name, size_t len, bool on);
/* It is shown so by no user's doing: it is to be made as the state has it. ORSET_KNOWN: it is. */
int orset_local_subscription_shown(struct orset *, const char *name, size_t len, bool on);
/* value NULL: unset. */
int orset_local_attribute(struct orset *, uint32_t folder, const char *key, size_t key_len,
                          const uint8_t *value, size_t len);
/* The mailbox has this value (NULL: none) by no user's doing: it is to get the state's.
 * ORSET_KNOWN: that is the same. */
int orset_local_attribute_shown(struct orset *, uint32_t folder, const char *key, size_t key_len,
                                const uint8_t *value, size_t len);
/* Raises the folder's UIDVALIDITY; lower or equal is ORSET_KNOWN. now: the caller's clock in
 * seconds, for the bound of F23. Values above now + 1 day are ORSET_E_LIMIT. */
int orset_local_uid_validity(struct orset *, uint32_t folder, uint32_t value, int64_t now);
/* The local mailbox's UIDNEXT as the caller reads it; never lowered here. */
int orset_local_uid_next(struct orset *, uint32_t folder, uint32_t uid_next);
/* The UIDNEXT that other folders of its name had here under its UIDVALIDITY; 1: none had. */
uint32_t orset_namesakes_uid_next(const struct orset *, uint32_t folder);

/* --- tasks: what the mailboxes still lack
 * ---------------------------------------------------------------------- */

enum orset_task_kind {
    /* folder came, went, changed name or UIDVALIDITY: compare with mailbox_tree.h's view. A mailbox
     * that is to be deleted is ingested first, under its lock: a mail that came since keeps the
     * folder. */
    ORSET_TASK_FOLDER,
    /* save dot; from source (folder, uid) by copy if source_uid is not 0, else body wanted */
    ORSET_TASK_PLACE,
    ORSET_TASK_FLAGS, /* uid should show flags */
    /* uid should become new_uid; all of a folder in one transaction, rising new_uid */
    ORSET_TASK_RENUMBER,
    /* expunge uid. Not given while a live message of its GUID has no UID here, in any folder and
     * for any reason. This one is that message's source, and may be the last one. */
    ORSET_TASK_REMOVE,
    ORSET_TASK_SUBSCRIPTION, /* name: set as orset_subscribed() says */
    ORSET_TASK_ATTRIBUTE,    /* folder, name = key: set as orset_attribute_get() says */
    /* uid holds other bytes than message says: two sites saved one GUID differently. If they are
     * one message but for trace lines (a gateway's second delivery), the smallest SHA-256 wins.
     * Then save message's body anew with flags, and expunge uid, in one transaction. Else both
     * live: orset_local_part(). message.dot.counter 0: message was removed elsewhere, where nobody
     * had seen these bytes. Then the state does not know the mail: orset_local_add(),
     * orset_done_alone(). */
    ORSET_TASK_BODY
};

struct orset_task {
    enum orset_task_kind kind;
    uint32_t folder; /* the mailbox to work on (a home) */
    uint32_t uid, new_uid;
    /* PLACE, BODY: facts of the message. PLACE: ask for UID uid, 0: the next one */
    struct orset_message message;
    struct orset_flags flags; /* PLACE, FLAGS, BODY */
    uint32_t source_folder, source_uid;
    const char *name; /* good until the next call */
    size_t name_len;
    /* Where to go on; zero it before the first call. */
    size_t at_len;
    uint8_t at[1400];
};

/* 1 and the next row behind *task, 0 when there is no more. Order: by kind as in the enum, then
 * folder, then UID or dot. Rows stay until the matching done call, over any crash. */
int orset_task_next(struct orset *, struct orset_task *task);
/* The next ORSET_TASK_PLACE row, also one that orset_task_next() passes over for now. It is read no
 * further than its place in the mailbox. folder is the mailbox, uid the agreed UID, whether or not
 * it can be had. */
int orset_task_next_place(struct orset *, struct orset_task *task);
/* Another number than before when there are others of these rows, but for what was placed, or
 * they may have another folder or uid. */
uint64_t orset_place_changes(const struct orset *);
/* Messages that have no UID here, at most so many: what ORSET_TASK_PLACE gives. */
int orset_unplaced(struct orset *, unsigned most);
/* The very row that task->at names, as orset_task_next() left it there. 0: it is not there any
 * more. */
int orset_task_get(struct orset *, struct orset_task *task);
/* 1: a mail that has the GUID `there` in its mailbox is one that the state knows under guid. It is
 * the same, or joined with it by its bytes (match_mails.h), or parted from another
 * (orset_local_part). 0: it is not that one. 0: it is not. */
int orset_guid_is(struct orset *, const uint8_t guid[16], const uint8_t there[16]);
/* 1 and the GUID of the mail that waits for its ORSET_TASK_REMOVE under this UID (zeros: it is
 * not known), 0: none does. */
int orset_task_doomed_guid(struct orset *, uint32_t home, uint32_t uid, uint8_t guid_r[16]);

/* The message is in the mailbox under uid with these flags (what the mailbox could hold). */
int orset_done_place(struct orset *, uint32_t folder, struct orset_dot, uint32_t uid,
                     const struct orset_flags *seen);
int orset_done_flags(struct orset *, uint32_t folder, uint32_t uid, const struct orset_flags *seen);
int orset_done_remove(struct orset *, uint32_t folder, uint32_t uid);
int orset_done_renumber(struct orset *, uint32_t folder, uint32_t uid, uint32_t new_uid);
/* The mail of uid is now new_uid, with the bytes of message; uid is expunged. */
int orset_done_body(struct orset *, uint32_t folder, uint32_t uid, uint32_t new_uid,
                    const uint8_t sha256[32]);
/* The mail of uid, whose message was removed, is a message of its own, or is gone. */
int orset_done_alone(struct orset *, uint32_t folder, uint32_t uid);
int orset_done_folder(struct orset *, uint32_t folder);
int orset_done_subscription(struct orset *, const char *name, size_t len);
int orset_done_attribute(struct orset *, uint32_t folder, const char *key, size_t len);

#endif
