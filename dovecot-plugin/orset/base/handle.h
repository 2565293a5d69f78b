/* handle - what a struct orset holds, and the core's types. Callers never include it.
 *
 *    ops/local_changes.c, local_flags.c  a change in the mailbox ─▶ emit.c ─┐
 *    ops/op_batch.c  a peer's ops ──────────────────────────────────────────┴▶ apply_op.c ─▶ state/
 *    exchange/merge.c  a peer's state ──────────────────────────────────────────────────▶ state/
 *    state/ message_set.c, folder.c, metadata.c, pending_dots.c ─▶ base/rows.c
 *    state/tasks.c, task_list.c  what mailboxes lack     ops/task_done.c  what was done there
 *    state/epoch.c, ops/new_epoch.c  old copies
 *    state/quota.c, ops/bounds.c  what a peer may bring
 *
 * Local and foreign ops take the same way into the state, so a replica cannot treat its own op
 * otherwise than its peers do. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_HANDLE_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_HANDLE_H

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"

#define ORSET_INBOX_ORIGIN 0xffff /* id of INBOX: {this, 0} */
#define ORSET_GUID_PREFIX 6       /* bytes of a GUID in the keys of ORSET_T_GUID */

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
    bool renamed;            /* since orset_rehome(); in memory only */
    uint8_t guid[16];
    uint32_t uid_validity, uid_next;
    uint32_t given; /* another site gave the UIDs below it, as ops told; 0: none did */
    uint16_t given_by;
    uint64_t messages;
    struct orset_sum sum; /* of its message and flag elements */
    struct stamp keeper_stamp;
    uint64_t keeper;
    uint64_t peer_modseq;
    /* of the batch with that number (orset.batches); in memory only */
    uint64_t batch, batch_lo, batch_hi;
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
    uint64_t tree_changes;  /* orset_tree_changes() */
    bool tree_dirty;
    bool meta_dirty;
    bool holds_rounds; /* orset_uid_hold() */
    uint16_t self, norigins;
    struct origin *origin;
    uint64_t clock;         /* highest Lamport clock seen */
    struct orset_sum named; /* of subscriptions and attributes */
    uint64_t left_out;      /* keywords that were not set, since it was opened */
    void (*changed)(void *arg, uint32_t home, uint32_t uid); /* orset_on_changed() */
    void *changed_arg;
    void (*joined)(void *arg, uint32_t home, uint32_t uid); /* orset_on_joined() */
    void *joined_arg;
    void (*removed)(void *arg, const struct orset_facts *); /* orset_on_removed() */
    void *removed_arg;
    uint64_t batches;     /* applied since it was opened */
    size_t subscriptions; /* their bytes + 1; 0: not counted yet */
    uint64_t remembered;
    uint64_t shared;       /* own number up to which a peer has the same ops (epoch.c) */
    uint64_t shared_clock; /* up to which own stamps are the same everywhere */
    /* own numbers from here on no peer can know (orset_epoch_doubt), 0: not in doubt */
    uint64_t doubt;
    /* the epoch drawn by this handle: it cannot be of an old copy; 0: none */
    uint64_t drawn;
    uint64_t aliases;           /* GUIDs that stand for another one (aliases.c) */
    uint32_t most_uid_validity; /* bound of F23 */
    uint32_t nfolders, folder_room;
    struct folder **folder;
    uint32_t *by_id; /* open addressing: folder index + 1, 0 empty */
    uint32_t by_id_room;
    uint32_t *dirty; /* folders to write */
    uint32_t ndirty, dirty_room;
    uint16_t nkeywords;
    struct keyword *keyword;
    /* m[0]: queries and local changes; m[1]: an op being applied; m[2]: sums over a group */
    struct message m[3];
    struct orset_dot *group; /* ORSET_SAME_MESSAGE_MAX */
    struct copies copies;
    struct orset_buf op, row; /* an op in the making; a row in the making */
    struct orset_buf hold;    /* a value handed out */
    struct watch *watches;    /* of the open exchanges in which this replica asks */
    char error[300];
    char label[128]; /* orset_folder_label() */
};

#endif
