/* Lanes with large holes: nothing may cost as much as the lane was long. */
#include <time.h>

#include "tests/unit/lane/world.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

START_TEST(test_stuck_old_entry_in_front_of_many_removed_ones_costs_nothing)
{
    enum { REMOVED = 300000, TURNS = 100000 };
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    struct lane_entry e;
    uint64_t stuck = push(lane, 0);
    ck_assert_uint_eq(take_one(lane, &holder, 1), stuck);
    uint64_t from = 0, to = 0, last;
    for (unsigned i = 1; i <= REMOVED; i++) {
        to = push(lane, i);
        from = from ? from : to;
    }
    last = push(lane, REMOVED + 1); /* so that the hole is in the middle */
    for (uint64_t seq = from; lane_next(lane, seq, &e) && e.seq <= to; seq = e.seq + 1)
        lane_remove(lane, e.seq);
    double begin = seconds();
    for (unsigned i = 0; i < TURNS; i++) {
        uint64_t seq = push(lane, REMOVED + 2 + i);
        lane_put_back(lane, stuck, false, 0);
        ck_assert_uint_eq(lane_first_seq(lane), stuck);
        ck_assert(lane_next(lane, stuck + 1, &e) && e.seq == last);
        ck_assert(lane_next(lane, last + 1, &e) && e.seq == seq);
        ck_assert_uint_eq(take_one(lane, &holder, 2 + i), stuck);
        lane_remove(lane, seq);
    }
    /* take_one checks the whole lane each time, but that is three entries. A scan of the hole
     * would take minutes. */
    ck_assert_double_lt(seconds() - begin, 20);
    end_lane(lane);
}
END_TEST

START_TEST(test_removed_from_the_middle_in_any_order)
{
    enum { N = 5000 };
    static uint64_t seq[N];
    struct lane *lane = new_lane();
    for (unsigned i = 0; i < N; i++)
        seq[i] = push(lane, i);
    for (unsigned i = 0; i < N; i++) {
        unsigned k = (unsigned)((uint64_t)i * 2017 % N);
        if (k % 500 != 7)
            ck_assert(lane_remove(lane, seq[k]));
    }
    ck_lane(lane);
    ck_assert_uint_eq(lane_counts(lane).length, N / 500);
    uint64_t at = 0;
    struct lane_entry e;
    for (unsigned i = 7; i < N; i += 500) {
        ck_assert(lane_next(lane, at, &e));
        ck_assert_uint_eq(e.seq, seq[i]);
        at = e.seq + 1;
    }
    ck_assert(!lane_next(lane, at, &e));
    end_lane(lane);
}
END_TEST

START_TEST(test_a_lane_of_one_entry_is_small)
{
    struct lane *lane = new_lane();
    push(lane, 1);
    ck_assert_uint_le(lane_counts(lane).memory, 1200);
    ck_assert_uint_eq(lane_counts(lane).memory, allocated);
    end_lane(lane);
}
END_TEST

START_TEST(test_sparse_sequences_cost_little)
{
    /* A payload of RESTORE may put each entry into a block of its own, at its last index. */
    enum { N = 1000 };
    struct lane *lane = new_lane();
    struct lane_new e = {.body = "x", .body_len = 1};
    for (unsigned i = 1; i <= N; i++) {
        e.seq = (uint64_t)i * 1280 + 127;
        ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_OK);
    }
    ck_assert_uint_le(lane_counts(lane).memory / N, 600);
    end_lane(lane);
}
END_TEST

START_TEST(test_lanes_interleave_their_stretches)
{
    struct lane *a = new_lane(), *b = new_lane();
    uint64_t last_a = 0, last_b = 0;
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t sa = push(a, i), sb = push(b, i);
        ck_assert(sa > last_a && sb > last_b && sa != sb);
        last_a = sa;
        last_b = sb;
        if (i >= 100) {
            ck_assert(lane_remove(a, lane_first_seq(a)));
            ck_assert(lane_remove(b, lane_first_seq(b)));
        }
    }
    ck_lane(a);
    lane_free(a);
    end_lane(b);
}
END_TEST

START_TEST(test_many_ids_stand_near_their_homes)
{
    /* So many that the tables of the index use most bits of the hash; lane_check looks at the
     * distances. */
    enum { N = 500000 };
    struct lane *lane = new_lane();
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(lane_push(lane, &(struct lane_new){.id = id(i)}, NULL), LANE_OK);
    ck_lane(lane);
    struct lane_entry e;
    for (unsigned i = 0; i < N; i++)
        if (i % 10)
            ck_assert(lane_find(lane, id(i), &e) && lane_remove(lane, e.seq));
    ck_lane(lane);
    ck_assert_uint_le(lane_counts(lane).memory / (N / 10), 200);
    end_lane(lane);
}
END_TEST

/* As a payload would: each entry in a block of its own. */
START_TEST(test_sparse_sequences_given_in_order_cost_little)
{
    struct lane *lane = new_lane();
    for (unsigned i = 0; i < 10000; i++) {
        struct lane_new e = {.seq = 1 + (uint64_t)i * 1000, .unbounded = true};
        ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_OK);
    }
    ck_lane(lane);
    ck_assert_uint_lt(lane_counts(lane).memory, 10000 * 160);
    end_lane(lane);
}
END_TEST

Suite *blocks_suite(void)
{
    Suite *s = suite_create("blocks");
    TCase *t = tcase_create("blocks");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_stuck_old_entry_in_front_of_many_removed_ones_costs_nothing);
    tcase_add_test(t, test_removed_from_the_middle_in_any_order);
    tcase_add_test(t, test_a_lane_of_one_entry_is_small);
    tcase_add_test(t, test_sparse_sequences_cost_little);
    tcase_add_test(t, test_lanes_interleave_their_stretches);
    tcase_add_test(t, test_many_ids_stand_near_their_homes);
    tcase_add_test(t, test_sparse_sequences_given_in_order_cost_little);
    suite_add_tcase(s, t);
    return s;
}
