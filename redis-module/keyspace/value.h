/* value - a lane as a Redis value: where it is, who waits for it, and when it wants to be looked
 * at. Also the way to it by key.
 *
 * A value is *attached* while the module knows its database and key: from its creation, loading or
 * copying until it is unlinked. Only an attached value is on cursor lists, has leases or a wake
 * time, and counts in the totals. RENAME and MOVE unlink the value and keep it. Their event
 * attaches it again, or at the latest the next command on it does. What is not attached may be
 * freed on any thread. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_VALUE_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_VALUE_H

#include "redis-module/keyspace/cursor_list.h"
#include "redis-module/server/server.h"

struct value {
    struct lane *lane;
    char *dead; /* key of the dead-letter lane, NULL: none */
    size_t dead_len;

    bool attached;
    int db;
    char *name;
    size_t name_len;
    uint64_t hash;          /* of database and name, for tombstones.h */
    uint64_t listed, ready; /* numbers on the cursor lists, 0: not on it */
    bool takeable;          /* what was last told */
    /* a TAKE met entries whose time is over: it gets nothing until lease_end_overdue was here */
    bool expired_ahead;
    int64_t wake; /* LANE_NEVER: not in the lane timer's heap */
    size_t wake_place;
    uint64_t told_entries, told_bytes, told_leased; /* its part of the totals */
};

/* A key that a command has opened. value is NULL when there is no lane. */
struct lane_key {
    RedisModuleKey *key;
    RedisModuleString *name;
    struct value *value;
    bool write;
};

extern struct cursor_list all_lanes, ready_lanes;

struct value *value_create(void); /* NULL: no memory */
void value_free(struct value *);
void value_attach(struct value *, int db, const char *name, size_t len);
void value_detach(struct value *);                                 /* ends its leases */
void value_end_leases(struct value *);                             /* silently */
uint64_t value_empty(struct value *);                              /* how many entries it had */
void value_set_dead(struct value *, const char *name, size_t len); /* len 0: none */

/* Brings totals, wake time and readiness up to date after a change, and wakes who waits. ctx may be
 * NULL. Then clients blocked on the key are not signalled: the server does that itself for keys
 * that appear. */
void value_changed(RedisModuleCtx *ctx, struct value *, RedisModuleString *name);

/* Opens a key. False when it holds something else; nothing is open then. */
bool lane_key_open(RedisModuleCtx *, RedisModuleString *name, bool write, struct lane_key *);

/* As above, and has answered -WRONGTYPE when false. */
bool lane_key_open_or_reply(RedisModuleCtx *, RedisModuleString *name, bool write,
                            struct lane_key *);

/* Makes the lane when there is none; false: no memory. */
bool lane_key_make(RedisModuleCtx *, struct lane_key *);

/* Closes; after a write: value_changed, and the key vanishes when the lane is empty and was not
 * created. */
void lane_key_close(RedisModuleCtx *, struct lane_key *);

/* A name as it may stand in a line of the log; to has room for NAME_SHOWN characters. How many. */
#define NAME_SHOWN 200
size_t name_show(char *to, const char *name, size_t len);

uint64_t name_hash(int db, const char *name, size_t len);

/* Ids of that lane, given one by one, are about to be stored or removed: fetches side by side what
 * that needs.
 */
struct ahead {
    uint64_t lane; /* name_hash() */
    struct value *value;
    uint64_t hash[LANE_AHEAD];
    size_t n;
};

void ahead_begin(struct ahead *, uint64_t lane, struct value *);
void ahead_add(struct ahead *, const uint8_t *id); /* up to LANE_AHEAD of them */
void ahead_fetch(struct ahead *);                  /* and empties it */

/* -NOLANE <key> */
int reply_nolane(RedisModuleCtx *, RedisModuleString *key);

void lane_event(RedisModuleCtx *, const char *event, RedisModuleString *key);

#endif
