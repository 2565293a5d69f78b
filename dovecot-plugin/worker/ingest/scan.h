/* scan - one scan of one mailbox: what scan_present.c and scan_missing.c find in it for
 * ingest.c. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_SCAN_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_SCAN_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/ingest/guids.h"
#include "dovecot-plugin/worker/logs/index_log_replay.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/logs/log_later.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"

#include <array.h>
#include <guid.h>
#include <seq-range-array.h>

struct ingest;
struct orset_facts;
struct session;

struct mailbox_scan {
    struct session *s;
    struct ingest *in;
    struct box *x;
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    struct mail *mail;
    struct log_scan log;
    struct log_later later;
    struct box was; /* before the scan */
    /* of what is collected from mail to mail: each has a data stack frame of its own */
    pool_t pool;
    /* the mailbox was full before this state knew of it: its mails are matched (F6, F36) */
    struct orset_join *join;
    bool all;
    bool maildir; /* where other programs may remove mail */
    bool begun;   /* a row says that a renumbering was cut short */
    bool other;   /* it changed under this scan so that it is to be compared whole once more */
    /* the highest UID of a mail that cannot be read, nor its GUID: it may be any that was moved
     * there; 0: there is none */
    uint32_t blind;
    bool closed; /* it cannot be opened, and that will last */
    bool again;  /* what vanished is to be judged later: no sweep may pass it by */
    /* which mails these are cannot be read now: nothing is concluded of the mailbox */
    bool locked;
    ARRAY_TYPE(seq_range) uids;   /* to look at */
    ARRAY_TYPE(seq_range) moving; /* a renumbering was about to expunge these */
    /* by the logs that were there before the index was rebuilt, and by the one that began with
     * it */
    struct index_log_replay said;
    ARRAY_TYPE(backup_path) backups; /* those logs */
    ARRAY_TYPE(seq_range) vanished;  /* bound, not there, no client asked */
    /* second deliveries of a mail by the gateway; mails that a client expunged under their old
     * UID */
    ARRAY_TYPE(seq_range) seconds;
    ARRAY_TYPE(known_guid) guids; /* what mails of a Maildir had, by the state */
    /* of an mdbox that was rebuilt: what it may have put back */
    ARRAY_TYPE(expunged_guid) expunged;
    /* messages that are quarantined, by their bytes; made when one is asked for */
    ARRAY(struct quarantined_mail) quarantine;
    ARRAY(struct unbound) unbound;       /* mails that a rewound state does not know */
    ARRAY(struct renumbered) renumbered; /* and those it knew under another UID */
    uint32_t messages;
    unsigned missing; /* mails that are damage */
};

struct quarantined_mail {
    uint8_t sha256[32];
    uint32_t uid;
};

struct unbound {
    guid_128_t guid;
    uint32_t uid;
};

struct renumbered {
    uint32_t old_uid, uid;
};

/* --- scan.c ----------------------------------------------------------------------------------- */

/* Of a mailbox that is not open yet: l.box, made by session_mailbox(). */
int scan_box(struct mailbox_scan *);

/* --- scan_parts.c ----------------------------------------------------------------------------- */

/* UIDs that the state has bound in this mailbox. */
int scan_bound_uids(struct session *, uint32_t home, ARRAY_TYPE(seq_range) * uids);
/* What a call of the core returned. After some changes, a commit: what is in it needs no second
 * look, the cursor just has not moved. */
int scan_changed(struct mailbox_scan *, int r);
/* The GUID of the mail that l.mail is set to. False: it cannot be read. */
bool scan_guid(struct mailbox_scan *, guid_128_t guid);
void scan_unreadable(struct mailbox_scan *); /* that mail, now */
/* What clients said of the mail under the UID that it had before; NULL: nothing. */
const struct late_change *scan_late(struct mailbox_scan *, uint32_t uid);

/* --- scan_present.c: a mail that is there, the one that l->mail is set to --------------------- */

int scan_present(struct mailbox_scan *, uint32_t uid);
/* The UID was given to another mail: what was bound to it is to be found among the others. */
int scan_other(struct mailbox_scan *, uint32_t uid);
/* The mails of l->seconds are expunged. */
int scan_expunge_seconds(struct mailbox_scan *);

/* --- scan_elsewhere.c: the own mailbox of a folder that is shown in another one's by now --------- */

/* What clients said of mails that wait to be placed there. */
int scan_elsewhere(struct mailbox_scan *);
/* l->mail waits to leave: nothing is to be said of it. 1 or 0; or the core's error */
int scan_leaves(struct mailbox_scan *, uint32_t uid);

/* --- scan_missing.c: a message whose mail is not there ---------------------------------------- */

int scan_collect_unbound(struct mailbox_scan *);
int scan_missing(struct mailbox_scan *, uint32_t uid);
/* A file that was gone is back: Dovecot gives it another UID. 1: it is l->mail, and the message
 * that was quarantined is bound to that one; 0; or the core's error. */
int scan_quarantined_back(struct mailbox_scan *, const struct orset_facts *);
/* F1's brake: how many removals without a client's word are believed in an hour. More are
 * quarantined, as is all that goes while some are. */
int scan_brake(struct mailbox_scan *);

#endif
