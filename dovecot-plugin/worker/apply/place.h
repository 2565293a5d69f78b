/* place - what place.c and place_save.c share. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_PLACE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_PLACE_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"

struct box;
struct plan_mailbox;
struct session;

struct place_item {
    struct orset_task task;
    struct orset_flags seen;
    uint32_t asked, uid;    /* 0: the next one; it got */
    unsigned at;            /* in the plan */
    bool saved, spooled;    /* from the spool */
    bool waits;             /* for one of the run before */
    const char *message_id; /* for the log; NULL: not asked for, or there is none */
};

/* One pass over the mailboxes, and the run of mails that are saved together in one of them. */
struct placing {
    struct session *s;
    scan_fn *scan;
    uint32_t folder;
    struct box *x;
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    struct box *from; /* what was copied from last, NULL: nothing was; and it, */
    struct mailbox *source;
    struct mailbox_transaction_context *source_trans; /* NULL: it could not be opened */
    struct orset_folder f;
    uint32_t uid_next, asked;
    bool has_uidlist, has_keywords; /* files of a Maildir, when it was opened */
    struct place_item *item;
    unsigned n, nsaved, room;
    struct body_requests *wants;
    pool_t pool;     /* of the run's texts */
    unsigned at;     /* in the plan, of the row in flight */
    unsigned handed; /* bodies of the parcel in work that were saved or kept */
    struct plan_mailbox *mailbox;
    bool blocked;  /* a mail that comes before those that follow may still come */
    bool stopped;  /* and it may be one that is not in the plan */
    bool again;    /* rows went meanwhile: begin anew */
    bool relooked; /* once more at a mailbox that was rebuilt */
    bool failed;   /* a body was here and could not be saved */
};

/* The mailbox is left alone for the rest of this pass; others are not. */
void place_failed(struct placing *);
/* The run's mails, in the opened mailbox. -1: which UIDs they got is not known; the next ingest
 * finds out. */
int place_save(struct placing *);
/* It was not possible to save it, and now it was. */
void place_saved(struct session *, const struct orset_task *);
/* One before it is not here yet. What came with a parcel is kept until that one has come, or is
 * given up. */
void place_later(struct placing *, const struct orset_task *, unsigned at);

#endif
