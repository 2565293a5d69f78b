/* effect - what the module sends to replicas and to the append-only file: what became of lanes, never what
 * was asked for. Sequences are told, not given out again; no decision depends on a clock or a connection. So
 * a replica, and a server that reads its append-only file, has equal lanes, sequences included. TAKE has no
 * effect: leases belong to one life of one server.
 *
 *    LANE.APPLY <key> ...
 *
 *    SET <maxlen> <maxbytes> <strict 0|1> <maxattempts> <dead-key>    made by LANE.CREATE, or changed
 *    ADD <wall> <records> (<meta> <body>) x n      stored; a record is 32 bytes: sequence (8), id (16),
 *                                                  delay in milliseconds (8, highest bit: it has an id)
 *    LOAD <chunk>                                  stored with age, revision, attempts: see chunk.h
 *    META <records> <meta> x n                     a record is 16 bytes: sequence (8), revision (8)
 *    BACK <attempt 0|1> <delay> <wall> <ranges>    given back, counted or not, delayed or not
 *    DEL <ranges>                                  removed
 *    CLEAR                                         all removed
 *
 * Numbers in strings are little-endian; ranges are pairs of sequences (8 + 8), closed. wall is the wall clock
 * at that time: a server that reads its file later takes what has passed off a delay. A lane vanishes with
 * its last entry unless SET made it, here as there. Only the stream of a primary and the loading of a file
 * may send it. */
#ifndef DOVELANE_COMMANDS_EFFECT_H
#define DOVELANE_COMMANDS_EFFECT_H

#include "chunk.h"
#include "value.h"

#define APPLY "LANE.APPLY"

/* Sequences, as ranges: those added in rising order join. */
struct ranges {
    uint64_t *pair;
    size_t n, room; /* pairs */
};

void ranges_add(struct ranges *, uint64_t seq);
void ranges_free(struct ranges *);

/* What a PUSH stored in one lane. The strings are shared with the command, not copied. */
struct effect_add {
    char *records;
    RedisModuleString **data;
    size_t n, room;
};

void effect_add_entry(struct effect_add *, uint64_t seq, const uint8_t *id, int64_t delay,
                      RedisModuleString *meta, RedisModuleString *body);
void effect_add_send(RedisModuleCtx *, RedisModuleString *key, struct effect_add *); /* and empties it */

/* These send nothing when there is nothing to tell, and empty what they are given. */
void effect_del(RedisModuleCtx *, RedisModuleString *key, struct ranges *);
void effect_back(RedisModuleCtx *, RedisModuleString *key, struct ranges *, bool attempt, int64_t delay);
void effect_load(RedisModuleCtx *, RedisModuleString *key, struct chunk *);
void effect_settings(RedisModuleCtx *, RedisModuleString *key, struct value *);
void effect_clear(RedisModuleCtx *, RedisModuleString *key);

/* The whole lane, for the rewriting of the append-only file. */
void effect_rewrite(RedisModuleIO *aof, RedisModuleString *key, void *value);

int apply_command(RedisModuleCtx *, RedisModuleString **argv, int argc);

#endif
