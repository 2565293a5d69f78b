#include "tests/unit/lane/world.h"

#include <stdlib.h>
#include <string.h>

size_t allocated;
long fail_after = -1;

/* The size in front of each piece. */
static void *count_alloc(size_t n)
{
    if (fail_after == 0)
        return NULL;
    if (fail_after > 0)
        fail_after--;
    size_t *p = malloc(16 + n);
    *p = n;
    allocated += n;
    memset((char *)p + 16, 0xa5, n);
    return (char *)p + 16;
}

static void count_free(void *p)
{
    size_t *head = (size_t *)(void *)((char *)p - 16);
    allocated -= *head;
    memset(p, 0x5a, *head);
    free(head);
}

struct lane_env env = {
    .alloc = count_alloc,
    .free = count_free,
    .key = {'s', 'i', 'x', 't', 'e', 'e', 'n', ' ', 'b', 'y', 't', 'e', 's', ' ', ':', ')'}};

struct lane *new_lane(void)
{
    struct lane *lane = lane_create(&env);
    ck_assert_ptr_nonnull(lane);
    return lane;
}

void end_lane(struct lane *lane)
{
    ck_lane(lane);
    lane_end_leases(lane);
    ck_lane(lane);
    lane_free(lane);
    ck_assert(!lane_sweep(&env, UINT64_MAX));
    ck_assert_uint_eq(allocated, 0);
}

const uint8_t *id(unsigned n)
{
    static uint8_t all[4][LANE_ID_LEN];
    static unsigned turn;
    uint8_t *one = all[turn++ % 4];
    memset(one, 'i', LANE_ID_LEN);
    memcpy(one, &n, sizeof n);
    return one;
}

enum lane_result try_push(struct lane *lane, unsigned n, uint64_t *seq)
{
    struct lane_new e = {
        .id = id(n), .meta = "meta", .meta_len = 4, .body = "body", .body_len = 4, .born = 1000};
    return lane_push(lane, &e, seq);
}

uint64_t push(struct lane *lane, unsigned n)
{
    uint64_t seq;
    ck_assert_int_eq(try_push(lane, n, &seq), LANE_OK);
    return seq;
}

uint64_t push_delayed(struct lane *lane, unsigned n, int64_t due)
{
    uint64_t seq;
    struct lane_new e = {
        .id = id(n), .meta = "meta", .meta_len = 4, .body = "body", .body_len = 4, .due = due};
    ck_assert_int_eq(lane_push(lane, &e, &seq), LANE_OK);
    return seq;
}

size_t take(struct lane *lane, struct lane_holder *holder, uint64_t number, size_t n, uint64_t *seq,
            int64_t until)
{
    struct lane_lease *lease = lane_lease_open(lane, holder, number);
    struct lane_entry e;
    size_t got = 0;
    ck_assert_ptr_nonnull(lease);
    while (got < n && lane_candidate(lane, lease, &e)) {
        ck_assert(lane_lease_add(lease, e.seq, until));
        seq[got++] = e.seq;
    }
    lane_lease_close(lease);
    ck_lane(lane);
    return got;
}

uint64_t take_one(struct lane *lane, struct lane_holder *holder, uint64_t number)
{
    uint64_t seq;
    return take(lane, holder, number, 1, &seq, LANE_NEVER - 1) ? seq : 0;
}
