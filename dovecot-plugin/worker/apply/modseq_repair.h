/* modseq_repair - each change has, at all sites, a modseq above every HIGHESTMODSEQ that was shown
 * without it (F33; docs/replication-protocol.md, "Modseqs"). */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_REPAIR_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_REPAIR_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

#include <array.h>
#include <seq-range-array.h>

struct box;
struct mailbox;
struct peer;
struct session;

/* A mail whose flags a peer's op set, whether or not that changed them here, or that is to go. */
struct changed_mail {
    uint32_t folder, uid;
};
ARRAY_DEFINE_TYPE(changed_mail, struct changed_mail);

/* What a batch changed, with the modseqs that it told. Sorts the list. In a transaction. */
int modseq_repair_note(struct session *, ARRAY_TYPE(changed_mail) *);
/* HIGHESTMODSEQ of this moment, from which on each mail has a modseq of its own. */
uint64_t modseq_repair_begin(struct mailbox *);
/* These mails were changed or expunged here, in one transaction, when HIGHESTMODSEQ had been
 * before. In a transaction. */
int modseq_repair_written(struct session *, const struct box *, struct mailbox *,
                          const ARRAY_TYPE(seq_range) * uids, uint64_t before);
/* The mailbox is another one than before, and goes on at floor. What clients know of its mails,
 * there or gone, is not what it has. In a transaction. */
int modseq_repair_anew(struct session *, const struct box *, uint64_t floor);
/* These UIDs count as given and no mail has them: who knows one from another site is to be told.
 * highest: HIGHESTMODSEQ. In a transaction. */
int modseq_repair_given(struct session *, uint32_t folder, uint32_t uid1, uint32_t uid2,
                        uint64_t highest);
int modseq_repair_apply(struct session *);
/* At the end of a question: when it is to be tried again. */
void modseq_repair_wanted(struct session *);

/* RAISE and RAISED. */
enum frame_result modseq_repair_parcel(struct session *, const struct peer *,
                                       const struct frame_parcel *);

#endif
