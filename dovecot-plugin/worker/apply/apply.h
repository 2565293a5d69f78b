/* apply - the state becomes the mailboxes': folders, mails, flags, UIDs, removals. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_APPLY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_APPLY_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/parcel.h"

#include <seq-range-array.h>

struct box;
struct session;

/* A mail that could not be saved: a full disk is not asked several times a second. */
struct failing {
    uint32_t folder;
    struct orset_dot dot;
    unsigned wait;  /* milliseconds between this try and the next */
    uint64_t again; /* of the monotonic clock */
};

int named_apply(struct session *); /* subscriptions and attributes */
#define UNPLACED_COUNTED PARCEL_WANTS_MAX
void count_waiting(struct session *); /* s->unplaced and quarantined are those of the state */
int tree_apply(struct session *);     /* folders that came or changed */
/* A mailbox has an earlier UIDVALIDITY than its folder by now: it is applied once more. */
bool tree_is_behind(struct session *);
int tree_apply_deletions(struct session *);
/* Compares one mailbox with the state: what it has is not known. */
typedef int scan_fn(struct session *, struct box *);
int flags_apply(struct session *, scan_fn *);
/* scan: of a mailbox whose mails have left it for another one's */
int removals_apply(struct session *, scan_fn *scan);
/* Mails without a body are asked for from ask (0: nobody in particular). */
int place_apply(struct session *, uint64_t ask, scan_fn *);
/* Only what the parcel in work brought: nothing more is asked for. */
int place_arrived(struct session *, uint64_t ask, scan_fn *);
/* Bodies come that this session did not ask for: so an earlier one of this user's did. */
int place_expect(struct session *, scan_fn *);
int renumber_apply(struct session *);
/* 1: what an earlier process, or a commit that failed, began in its mailbox is not known to have
 * ended. Then a scan of it is asked for. 0; -1 */
int renumber_unfinished(struct session *, uint32_t folder);
int bodies_apply(struct session *, uint64_t ask); /* mails whose bytes are not those agreed on */
/* Ends a change of UIDs that a crash cut short; row: what it left. uids: old ones, added to. 1;
 * 0: not now, the mailbox is locked; -1 */
int renumber_recover(struct session *, struct mailbox *, struct box *, const uint8_t *row,
                     size_t len, ARRAY_TYPE(seq_range) * uids);

#endif
