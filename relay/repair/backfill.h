/* backfill - fetches the bodies that are missing here from another owner's server into the own one,
 * in blocks. (Or from the own one into another's: rereplicate.h.) READ there, PUSH here under the
 * same ids, and META where the envelope was changed since. Rules: docs/takeover/return.md,
 * "Comparing with a whole owner", step 4.
 *
 * What was acked here meanwhile is answered DONE and not stored; the server remembers that for
 * `settle`. A block may have been under way for more than half of that time (a large mail, a slow
 * link). When it is stored, the other server is asked once more: what it does not hold any more was
 * delivered, and goes here, too. */
#ifndef DOVELANE_RELAY_REPAIR_BACKFILL_H
#define DOVELANE_RELAY_REPAIR_BACKFILL_H

#include <stddef.h>
#include <stdint.h>

#include <ev.h>

#include "lib/mail/entryid.h"
#include "lib/redis/wire.h"

/* An entry that is missing here. place: its position in the other server's list, by which
 * neighbours are known. */
struct missing_entry {
    uint64_t sequence;
    uint32_t revision, place;
    unsigned char id[ENTRYID_LEN];
};

struct backfill_options {
    struct ev_loop *loop;
    struct wire *from, *to;
    const char *lane;
    size_t lane_len;
    const struct missing_entry *wanted; /* in the order of sequences; must stay until done */
    size_t n;
    const char *to_lane; /* NULL: the same */
    size_t to_lane_len;
    /* NULL, or told of each that was not there and is now: its index in wanted */
    void (*stored)(size_t wanted, void *arg);
    int64_t block; /* entries */
    int64_t rate;  /* bytes a second */
    double settle; /* seconds */
    /* of the witness that `from` is; token "": it is not one, and then what comes late stays */
    const char *set, *token;
};

/* trouble: why it ended before its end, NULL when all that is still there was stored. The
 * backfill is freed afterwards. */
typedef void backfill_done_fn(const char *trouble, size_t entries, size_t bytes, void *arg);

struct backfill;

struct backfill *backfill_open(const struct backfill_options *, backfill_done_fn *, void *arg);
void backfill_close(struct backfill *); /* before its end; nothing is called any more */

#endif
