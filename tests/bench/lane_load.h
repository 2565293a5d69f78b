/* lane_load - what the parts of lane_load share: its options, what is in flight, how far it is. One
 * of each for the whole program. */
#ifndef DOVELANE_TESTS_BENCH_LANE_LOAD_H
#define DOVELANE_TESTS_BENCH_LANE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

enum doing {
    LANE_RANGE,
    LANE_RIDE,
    LANE_RIDE_UPTO,
    LANE_IDS,
    LANE_TAKE,
    SET,
    MSET,
    LIST,
    STREAM,
    GROUP,
    MEMCACHED,
    MEMCACHED_QUIET,
    FILL_LANE,
    FILL_LIST,
    FILL_STREAM,
    FILL_SET,
    READ_LANE,
    READ_STREAM,
    READ_IDS,
    DOINGS
};

/* What a request in flight stands for. */
enum asked { STORE, REMOVE, OTHER, BLOCK };
struct request {
    enum asked asked;
    unsigned entries; /* stores confirmed, or removes done, by its reply */
    unsigned replies; /* replies still to come */
};

struct load_options {
    enum doing doing;
    uint64_t count, size, batch, ack, window, lanes;
    bool unpacked, spin;
};
extern struct load_options o;

#define RING (1u << 20)
extern struct request ring[RING];
extern uint64_t ring_head, ring_tail;

/* Entry n has the id and the key made of n; sequences and stream ids come from the replies. */
extern uint64_t sent, stored, removing, removed, read_entries;
#define SPAN (1u << 20)
extern uint64_t *sequence; /* by entry modulo SPAN */
extern char (*stream_id)[40];
extern uint64_t next_from;
extern char next_stream[48];
extern bool read_over;

/* lane_requests.c: what each variant sends. */
extern uint64_t salt; /* another one in each run: ids that were let go are remembered */
bool packs(void);
void store(uint64_t n); /* from entry n on, a batch */
void remove_some(uint64_t from, uint64_t n);
void ask_block(void);
void make_group(void);

/* lane_replies.c: false when the next reply is not all there. */
bool take_reply(void);

#endif
