/* effect - what the module sends to replicas and to the append-only file: what became of lanes,
 * never what was asked for. Sequences are told, not given out again; no decision depends on a clock
 * or a connection. So a replica, and a server that reads its append-only file, has equal lanes,
 * sequences included. TAKE has no effect: leases belong to one life of one server.
 *
 *    LANE.APPLY <key> ...
 *
 *    SET <maxlen> <maxbytes> <strict 0|1> <maxattempts> <dead-key>    made by LANE.CREATE, or changed
 *    ADD <wall> <records> (<meta> <body>) x n      stored; a record is 32 bytes: sequence (8), id (16),
 *                                                  delay in milliseconds (8, highest bit: it has an
 *                                                  id)
 *    PACK <wall> <delay> <answers> <entries>       stored; entries as in packed.h, their keys mean nothing;
 *                                                  answers: 8 bytes for each, its sequence, or not above 0
 *                                                  when it was not stored
 *    LOAD <chunk>                                  stored with age, revision, attempts: see chunk.h
 *    META <records> <meta> x n                     a record is 16 bytes: sequence (8), revision (8)
 *    BACK <attempt 0|1> <delay> <wall> <ranges>    given back, counted or not, delayed or not
 *    DEL <ranges>                                  removed
 *    CLEAR                                         all removed
 *
 * Nothing is sent while nobody can ever ask for it (server.streams is false). That is before the
 * server has forked a first child, loaded a data set, changed its role or had a replica. It also
 * needs that the module came into it without an append-only file and without a backlog for
 * replicas. A replica begins with what a child saved, or with a stream that a saved file, a former
 * primary or another replica knows. An append-only file that is switched on begins with what a
 * child writes. From the first of these on everything is sent, for ever. To make up a command that
 * the server then drops is a good part of a PUT.
 *
 * Numbers in strings are little-endian; ranges are pairs of sequences (8 + 8), closed. wall is the
 * wall clock at that time. A server that reads its file later takes the time that has passed off a
 * delay. A lane vanishes with its last entry unless SET made it, here as there. Only the stream of
 * a primary and the loading of a file may send it. */
#ifndef DOVELANE_REDIS_MODULE_PROPAGATE_EFFECT_H
#define DOVELANE_REDIS_MODULE_PROPAGATE_EFFECT_H

#include "redis-module/propagate/chunk.h"
#include "redis-module/server/server.h"

#define APPLY "LANE.APPLY"

/* Sequences, as ranges, closed: those added in rising order join. */
struct ranges {
    uint64_t *pair;
    size_t n, room; /* pairs */
};

void ranges_add(struct ranges *, uint64_t seq);
void ranges_add_run(struct ranges *, uint64_t from, uint64_t to);

/* What a PUSH stored in one lane. The strings are shared with the command, not copied. */
struct effect_add {
    char *records;
    RedisModuleString **data;
    size_t n, room;
};

void effect_add_entry(struct effect_add *, uint64_t seq, const uint8_t *id, int64_t delay,
                      RedisModuleString *meta, RedisModuleString *body);
/* and empties it */
void effect_add_send(RedisModuleCtx *, RedisModuleString *key, struct effect_add *);

/* What PUSH stored of packed entries in one lane: n answers; whole: the argument, when it has
 * just them. */
void effect_pack(RedisModuleCtx *, RedisModuleString *key, const int64_t *answer, size_t n,
                 int64_t delay, RedisModuleString *whole, const char *entries, size_t len);

/* One entry, stored by PUT. */
void effect_put(RedisModuleCtx *, RedisModuleString *key, uint64_t seq, const uint8_t *id,
                const char *meta, size_t meta_len, RedisModuleString *body);

/* These send nothing when there is nothing to tell, and empty what they are given. */
void effect_del(RedisModuleCtx *, RedisModuleString *key, struct ranges *);
void effect_back(RedisModuleCtx *, RedisModuleString *key, struct ranges *, bool attempt,
                 int64_t delay);
/* sends what is full */
void effect_load_add(RedisModuleCtx *, RedisModuleString *key, struct chunk *,
                     const struct lane_entry *);
void effect_load(RedisModuleCtx *, RedisModuleString *key, struct chunk *);
/* dead: key of the dead-letter lane, "" when there is none. */
void effect_settings(RedisModuleCtx *, RedisModuleString *key, struct lane *, const char *dead,
                     size_t dead_len);
void effect_clear(RedisModuleCtx *, RedisModuleString *key);

/* The whole lane, for the rewriting of the append-only file. */
void effect_rewrite(RedisModuleIO *aof, RedisModuleString *key, struct lane *, const char *dead,
                    size_t dead_len);

int apply_command(RedisModuleCtx *, RedisModuleString **argv, int argc);

#endif
