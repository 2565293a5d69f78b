/* packed - entries in one string: what LANE.PUSH takes after PACKED, for programs.
 *
 *    key       meta length   body length   id   meta   body
 *     4            4             4        0|16                  one entry; the next one follows
 *
 * Little-endian. key: which of the command's keys, from 1; its highest bit: an id follows. One
 * argument per entry and part costs the server more than storing it: each is an allocation and a
 * line to parse. */
#ifndef DOVELANE_REDIS_MODULE_PROPAGATE_PACKED_H
#define DOVELANE_REDIS_MODULE_PROPAGATE_PACKED_H

#include "redis-module/server/args.h"

/* One entry: a view into the string. */
struct packed {
    uint64_t key;
    const uint8_t *id; /* NULL: none */
    const char *meta, *body;
    size_t meta_len, body_len;
};

/* The entry at *at, which is moved behind it. Only on what packed_check found whole. */
struct packed packed_next(const char **at);

/* Whether a string is a sequence of whole entries for keys up to nkeys (0: any). NULL and their
 * number, or what is wrong: with entry *n_r (from 0). */
const char *packed_check(const char *data, size_t len, uint64_t nkeys, uint64_t *n_r);

#endif
