/* world - what the tests of the core stand on: an environment that counts its memory, and short
 * ways to say things. */
#ifndef DOVELANE_TESTS_UNIT_LANE_WORLD_H
#define DOVELANE_TESTS_UNIT_LANE_WORLD_H

#include <check.h>

#include "redis-module/core/lane.h"

extern struct lane_env env;
extern size_t allocated; /* bytes in use */
extern long fail_after;  /* allocations until one fails, -1: none does */

struct lane *new_lane(void);
void end_lane(struct lane *); /* checks, frees, and expects no memory in use */

/* An id that is this number. */
const uint8_t *id(unsigned n);

/* Pushes "meta" and "body" under an id; the sequence. */
uint64_t push(struct lane *, unsigned n);
enum lane_result try_push(struct lane *, unsigned n, uint64_t *seq);
uint64_t push_delayed(struct lane *, unsigned n, int64_t due);

/* Takes up to n entries in one lease; how many it got. */
size_t take(struct lane *, struct lane_holder *, uint64_t lease, size_t n, uint64_t *seq,
            int64_t until);

/* The next one takeable, taken under a lease of its own that is kept by `holder`; 0: none. */
uint64_t take_one(struct lane *, struct lane_holder *, uint64_t lease);

#define ck_lane(lane) ck_assert_ptr_eq((void *)(uintptr_t)lane_check(lane), NULL)

Suite *push_suite(void);
Suite *take_suite(void);
Suite *arena_suite(void);
Suite *blocks_suite(void);
Suite *memory_suite(void);

#endif
