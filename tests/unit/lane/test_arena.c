/* Bodies of all sizes: they stay what they were while others go, and what went leaves little
 * behind. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/lane/world.h"

static uint64_t state;

static uint64_t below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

static char pattern[(4u << 20) + 256];

/* The body of entry n: begins somewhere in a long pattern, so that no two in a row are equal. */
static const char *body_of(unsigned n)
{
    if (!pattern[1])
        for (size_t i = 0; i < sizeof pattern; i++)
            pattern[i] = (char)(i * 2654435761u >> 13 | 1);
    return pattern + n % 251;
}

static uint64_t store(struct lane *lane, unsigned n, size_t len)
{
    uint64_t seq;
    struct lane_new e = {
        .id = id(n), .meta = "meta", .meta_len = n % 5, .body = body_of(n), .body_len = len};
    ck_assert_int_eq(lane_push(lane, &e, &seq), LANE_OK);
    return seq;
}

static void ck_entry(struct lane *lane, unsigned n, uint64_t seq, size_t len)
{
    struct lane_entry e;
    ck_assert(lane_find(lane, id(n), &e));
    ck_assert_uint_eq(e.seq, seq);
    ck_assert_uint_eq(e.body_len, len);
    ck_assert_int_eq(memcmp(e.body, body_of(n), len), 0);
    ck_assert_int_eq(memcmp(e.meta, "meta", n % 5), 0);
}

static size_t some_size(void)
{
    switch (below(8)) {
    case 0: return below(3);
    case 1: return below(200000);
    case 2: return 200000;
    case 3: return below(30) ? 100 : below(4u << 20);
    default: return below(6000);
    }
}

START_TEST(test_bodies_of_all_sizes_stay_what_they_are)
{
    enum { MANY = 400, TURNS = 6000 };
    static struct {
        uint64_t seq;
        size_t len;
        unsigned n;
    } held[MANY];
    struct lane *lane = new_lane(), *other = new_lane();
    state = 88172645463325252u;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned i = (unsigned)below(MANY);
        if (held[i].seq) {
            ck_entry(lane, held[i].n, held[i].seq, held[i].len);
            if (below(9) == 0) { /* there and back again: large ones without being copied */
                uint64_t there;
                ck_assert_int_eq(lane_hand_over(lane, held[i].seq, other, &there), LANE_OK);
                ck_entry(other, held[i].n, there, held[i].len);
                ck_assert_int_eq(lane_hand_over(other, there, lane, &held[i].seq), LANE_OK);
                continue;
            }
            ck_assert(lane_remove(lane, held[i].seq));
            held[i].seq = 0;
        } else {
            held[i].len = some_size();
            held[i].n = turn;
            held[i].seq = store(lane, turn, held[i].len);
        }
        if (turn % 16 == 0)
            ck_lane(lane);
    }
    for (unsigned i = 0; i < MANY; i++)
        if (held[i].seq)
            ck_entry(lane, held[i].n, held[i].seq, held[i].len);
    ck_lane(other);
    lane_free(other);
    end_lane(lane);
}
END_TEST

static void ck_survivors(size_t len, unsigned many)
{
    uint64_t *seq = calloc(many, sizeof *seq);
    struct lane *lane = new_lane();
    state = 88172645463325252u;
    for (unsigned i = 0; i < many; i++)
        seq[i] = store(lane, i, len);
    struct lane_counts n = lane_counts(lane);
    ck_assert_uint_eq(n.memory, allocated);
    /* Full: slot, record head, id index at its emptiest; the ends of segments; what is left of
     * the last one. */
    ck_assert_uint_le(n.memory, n.bytes + 76 * (uint64_t)many + n.bytes / 64 + (1u << 20));
    for (unsigned left = many; left > many / 10; left--) {
        unsigned i = (unsigned)below(left);
        ck_assert(lane_remove(lane, seq[i]));
        seq[i] = seq[left - 1];
    }
    n = lane_counts(lane);
    ck_lane(lane);
    ck_assert_msg(n.memory <= n.bytes + n.bytes / 2, "%lu bytes of memory for %lu alive", n.memory,
                  n.bytes);
    end_lane(lane);
    free(seq);
}

START_TEST(test_survivors_of_removals_at_random_pin_little)
{
    ck_survivors(1000, 100000);
    ck_survivors(400, 50000);
    ck_survivors(20000, 5000);
}
END_TEST

START_TEST(test_a_lane_that_drains_gives_its_memory_back)
{
    enum { MANY = 20000 };
    struct lane *lane = new_lane();
    static uint64_t seq[MANY];
    for (unsigned i = 0; i < MANY; i++)
        seq[i] = store(lane, i, 2000);
    for (unsigned i = 0; i + 10 < MANY; i++) {
        ck_assert(lane_remove(lane, seq[i]));
        struct lane_counts n = lane_counts(lane);
        ck_assert_uint_le(n.memory, n.bytes + n.bytes / 4 + (4u << 20));
    }
    ck_lane(lane);
    /* The last ten are 20 KB. */
    ck_assert_uint_le(lane_counts(lane).memory, 90000);
    for (unsigned i = MANY - 10; i < MANY; i++)
        ck_entry(lane, i, seq[i], 2000);
    end_lane(lane);
}
END_TEST

START_TEST(test_replaced_metas_leave_nothing_behind)
{
    struct lane *lane = new_lane();
    char meta[300];
    memset(meta, 'm', sizeof meta);
    uint64_t seq[100];
    for (unsigned i = 0; i < 100; i++)
        seq[i] = store(lane, i, 50);
    for (uint32_t revision = 1; revision < 1000; revision++)
        ck_assert_int_eq(
            lane_set_meta(lane, seq[revision * 37 % 100], revision, meta, revision % 300), LANE_OK);
    ck_lane(lane);
    ck_assert_uint_le(lane_counts(lane).memory, 90000);
    end_lane(lane);
}
END_TEST

START_TEST(test_emptied_at_once_it_keeps_numbers_and_settings)
{
    struct lane *lane = new_lane(), *old;
    struct lane_holder holder = {0};
    uint64_t seq[50], last = 0;
    for (unsigned i = 0; i < 1000; i++)
        last = store(lane, i, 300);
    push_delayed(lane, 1000, 5000);
    ck_assert_uint_eq(take(lane, &holder, 1, 50, seq, 9000), 50);
    lane_settings(lane)->maxlen = 2000;
    fail_after = 0;
    ck_assert_ptr_null(lane_empty(lane));
    fail_after = -1;
    ck_lane(lane);
    old = lane_empty(lane);
    ck_assert_ptr_nonnull(old);
    lane_sweep(&env, UINT64_MAX);
    ck_assert_ptr_null(holder.first);
    ck_assert_uint_eq(lane_counts(lane).length, 0);
    ck_assert_uint_eq(lane_settings(lane)->maxlen, 2000);
    ck_assert_uint_eq(lane_counts(lane).memory + lane_counts(old).memory, allocated);
    lane_free(old);
    ck_assert_uint_gt(push(lane, 3), last + 1);
    ck_assert(take_one(lane, &holder, 2));
    end_lane(lane);
}
END_TEST

Suite *arena_suite(void)
{
    Suite *s = suite_create("arena");
    TCase *t = tcase_create("arena");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_bodies_of_all_sizes_stay_what_they_are);
    tcase_add_test(t, test_survivors_of_removals_at_random_pin_little);
    tcase_add_test(t, test_a_lane_that_drains_gives_its_memory_back);
    tcase_add_test(t, test_replaced_metas_leave_nothing_behind);
    tcase_add_test(t, test_emptied_at_once_it_keeps_numbers_and_settings);
    suite_add_tcase(s, t);
    return s;
}
