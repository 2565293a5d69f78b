/* letgo - what this server let go, remembered for `lane.settle-ms` per (lane name, id).
 *
 * An acknowledgement may overtake its push, and a push may be sent again after its entry was delivered:
 * without this memory both would store the mail for ever, or deliver it twice. It belongs to the server, not
 * to lanes (they vanish when empty), and is neither saved nor replicated: another life of the server is
 * another run_id, and clients compare then. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_LETGO_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_LETGO_H

#include "redis-module/server/server.h"

enum letgo {
    LETGO_NOT,
    LETGO_ACKED,   /* acknowledged, here or before it arrived */
    LETGO_MOVED,   /* moved to another lane, or given up: is not to be stored again, but was not delivered */
    LETGO_REVOKED, /* revoked, here or before it arrived */
};

/* lane: name_hash(). An id of NULL is not remembered. What is remembered later counts. O(1) amortised. */
void letgo_remember(uint64_t lane, const uint8_t *id, enum letgo, int64_t now);
enum letgo letgo_find(uint64_t lane, const uint8_t *id, int64_t now);

/* Ids of these hashes are about to be asked for or remembered: see lane_ahead(). */
void letgo_ahead(uint64_t lane, const uint64_t *hash, size_t n);

/* How many are remembered. When there are more than some hundred thousand, those over time may be counted,
 * too. */
uint64_t letgo_count(int64_t now);

#endif
