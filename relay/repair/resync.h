/* resync - for which sets of owners the own server is whole, and the comparison that makes it so
 * (docs/takeover/return.md, "Whole").
 *
 * A round goes through these steps, and everything else may happen between any two of them. Data
 * flows down only.
 *
 *   DISCOVER    which sets of owners have lanes, here or at another owner; those that new mail may be placed on are there without any
 *   ASK         BEGIN here; who is whole? A whole owner is this set's witness; when nobody is and all can be reached, they are united
 *   LIST_HERE   the own ids. Before the others': what comes between the two lists is on the second only, and is never dropped
 *   LIST_THERE  the ids of the witness (or of all): what is missing here, which results are newer where
 *   ASK_AGAIN   is the witness still whole, and under the same token? Else all was in vain
 *   FETCH       the missing bodies (backfill.h); only when we are not whole
 *   ASK_LAST    is it still, now that the bodies are here? A witness that was emptied meanwhile gives blocks without them
 *   REVISE      newer results, in both directions; and in an ordered lane that we are not whole for, the places that entries have there
 *   DROP        what is older than `settle` here and the witness does not hold, but for what is in flight: it was delivered, or never promised
 *   END         whole, if the token of BEGIN still stands: no FLUSHALL came between
 *
 * An alive node runs the same without BEGIN, FETCH and END every compare_every, for sets that it
 * is whole for. */
#ifndef DOVELANE_RELAY_REPAIR_RESYNC_H
#define DOVELANE_RELAY_REPAIR_RESYNC_H

#include <stdbool.h>
#include <stddef.h>

#include "relay/cluster/takeover_rules.h"
#include "relay/relay.h"

struct resync *resync_open(struct relay *);
void resync_close(struct resync *);
void resync_reload(struct relay *); /* the config was read again; its nodes are the same */

/* What a node's server said with an answer to BEAT: owners and tokens, a flat list. */
void resync_told(struct relay *, size_t node, const redisReply *list);

/* Begins what is due. Called with every beat. */
void resync_tick(struct relay *, double now);

/* The sets, as the rules want to see them; the array is resync's, and good until the next call
 * of anything here. */
size_t resync_sets(struct relay *, const struct role_set **);

/* What the node's server said last: it is whole for these owners (n of them, in any order). */
bool resync_node_is_whole(const struct relay *, size_t node, const char *const *owner, size_t n);

/* There are lanes with an owner in nobody's table. */
bool resync_unknown_owners(const struct relay *);

/* The connection to that node's server (the own one, too) by which bodies go: NULL while it is
 * not up. */
struct wire *resync_wire(const struct relay *, size_t node);

/* Nothing was compared in this return yet, or it is being done. */
bool resync_comparing(const struct relay *);

#endif
