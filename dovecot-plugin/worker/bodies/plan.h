/* plan - in which order mailboxes get the mails that they lack.
 *
 * A mailbox gives rising UIDs only. A mail that is saved before one of a lower UID takes that one's
 * away. It gets another UID here, and after the next UID round everywhere, also where clients know
 * it. So each mailbox gets its mails by rising UID, and those whose UID it cannot give any more
 * come last. A mail waits for the bodies of those before it as long as they may still come.
 *
 * All that is known of it is made from the state's rows, and again when those changed. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_PLAN_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_PLAN_H

#include "dovecot-plugin/compat.h"

struct session;

#define PLAN_ROW_MAX 20 /* bytes of the key of an ORSET_TASK_PLACE row */

struct plan_item {
    uint32_t mailbox, uid; /* the agreed one */
    /* a time: the answer with its body may come until then, there is nothing to do for it */
    uint32_t until;
    bool fits;       /* the mailbox could give it that UID when this was read */
    bool given_up;   /* the others need not wait for it */
    bool bodies;     /* its body is here, and waits for those before it */
    uint8_t row_len; /* 0: it is done */
    uint8_t row[PLAN_ROW_MAX];
};

struct plan_mailbox {
    uint32_t folder;
    unsigned at, end; /* of the items: what is left begins here */
    bool impatient;   /* patience_is_over(), when mails were placed last */
};

struct plan *plan_create(void);
void plan_free(struct plan **);

/* Reads it again if the rows changed; one of many mails not at each change. -1: the session's
 * error. */
int plan_refresh(struct session *);
/* The next plan_refresh() reads it in any case. */
void plan_overdue(struct session *);

/* Both are good until the next plan_refresh(). */
struct plan_mailbox *plan_mailboxes(struct session *, unsigned *n_r);
struct plan_item *plan_item(struct session *, unsigned i);
void plan_done(struct session *, unsigned i);
unsigned plan_left(struct session *); /* mails */
/* Nothing is awaited for item - 1 any more; 0: for none. */
void plan_look_again(struct session *, unsigned item);
/* Mails come into this mailbox, and more of them can be expected soon. */
bool plan_goes_on(struct session *, uint32_t folder);
/* There are changes that it does not have yet. */
bool plan_is_old(struct session *);

#endif
