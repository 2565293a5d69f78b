/* chunk - entries as bytes, for the RDB file and for effects: many in one string, never a string
 * per entry.
 *
 *    version 2 | wall clock | entry | entry | ...
 *       1           8
 *    entry:  sequence  age  delay  revision  attempts  meta length  body length  flags  id  [life]
 *    meta  body
 *               8       8     8       4         4          4            4          1    16     8
 *
 * Little-endian. Age, delay and life (what is left until it expires) are milliseconds at the time
 * of the wall clock. delay is 0 when it waits: leases are not saved, so what is leased waits after
 * a load. Flag 1: has an id; flag 2: expires, and has a life. Version 1 had no flag 2, and is else
 * the same.
 *
 * A module reads what it and all before it wrote; what a later one wrote it refuses, naming both
 * versions.
 *
 * To change this format: (1) Raise CHUNK_VERSION. (2) Draw the new entry here. (3) Keep reading all
 * versions before. (4) Raise the RDB version when the fields around the chunks change, too. (5)
 * Keep a saved file of the old version in the tests. */
#ifndef DOVELANE_REDIS_MODULE_PROPAGATE_CHUNK_H
#define DOVELANE_REDIS_MODULE_PROPAGATE_CHUNK_H

#include "redis-module/server/server.h"

#define CHUNK_VERSION 2
#define CHUNK_TARGET \
    (1u              \
     << 20) /* a chunk is closed when it has that much, so only a large entry makes a larger one */

struct chunk {
    char *data;
    size_t len, room;
    int64_t now;
    uint64_t entries;
};

void chunk_add(struct chunk *, const struct lane_entry *); /* {0} is an empty one */
void chunk_reset(struct chunk *);                          /* empty again, keeps its memory */
void chunk_free(struct chunk *);

/* Stores a chunk's entries in a lane. Trusts nothing in it. NULL and *entries_r, or what is
 * wrong. */
const char *chunk_load(struct lane *, const char *data, size_t len, uint64_t *entries_r);

/* Little-endian numbers, for all that is sent or saved. Written out, the compiler sees one load
 * or store. */
static inline void put32(char *to, uint32_t x)
{
    to[0] = (char)x;
    to[1] = (char)(x >> 8);
    to[2] = (char)(x >> 16);
    to[3] = (char)(x >> 24);
}

static inline void put64(char *to, uint64_t x)
{
    put32(to, (uint32_t)x);
    put32(to + 4, (uint32_t)(x >> 32));
}

static inline uint32_t get32(const char *from)
{
    const unsigned char *p = (const unsigned char *)from;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t get64(const char *from)
{
    return get32(from) | (uint64_t)get32(from + 4) << 32;
}

/* What is left of a delay that was written down at a wall clock time; 0 when it is over. */
int64_t delay_left(int64_t delay, int64_t wall);

#endif
