/* write_intent - what is about to be committed to a mailbox, and whether it was. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_WRITE_INTENT_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_WRITE_INTENT_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"

#include <seq-range-array.h>

struct log_scan;
struct orset_dot;
struct orset_flags;
struct session;

/* What is about to be committed to a mailbox is said in a row first. After a crash, or a commit
 * that failed, the mailbox's log shows whether it happened, and the state learns that exactly. What
 * a client did since then is the client's. */
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

#endif
