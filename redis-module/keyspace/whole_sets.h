/* whole_sets - for which sets of owners this server is whole (docs/takeover/return.md, "Whole").
 *
 * They live in module memory: maxmemory never refuses them, nothing expires, and a server that was
 * restarted knows none. That is the point: whatever may take entries away (a restart with an old
 * file, FLUSHALL, a failover) takes it away as well. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_WHOLE_SETS_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_WHOLE_SETS_H

#include "redis-module/keyspace/value.h"
#include "redis-module/server/text.h"

struct whole_set {
    struct whole_set *next;
    /* token: len 0 while not whole; begun: of the comparison under way, or of the last one */
    struct text set, token, begun;
    int64_t since; /* now_ms() when it became whole */
};

const struct whole_set *whole_sets(void); /* the first one */

/* A comparison begins under that token. False: there are too many sets. */
bool whole_begin(const char *set, size_t set_len, const char *token, size_t token_len);

/* It ends: true when nothing was lost since it began, and the server is whole for the set. */
bool whole_end(const char *set, size_t set_len, const char *token, size_t token_len);

/* Entries of database 0 may be gone, or others there: this server is whole for nothing. */
void whole_lost(void);

/* The same when this lane is one that has owners (dovelane:<destination>|<owners>, in database
 * 0). What other users of the type lose nobody compares. */
void whole_lost_with(const struct value *);

#endif
