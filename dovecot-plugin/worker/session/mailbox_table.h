/* mailbox_table - the user's mailboxes in memory, and which of them has a folder's UIDs, a GUID, a
 * name. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_MAILBOX_TABLE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_MAILBOX_TABLE_H

#include "dovecot-plugin/compat.h"

#include <guid.h>
#include <seq-range-array.h>

struct peer;
struct session;

/* Where the scan of a mailbox's log stopped (F2). The log is never entered at an offset remembered
 * here. The library is asked for the offset of modseq before, and the record found there must be
 * the one that was read last. */
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

/* What is known of a mailbox until the user is closed, or the rows are read again. */
struct box_memory {
    /* ingested since this session began, and nothing was placed that the state does not know of */
    bool scanned;
    bool waits; /* the last scan could not tell which mails it has */
    bool lost;  /* it was there, and is another one */
    /* with its storage, by this program, since it was looked at (mdbox.c) */
    bool rebuilt;
    /* its UIDNEXT, at the last scan, was below what the state knows to be given: a backup's */
    bool behind;
    /* a UID names another mail than the state says: the next scan goes by GUIDs */
    bool doubted;
    /* no other comparison for that reason before, by the monotonic clock */
    uint64_t doubt_again;
    unsigned news_read; /* how often ingest_has_news() did since the last look */
    uint32_t log_seq;   /* of the file in which its log ended at the last scan */
    uint64_t raised_at; /* modseqs of mails, by the monotonic clock; 0: none in this session */
    /* until there a scan whose cursor stayed told which flags clients set though they were set */
    struct log_pos reasserted;
    /* its folder is shown in another one's mailbox, and it was to be looked at since */
    bool elsewhere;
    /* a client deleted it, or renamed the INBOX, and the state is not told yet (removals_last.c) */
    bool leaving;
};

/* What one step finds, and the same step uses. */
struct box_pass {
    bool found;  /* when mailboxes were listed last */
    bool absent; /* and then not, nor one that has its place */
    bool hinted; /* the question is about this one */
    bool failed; /* mails are being placed, and for this one not now */
};

/* A mailbox and the folder whose UIDs it has. */
struct box {
    uint32_t folder;

    /* --- its row, which rows_put_box() writes --- */

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

    /* --- rows of their own --- */

    bool saving; /* this process saves there (ROW_SAVING, Maildir) */
    /* an earlier one does, which did not end well: what that had not finished looks like new
     * mail. 0: none */
    pid_t saver;
    /* this program was about to commit something behind there (ROW_WRITE_INTENT) */
    struct log_pos writing;
    ARRAY_TYPE(moved) moved; /* by old UID (ROW_MOVED) */

    /* --- no row --- */

    /* what the client who deleted it called it, while it is leaving; NULL: not known */
    char *called;
    struct box_memory now;
    struct box_pass pass;
    struct box *next_guid, *next_vname; /* another one of that GUID, that name (mailbox_table.c) */
};

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
void box_forget(struct session *, struct box *); /* forget.c: row and all */
struct peer *session_peer(struct session *, uint64_t site);

/* --- moved.c ---------------------------------------------------------------------------------- */

/* Inside a transaction. */
int moved_add(struct session *, struct box *, const struct moved *, unsigned n);
int moved_load(struct session *, struct box *, const uint8_t *value, size_t len);

#endif
