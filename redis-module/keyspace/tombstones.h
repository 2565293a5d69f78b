/* tombstones - what this server removed, remembered for `lane.settle-ms` per (lane name, id).
 *
 * An acknowledgement may overtake its push, and a push may be sent again after its entry was
 * delivered. Without this memory the server would store the mail for ever, or deliver it twice. It
 * belongs to the server, not to lanes (they vanish when empty). It is neither saved nor replicated:
 * another life of the server is another run_id, and clients compare then. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_TOMBSTONES_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_TOMBSTONES_H

#include "redis-module/server/server.h"

enum tombstone {
    TOMBSTONE_NONE,
    TOMBSTONE_ACKED, /* acknowledged, here or before it arrived */
    /* moved to another lane, or given up: is not to be stored again, but was not delivered */
    TOMBSTONE_MOVED,
    TOMBSTONE_REVOKED, /* revoked, here or before it arrived */
};

/* lane: name_hash(). An id of NULL is not remembered. What is remembered later counts. O(1)
 * amortised. */
void tombstone_remember(uint64_t lane, const uint8_t *id, enum tombstone, int64_t now);
enum tombstone tombstone_find(uint64_t lane, const uint8_t *id, int64_t now);

/* Ids of these hashes are about to be asked for or remembered: see lane_ahead(). */
void tombstone_ahead(uint64_t lane, const uint64_t *hash, size_t n);

/* How many are remembered. When there are more than some hundred thousand, those over time may
 * be counted, too. */
uint64_t tombstone_count(int64_t now);

#endif
