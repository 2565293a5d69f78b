/* internal - what the core's files share. Callers never include it.
 *
 *    local.c, mark.c  a change in the mailbox ──▶ op bytes ─┐
 *    batch.c  a peer's ops ─────────────────────────────────┴▶ exec.c ──▶ message.c, folder.c, named.c, pending_dots.c ──▶ store
 *    merge.c  a peer's state ───────────────────────────────────────────▶ (the same)
 *    tasks.c  the tasks        epoch.c, renumber.c  old copies      bounds.c, quota.c  what a peer may bring
 *
 * Local and foreign ops take the same way into the state, so a replica cannot treat its own op
 * otherwise than its peers do. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_INTERNAL_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_INTERNAL_H

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"

#define ORSET_INBOX_ORIGIN 0xffff /* id of INBOX: {this, 0} */
/* in ORSET_T_GUID: the counter is a UID that is to be removed and can still be copied */
#define ORSET_DOOMED_ORIGIN 0xfffe
/* in a row: exchanges can bring together what several sites had */
#define ORSET_ROW_FLAGDOTS_MAX (10 * ORSET_MESSAGE_FLAGDOTS_MAX)
/* task rows of this kind: UID is not the agreed one; for the keeper's round \ */
#define ORSET_TASK_MISMATCH 20

#define ORSET_GUID_PREFIX 6                        /* bytes of a GUID in the keys of ORSET_T_GUID */
#define ORSET_SUBSCRIPTION_DOTS 256                /* live dots of one name */
#define ORSET_SUBSCRIPTION_BYTES (2 * 1024 * 1024) /* of all of them, which go in one answer */

struct stamp {
    uint64_t clock, site, epoch;
};

/* Tables that a peer's messages fill, each bounded per site that fills it (quota.c). */
enum quota { QUOTA_ORIGINS, QUOTA_KEYWORDS, QUOTA_FOLDERS, ORSET_QUOTAS };

struct origin {
    struct orset_origin id;
    uint64_t counter; /* the version vector */
    /* running hash of the ops up to counter, 0: not known (an exchange jumped over them) */
    uint64_t chain;
    uint64_t ahead;                 /* rows remembered because ops of this origin named them */
    uint64_t hash;                  /* of id, a constant */
    uint32_t brought[ORSET_QUOTAS]; /* rows its messages brought into the shared tables */
    bool dirty;
};

struct keyword {
    char *name; /* as shown */
    size_t len;
    uint64_t hash; /* of the name in lower case */
};

/* The keeper's word on a UID (uid.h). */
struct agreed {
    uint64_t term;
    uint32_t round, uid;
    uint16_t by;
};

struct flagdot {
    uint16_t flag; /* 0..4: bit of orset_flags.system; from 5: keyword number + 5 */
    bool off;      /* a disable's dot (only \Deleted has them) */
    struct orset_dot dot;
};

struct message {
    struct orset_message p;
    bool siblings; /* another live dot of this (folder, GUID, k) may exist */
    uint64_t term;
    uint32_t round, agreed; /* the keeper's word for this dot, round 0: none */
    uint16_t agreed_by;     /* the keeper that said so */
    unsigned nflags, room;
    struct flagdot *flag;
    char guid_text[ORSET_GUID_TEXT_MAX];
};

/* Where a message's row is. */
struct place {
    uint32_t folder;
    struct orset_dot dot;
};

/* A live dot of some (folder, GUID). */
struct copy {
    uint32_t k;
    struct orset_dot dot;
};

/* Those of the (folder, GUID) asked for last (group.c). */
struct copies {
    bool good;
    uint32_t folder;
    uint8_t prefix[ORSET_GUID_PREFIX];
    unsigned n, room;
    struct copy *v; /* rising by k, then dot */
};

struct folder {
    uint32_t index, home;
    struct orset_dot id;
    unsigned npresence, presence_room;
    struct orset_dot *presence;
    char *name;
    size_t name_len;
    struct stamp name_stamp; /* clock 0: no name yet */
    uint8_t guid[16];
    uint32_t uid_validity, uid_next;
    uint64_t messages;
    struct orset_sum sum; /* of its message and flag elements */
    struct stamp keeper_stamp;
    uint64_t keeper;
    uint64_t peer_modseq;
    uint64_t round_term; /* last settled round seen */
    uint32_t round;
    uint32_t ask;   /* the keeper's last question */
    uint32_t gap;   /* of the keeper's next round */
    bool uid_dirty; /* a UID here may not be the agreed one: mismatch rows say which */
    bool uid_told;  /* a peer said so of its own; for the keeper */
    bool stepped;   /* orset_uid_stepped(); in memory only */
    bool dirty;
};

struct orset {
    struct orset_alloc alloc;
    struct orset_store store;
    bool open, broken;      /* in a transaction; it can only be rolled back */
    uint64_t place_changes; /* orset_place_changes() */
    bool tree_dirty;
    bool meta_dirty;
    bool holds_rounds; /* orset_uid_hold() */
    uint16_t self, norigins;
    struct origin *origin;
    uint64_t clock;         /* highest Lamport clock seen */
    struct orset_sum named; /* of subscriptions and attributes */
    uint64_t left_out;      /* keywords that were not set, since it was opened */
    uint64_t modseqs_risen; /* how often a folder's peer_modseq did, since it was opened */
    size_t subscriptions;   /* their bytes + 1; 0: not counted yet */
    uint64_t remembered;
    uint64_t shared;       /* own number up to which a peer has the same ops (epoch.c) */
    uint64_t shared_clock; /* up to which own stamps are the same everywhere */
    /* own numbers from here on no peer can know (orset_epoch_doubt), 0: not in doubt */
    uint64_t doubt;
    /* the epoch drawn by this handle: it cannot be of an old copy; 0: none */
    uint64_t drawn;
    uint64_t aliases;           /* GUIDs that stand for another one (join.c) */
    uint32_t most_uid_validity; /* bound of F23 */
    uint32_t nfolders, folder_room;
    struct folder **folder;
    uint32_t *by_id; /* open addressing: folder index + 1, 0 empty */
    uint32_t by_id_room;
    uint32_t *dirty; /* folders to write */
    uint32_t ndirty, dirty_room;
    uint16_t nkeywords;
    struct keyword *keyword;
    /* m[0]: queries and local changes; m[1]: exec; m[2]: sums over a group */
    struct message m[3];
    struct orset_dot *group; /* ORSET_SAME_MESSAGE_MAX */
    struct copies copies;
    struct orset_buf op, row; /* an op in the making; a row in the making */
    struct orset_buf hold;    /* a value handed out */
    struct watch *watches;    /* of the open exchanges in which this replica asks */
    char error[300];
};

/* --- rows.c */
int orset_fail(struct orset *, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int orset_storage_fail(struct orset *, const char *what);
/* a row cannot be true: the store is told, and it is a failure of it */
int orset_corrupt(struct orset *, const char *what);
void *orset_mem(struct orset *, void *p, size_t n); /* NULL marks the transaction broken */
int orset_need_transaction(struct orset *);
/* --- origins.c */
int orset_intern_origin(struct orset *, struct orset_origin);     /* index or error */
int orset_find_origin(const struct orset *, struct orset_origin); /* index or -1 */
bool orset_covered(const struct orset *, struct orset_dot);
bool orset_same_dot(struct orset_dot, struct orset_dot);
/* by (site, epoch, counter) */
int orset_dot_order(const struct orset *, struct orset_dot, struct orset_dot);
int orset_stamp_order(struct stamp, struct stamp);
int orset_see_clock(struct orset *, uint64_t clock);
struct stamp orset_next_stamp(struct orset *);
int orset_origins_read(struct orset *);
int orset_origins_write(struct orset *); /* those that changed */
void orset_origins_free(struct orset *);

int orset_row_put(struct orset *, enum orset_table, const struct orset_key *,
                  const struct orset_buf *);
int orset_row_del(struct orset *, enum orset_table, const struct orset_key *);
int orset_row_get(struct orset *, enum orset_table, const struct orset_key *,
                  struct orset_reader *);
void orset_dot_write(struct orset_buf *, struct orset_dot);
void orset_key_dot(struct orset_key *, struct orset_dot);
/* Numbers of a row's key or value that are used as indices. Out of bounds they are bad, and the
 * index is one that exists. */
struct orset_dot orset_key_read_dot(const struct orset *, struct orset_reader *);
struct orset_dot orset_row_read_dot(const struct orset *, struct orset_reader *);
uint32_t orset_key_read_folder(const struct orset *, struct orset_reader *);

/* --- keywords.c */
int orset_keywords_read(struct orset *);
void orset_keywords_free(struct orset *);
uint64_t orset_flag_hash(const struct orset *, uint16_t flag);
int orset_keyword_find(const struct orset *, const char *name, size_t len); /* number or -1 */
/* as orset_keyword(), for whoever has counted it */
int orset_keyword_make(struct orset *, const char *name, size_t len);

/* --- folder.c */
struct folder *orset_folder_at(const struct orset *, uint32_t index);
struct folder *orset_need_folder(struct orset *, uint32_t folder, int *r); /* NULL: *r says why */
struct folder *orset_folder_find(const struct orset *, struct orset_dot id);
struct folder *orset_folder_make(struct orset *,
                                 struct orset_dot id); /* finds or makes; NULL: broken or limit */
/* 0 (INBOX) | origin index + 1, counter of its create */
void orset_folder_id_write(struct orset_buf *, const struct folder *);
int orset_folder_touch(struct orset *, struct folder *);
int orset_folder_write(struct orset *, struct folder *);
int orset_folders_read(struct orset *);
void orset_folders_free(struct orset *);
bool orset_folder_live(const struct folder *);
bool orset_has_presence(const struct folder *, struct orset_dot);
int orset_presence_put(struct orset *, struct folder *, struct orset_dot);
int orset_presence_kill(struct orset *, struct folder *, struct orset_dot);
int orset_folder_name(struct orset *, struct folder *, const void *name, size_t len, struct stamp);
bool orset_name_valid(const void *name, size_t len);
void orset_folder_reidentify(struct orset *, struct folder *, struct orset_dot id);
struct orset_sum orset_folder_sum(const struct orset *, const struct folder *);
/* Never lowered: ORSET_KNOWN then. */
int orset_folder_uid_next(struct orset *, struct folder *, uint32_t uid_next);
int orset_folder_changed(struct orset *, struct folder *); /* task row, tree to compute */

/* --- arrivals.c */
struct watch {
    const struct peer *upto; /* what it covers is of interest; NULL: nothing yet */
    bool paused;             /* who watches does this itself */
    bool *again;             /* folders that something came into, by index */
    uint32_t room;
    bool any_again, named_again;
    struct watch *next;
};
void orset_watch(struct orset *, struct watch *);
void orset_unwatch(struct orset *, struct watch *); /* and forget what it was told */
/* d came into the state, in folder (ORSET_NO_FOLDER: a subscription): who watches looks there
 * again, if its vector covers d. */
int orset_arrived(struct orset *, uint32_t folder, struct orset_dot d);

/* --- message.c */
/* 1, 0, error */
int orset_message_load(struct orset *, uint32_t folder, struct orset_dot, struct message *);
int orset_message_store(struct orset *, struct message *);
int orset_message_parse(struct orset *, struct orset_reader *, struct message *); /* value only */
/* folder and dot */
bool orset_message_key_read(const struct orset *, struct orset_reader *key, struct message *);
int orset_message_del(struct orset *, const struct message *); /* its row */
/* The keeper's word on it. 1 when it changed */
int orset_agree(struct orset *, struct message *, const struct agreed *);
/* --- message_set.c */
int orset_message_add(struct orset *, struct message *, uint32_t uid);
/* m under another number: its rows, and those that name it. The folder's sum is the caller's. */
int orset_message_redot(struct orset *, struct folder *, struct message *m, struct orset_dot);
/* its sums */
void orset_message_count(struct orset *, struct folder *, const struct message *, bool add);
int orset_message_remove(struct orset *, struct folder *, struct orset_dot, bool local);
/* --- group.c. A GUID is looked for by its first bytes: the message says whether it is that one. */
void orset_guid_key(struct orset_key *, const uint8_t guid[16], uint32_t folder);
/* How many live dots of (folder, GUID) there are; in os->copies until the next call that looks
 * for another one, or changes a message. Uses m[2]. */
int orset_copies(struct orset *, const uint8_t guid[16], uint32_t folder);
/* The same of one copy: from *first on in os->copies. */
int orset_copies_of(struct orset *, const uint8_t guid[16], uint32_t folder, uint32_t k,
                    const struct copy **first);
int orset_copy_put(struct orset *, const struct message *);
int orset_copy_del(struct orset *, const struct message *);
/* 1: a live dot, in some folder, may have it */
int orset_guid_lives(struct orset *, const uint8_t guid[16]);
/* count in os->group, itself included */
int orset_group_load(struct orset *, const struct message *);
int orset_group_union(struct orset *, const struct message *, struct orset_flags *);
/* The dot whose facts are the message's: smallest (SHA-256, dot). Uses m[2]. body_r: its
 * SHA-256, may be NULL. */
int orset_group_speaker(struct orset *, const struct message *, struct orset_dot *,
                        uint8_t *body_r);
/* 1: a round settled it; 0: it is a claim. Uses m[2]. */
int orset_group_agreed(struct orset *, const struct message *, uint32_t *uid_r);
/* --- binding.c */
int orset_uid_row_put(struct orset *, uint32_t home, uint32_t uid, uint32_t folder,
                      struct orset_dot);
/* The row of m's UID names m, if it named the dot that m had. */
int orset_uid_row_redot(struct orset *, const struct folder *home, struct message *m,
                        struct orset_dot old);
/* What a mailbox still lacks of a mail goes with it from uid to new_uid. new_body: of the bytes
 * that it has there; NULL: as before. */
int orset_rebind(struct orset *, struct folder *home, uint32_t uid, uint32_t new_uid,
                 const uint8_t *new_body);
int orset_bind(struct orset *, struct folder *home, struct message *, uint32_t uid);
int orset_unbind(struct orset *, struct folder *home, struct message *, bool gone);
/* REMOVE row */
/* --- doomed.c */
int orset_undoom(struct orset *, uint32_t home, uint32_t uid); /* ORSET_KNOWN: it was not */
int orset_doom(struct orset *, struct folder *home, const uint8_t guid[16], uint32_t uid);
struct orset_sum orset_message_sum(const struct orset *, const struct message *);
struct orset_sum orset_flagdot_sum(const struct orset *, const struct message *,
                                   const struct flagdot *);
int orset_note_mismatch(struct orset *, struct folder *home, const struct message *, uint32_t uid);

/* A GUID's text becomes a file name in a Maildir, and a word in its dovecot-uidlist. */
bool orset_guid_text_valid(const void *text, size_t len);

/* --- prefetch.c */
/* as orset_prefetch() */
void orset_prefetch_messages(struct orset *, const struct place *, size_t n);

/* --- flags.c */
void orset_flags_of(const struct message *, struct orset_flags *yes, struct orset_flags *no);
bool orset_flags_equal(const struct orset_flags *, const struct orset_flags *);
void orset_flags_diff(const struct orset_flags *, const struct orset_flags *minus,
                      struct orset_flags *r);
void orset_flags_or(struct orset_flags *, const struct orset_flags *);
int orset_flagdot_put(struct orset *, struct message *, struct flagdot);
void orset_flagdot_cut(struct message *, unsigned index);
/* flag = 0 to 4 (bit of the system flags) | 5, text (keyword) */
void orset_flag_write(const struct orset *, struct orset_buf *, uint16_t flag);
void orset_flags_write(struct orset_buf *, const struct orset_flags *);
void orset_flags_read(const struct orset *, struct orset_reader *, struct orset_flags *);

/* --- pending_dots.c */
int orset_pending_kill(struct orset *, struct orset_dot, uint16_t by);
int orset_pending_killed(struct orset *, struct orset_dot); /* 1, 0, error */
int orset_pending_flag(struct orset *, struct orset_dot target, struct flagdot, uint16_t by);
int orset_pending_flag_kill(struct orset *, struct orset_dot target, struct orset_dot flag);
int orset_pending_take_flags(struct orset *, struct message *);
/* flags of site's on it */
int orset_pending_marks(struct orset *, struct orset_dot target, uint64_t site);
/* Remembered flags that are gone as the caller knows go. */
int orset_pending_drop_flags(struct orset *,
                             bool (*is_gone)(const void *arg, struct orset_dot flag),
                             const void *arg);
int orset_pending_agreed(struct orset *, struct orset_dot, const struct agreed *);
int orset_pending_take_agreed(struct orset *, struct message *);
int orset_pending_forget_agreed(struct orset *, uint16_t by);
bool orset_pending_row_is_true(const struct orset *, const uint8_t *key, size_t len,
                               const uint8_t *v, size_t vlen);
int orset_pending_covered(struct orset *, uint16_t origin, uint64_t from, uint64_t to);

/* --- named.c */
int orset_subscription_exec(struct orset *, const void *name, size_t len,
                            const struct orset_dot *kill, unsigned nkill, struct orset_dot add,
                            bool local);
int orset_subscription_dots(struct orset *, const void *name, size_t len, struct orset_dot *dots,
                            unsigned most);
/* What one more name would bring the subscriptions to, in the bytes that an exchange carries.
 * Error: below 0. */
int orset_subscriptions_with(struct orset *, size_t name_len);
struct orset_sum orset_subscription_sum(const struct orset *, const void *name, size_t len,
                                        struct orset_dot);
struct attribute {
    struct stamp stamp;
    bool set;
    const uint8_t *value;
    size_t len;
};
void orset_attribute_key(struct orset_key *, uint32_t folder, const void *key, size_t len);
/* 1; 0 and *a without a value; error */
int orset_attribute_load(struct orset *, const struct orset_key *, struct attribute *);
int orset_attribute_store(struct orset *, const struct orset_key *, const struct attribute *);
struct orset_sum orset_attribute_sum(const struct orset *, uint32_t folder, const void *key,
                                     size_t key_len, const struct attribute *);
uint64_t orset_value_hash(const uint8_t *value, size_t len, bool set);
int orset_attribute_exec(struct orset *, uint32_t folder, const void *key, size_t key_len,
                         const uint8_t *value, size_t len, bool set, struct stamp, bool local);

/* --- exec.c */
enum op_kind {
    OP_ADD = 1,
    OP_REMOVE,
    OP_FLAGS,
    OP_FOLDER, /* create */
    OP_NAME,
    OP_DELETE,
    OP_SUBSCRIBE,
    OP_ATTRIBUTE,
    OP_UID_VALIDITY,
    OP_KEEPER,
    OP_UIDS
};

struct exec {
    struct orset *os;
    uint16_t by;          /* origin of the op, as index here */
    uint64_t first, next; /* numbers */
    const uint16_t *map;  /* sender's origin indices to ours; NULL: they are ours */
    const uint64_t *seen; /* the sender's vector by its indices; NULL: own op */
    uint16_t nmap;
    bool dry;      /* parse and check only */
    bool local;    /* the mailbox has it already */
    uint32_t uid;  /* local add: its UID */
    uint64_t most; /* the sender's own entry in its vector, 0: not bounded */
    /* Counted by the dry run: dots named that are not covered; keywords and folders that are new
     * here. */
    uint64_t named, keywords, folders;
    unsigned marks; /* flags set on the target in flight */
    /* the dry run found a bound exceeded: the error, if the op is new; its text is os's */
    int beyond;
    struct orset_reader in;
};

/* Checks the op, puts it into the state, raises the vector. 0, ORSET_KNOWN or an error. */
int orset_exec(struct orset *, struct exec *, const uint8_t *op, size_t len);
/* an origin's running hash, with this op */
uint64_t orset_chain_next(uint64_t chain, const uint8_t *op, size_t len);
/* The op in os->op as this replica's next one: exec, outgoing row. */
int orset_emit(struct orset *, uint32_t uid);
void orset_op_begin(struct orset *, enum op_kind);
void orset_op_presence(struct orset *, const struct folder *);
/* no space, no control character: what an atom of IMAP may not have at the least */
bool orset_keyword_valid(const char *name, size_t n);
int orset_read_flag(struct exec *, uint16_t *flag_r); /* interns keywords unless dry */
int orset_read_dot(struct exec *, struct orset_dot *);
int orset_read_folder(struct exec *, struct folder **f); /* NULL when not known here */

int orset_read_folder_made(struct exec *, struct folder **f);
int orset_op_malformed(struct exec *, const char *what); /* the error */
int orset_read_count(struct exec *, uint64_t most, uint64_t *n_r);
int orset_read_name(struct exec *, const uint8_t **name_r, size_t *len_r);
int orset_read_clock(struct exec *, struct stamp *); /* a stamp of the op's origin */
struct orset_dot orset_take_number(struct exec *);   /* the next one that the op gives */

/* --- bounds.c: dry runs. They set x->beyond. */
int orset_check_same(struct exec *, const struct message *); /* one more dot of this message */
/* x->marks more flags on it */
int orset_check_marks(struct exec *, const struct folder *, struct orset_dot target);
/* One more dot of a name, beside those that stay. */
int orset_check_subscribed(struct exec *, const void *name, size_t len,
                           const struct orset_dot *kill, uint64_t nkill, struct orset_dot add);

/* --- join.c */
struct alias {
    uint8_t guid[16];
    size_t text_len;
    char text[ORSET_GUID_TEXT_MAX];
};
int orset_alias_get(struct orset *, const uint8_t guid[16], struct alias *); /* 1, 0, error */
int orset_alias_put(struct orset *, const uint8_t guid[16], const struct message *to);
/* The mail of the message with this GUID has another one in its mailbox. */
int orset_parted_put(struct orset *, const uint8_t guid[16], const uint8_t there[16]);

/* --- local.c */
int orset_unplaced_guid(struct orset *, uint32_t home, const uint8_t guid[16]); /* 1, 0, error */
int orset_emit_remove(struct orset *, const struct folder *, const struct orset_dot *, unsigned n);

/* --- uid.c */
int orset_uids_exec(struct exec *, struct folder *);
/* --- quota.c */
/* 0, or ORSET_E_LIMIT when site of origin by would bring more rows than its share. */
int orset_quota_check(struct orset *, uint16_t by, enum quota, uint64_t more);
/* rows remembered on account of its site */
uint64_t orset_quota_ahead(const struct orset *, uint16_t by);
/* Find, or make on account of by. Index or error; the folder or NULL (os->broken, or the limit). */
int orset_bring_origin(struct orset *, struct orset_origin, uint16_t by);
int orset_bring_keyword(struct orset *, const char *name, size_t len, uint16_t by);
struct folder *orset_bring_folder(struct orset *, struct orset_dot id, uint16_t by);

/* --- epoch.c */
/* No peer can know this own number, unless it was given by a life of this state that is not
 * remembered. */
bool orset_own_unknown(const struct orset *, uint64_t number);
/* The error for a number of this replica that it did not give: ORSET_E_ROLLED_BACK or _FORGED. */
int orset_own_ahead(struct orset *, const char *what, uint64_t number);
/* The running hash up to an own number: 1 and it, 0 when it is not kept any more, -1 when no op
 * ends there. */
int orset_chain_at(struct orset *, uint64_t number, uint64_t *chain_r);
/* A peer's vector names an own number with this running hash: 0, or the error above. */
int orset_epoch_confirmed(struct orset *, uint64_t number, uint64_t chain);

/* --- renumber.c */
struct renumber {
    struct orset *os;
    uint16_t old;   /* origin of the numbers that may be twins; the new one is os->self */
    uint64_t keep;  /* numbers up to here stay */
    uint64_t clock; /* stamps of the old origin up to here stay */
};
int orset_renumber(struct renumber *); /* folders and messages */
/* The dot's new number if it needs one: true and *d changed. */
bool orset_renumber_dot(struct renumber *, struct orset_dot *d);
bool orset_restamp(struct renumber *, struct stamp *);
int orset_named_renumber(struct renumber *); /* renumber_named.c */

/* --- vector.c */
struct peer {
    uint16_t n, sender, sender_at; /* sender: our index; sender_at: the sender's */
    uint16_t *map;                 /* the sender's origin indices to ours */
    uint64_t *seen, *chain;        /* its vector */
    bool covers;                   /* of an exchange: what it covers and has not was removed */
};
void orset_vector_write(const struct orset *, struct orset_buf *);
/* vector_read.c. On an error *p is empty. */
int orset_vector_read(struct orset *, struct orset_reader *, uint64_t site, bool covers,
                      struct peer *);
void orset_peer_free(struct orset *, struct peer *);
uint64_t orset_peer_has(const struct peer *, uint16_t origin); /* number in the sender's vector */

/* --- tasks.c */
/* The row's value: 1, 0, error. */
int orset_task_row(struct orset *, int kind, uint32_t home, const void *rest, size_t rest_len,
                   struct orset_reader *);
int orset_task_put(struct orset *, int kind, uint32_t home, const void *rest, size_t rest_len,
                   const struct orset_buf *);
int orset_task_del(struct orset *, int kind, uint32_t home, const void *rest, size_t rest_len);
int orset_task_renumber(struct orset *, uint32_t home, uint32_t uid, uint32_t to);
int orset_task_uid_row(struct orset *, int kind, uint32_t home, uint32_t uid,
                       struct orset_reader *);
int orset_task_uid(struct orset *, int kind, uint32_t home, uint32_t uid,
                   const struct orset_buf *value); /* NULL: del */
int orset_task_place(struct orset *, struct folder *, struct orset_dot, bool wanted);
/* 1: a message of it has no UID here. ORSET_NO_FOLDER: of any */
int orset_task_any_place(struct orset *, uint32_t folder);
int orset_task_seen(struct orset *, uint32_t home, uint32_t uid,
                    struct orset_flags *); /* 1 when flags differ there */
/* The wanted flags went from before to now; seen is what the mailbox has, NULL: as recorded. */
int orset_task_flags(struct orset *, uint32_t home, uint32_t uid, const struct orset_flags *before,
                     const struct orset_flags *now, const struct orset_flags *seen);
/* orset_task_next() among the REMOVE rows, at_len 1 and the kind at first: with those that are
 * not for the caller yet. */
int orset_task_next_removal(struct orset *, struct orset_task *);
/* 1: a REMOVE row waits for this mail. A row that means another mail is dropped. */
int orset_task_doomed(struct orset *, uint32_t home, uint32_t uid, const uint8_t guid[16]);
/* The wanted bytes went from SHA-256 before to now; seen as above. */
/* of the message in m[0]: local.c */
int orset_drop_bytes(struct orset *, const uint8_t sha256[32]);
/* 1 and the SHA-256 of what the mailbox has under a UID that waits for its ORSET_TASK_BODY; 0:
 * it waits for none. */
int orset_task_bytes(struct orset *, uint32_t home, uint32_t uid, uint8_t sha256_r[32]);
int orset_task_body(struct orset *, uint32_t home, uint32_t uid, const uint8_t before[32],
                    const uint8_t now[32], const uint8_t *seen);
/* orset_done_place, for a mail with these bytes (NULL: those of the dot). */
int orset_placed(struct orset *, uint32_t folder, struct orset_dot, uint32_t uid,
                 const struct orset_flags *seen, const uint8_t *seen_body);

/* --- tree.c */
int orset_rehome(struct orset *);

#endif
