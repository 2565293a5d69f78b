/* pass - one pass over mailboxes: what it collects, and what its files have for each other. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_PASS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_PASS_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/logs/index_log_replay.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"

#include <array.h>
#include <guid.h>

struct session;

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
    uint64_t files; /* before the scan, by ingest_stamp(); 0: unknown, or not all could be read */
};

/* One mailbox, committed in parts; its expunges go into later. */
struct ingest {
    ARRAY(struct removal) removals;        /* made into ops when all adds are (F17) */
    ARRAY(struct scanned_mailbox) scanned; /* whose cursors move with them */
    ARRAY_TYPE(backup_path) backups;       /* that were read */
    ARRAY(char *) outside;                 /* names of mailboxes that are not replicated */
    /* new mails whose bytes could not be read: what they are copies of stays */
    ARRAY_TYPE(mail_guid) unread;
    unsigned unread_sorted; /* how many of them there were when they were sorted */
    /* names of mailboxes that cannot be opened, and may have got mails: removals wait (unseen.c) */
    ARRAY_TYPE(const_string) unseen;
    /* a folder + 1 of which a scan found the same, and one with mails that cannot be read; 0: none */
    uint32_t closed, blind;
    bool first;       /* nothing was looked at before: nothing was removed since */
    unsigned pending; /* changes since the last commit */
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
/* What is committed goes to the peers, and is worked on there while the rest is read here. */
int ingest_send(struct session *, struct ingest *);
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
/* What a sweep compares: files that change when the mailbox does. 0: unknown, look. *files_r is
 * the same, but for what a change of their owner or mode changes, too. */
uint64_t ingest_stamp(struct mailbox *, uint64_t *files_r);
/* --- unseen.c --- */
struct tree;
/* After mailboxes were listed; in a transaction. */
int unseen_judge(struct tree *);
bool unseen_holds(const struct ingest *);
/* Removals wait: says so, and looks again later. */
void unseen_wait(struct session *, struct ingest *);
/* The mailbox was looked at, and these were its files; in a transaction. */
int unseen_looked(struct session *, const struct box *, uint64_t files);
/* It could not be opened by a scan; files: ingest_stamp(). In a transaction. */
int unseen_closed(struct session *, struct ingest *, const struct box *, uint64_t files);
/* The mailbox, as it was before its scan; blind: struct mailbox_scan. In a transaction. */
int unseen_scanned(struct session *, struct ingest *, const struct box *was, uint32_t blind);
/* Ends the quarantine by orset_local_expunge or orset_local_missing of each mail in it. How many
 * they were, or -1. In a transaction. */
int quarantine_end(struct session *, struct box *,
                   int (*fn)(struct orset *, uint32_t folder, uint32_t uid));

#endif
