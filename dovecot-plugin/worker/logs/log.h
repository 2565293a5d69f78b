/* log - a mailbox's index log since the cursor: what was touched, and by whom. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"

#include <array.h>
#include <guid.h>
#include <seq-range-array.h>

struct session;

/* What clients said of a mail under the UID that it had before. */
struct late_change {
    uint32_t uid; /* it has now */
    struct orset_flags set, cut;
    bool expunged;
    bool rescued; /* \Deleted was cleared, and none has set it since */
    bool taken;   /* and then a client expunged it under the UID that it has now */
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
    /* it is in another file than the cursor, and was written after that file was made: a backup has
     * no such record */
    bool fresh;
    bool own; /* this program's, or another one's that acts for no client */
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
    ARRAY_TYPE(seq_range) made;       /* saved by clients, copies too */
    /* for each of those flags: the mails on which a client set it, and none has cleared it since */
    ARRAY_TYPE(seq_range) reasserts[ORSET_SYSTEM_FLAGS];
    /* mails on which clients set \Deleted and cleared it, and none has set it since */
    ARRAY_TYPE(seq_range) undeleted;
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
    /* of what clients changed behind where reading stopped last; lowest 0: nothing, or unknown */
    uint64_t lowest_modseq, highest_modseq;
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

#endif
