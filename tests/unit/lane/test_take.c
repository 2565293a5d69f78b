/* What is given, to whom, in which order, and how it comes back. */
#include "tests/unit/lane/world.h"

START_TEST(test_taken_in_order_of_storing)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq[5], want[5];
    for (unsigned i = 0; i < 5; i++)
        want[i] = push(lane, i);
    ck_assert_uint_eq(take(lane, &holder, 1, 3, seq, 9000), 3);
    ck_assert_uint_eq(take(lane, &holder, 2, 9, seq + 3, 9000), 2);
    ck_assert_mem_eq(seq, want, sizeof seq);
    ck_assert_uint_eq(take_one(lane, &holder, 3), 0);
    end_lane(lane);
    ck_assert_ptr_null(holder.first);
}
END_TEST

START_TEST(test_nacked_entry_keeps_its_place)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t a = push(lane, 1), b = push(lane, 2), c = push(lane, 3);
    ck_assert_uint_eq(take_one(lane, &holder, 1), a);
    ck_assert_uint_eq(take_one(lane, &holder, 2), b);
    lane_put_back(lane, b, true, 0);
    lane_put_back(lane, a, true, 0);
    ck_lane(lane);
    ck_assert_uint_eq(take_one(lane, &holder, 3), a);
    ck_assert_uint_eq(take_one(lane, &holder, 4), b);
    ck_assert_uint_eq(take_one(lane, &holder, 5), c);
    end_lane(lane);
}
END_TEST

START_TEST(test_delayed_entry_comes_back_to_its_place)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t a = push(lane, 1), b = push(lane, 2);
    take_one(lane, &holder, 1);
    lane_put_back(lane, a, true, 5000);
    ck_assert_int_eq(lane_wake(lane), 5000);
    lane_due(lane, 4999);
    ck_assert_uint_eq(lane_counts(lane).delayed, 1);
    lane_due(lane, 5000);
    ck_assert_uint_eq(take_one(lane, &holder, 2), a);
    ck_assert_uint_eq(take_one(lane, &holder, 3), b);
    end_lane(lane);
}
END_TEST

START_TEST(test_strict_lane_gives_nothing_behind_a_leased_entry)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    lane_settings(lane)->strict = true;
    uint64_t a = push(lane, 1), b = push(lane, 2);
    ck_assert(lane_takeable(lane));
    ck_assert_uint_eq(take_one(lane, &holder, 1), a);
    ck_assert(!lane_takeable(lane));
    ck_assert_uint_eq(take_one(lane, &holder, 2), 0);
    lane_remove(lane, a);
    ck_assert_uint_eq(take_one(lane, &holder, 3), b);
    end_lane(lane);
}
END_TEST

START_TEST(test_strict_lane_gives_nothing_behind_a_delayed_entry)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    lane_settings(lane)->strict = true;
    uint64_t a = push_delayed(lane, 1, 5000);
    push(lane, 2);
    ck_assert(!lane_takeable(lane));
    ck_assert_uint_eq(take_one(lane, &holder, 1), 0);
    lane_due(lane, 5000);
    ck_assert_uint_eq(take_one(lane, &holder, 2), a);
    end_lane(lane);
}
END_TEST

START_TEST(test_strict_lease_may_hold_a_run)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq[9];
    lane_settings(lane)->strict = true;
    for (unsigned i = 0; i < 5; i++)
        push(lane, i);
    push_delayed(lane, 5, 5000);
    push(lane, 6);
    ck_assert_uint_eq(take(lane, &holder, 1, 9, seq, 9000), 5);
    lane_put_back(lane, seq[2], false, 0);
    ck_assert_uint_eq(take_one(lane, &holder, 2), 0);
    end_lane(lane);
}
END_TEST

START_TEST(test_overdue_leases_are_found_soonest_first)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq[2];
    push(lane, 1);
    push(lane, 2);
    take(lane, &holder, 1, 1, seq, 2000);
    take(lane, &holder, 2, 1, seq + 1, 1000);
    ck_assert_uint_eq(lane_overdue(lane, 999), 0);
    ck_assert_uint_eq(lane_overdue(lane, 1000), seq[1]);
    lane_extend(lane, seq[1], 3000);
    ck_assert_uint_eq(lane_overdue(lane, 1000), 0);
    ck_assert_uint_eq(lane_overdue(lane, 2500), seq[0]);
    ck_lane(lane);
    end_lane(lane);
}
END_TEST

START_TEST(test_a_connection_finds_all_its_leases_in_all_lanes)
{
    struct lane *one = new_lane(), *two = new_lane();
    struct lane_holder holder = {0}, other = {0};
    uint64_t seq[4];
    for (unsigned i = 0; i < 4; i++) {
        push(one, i);
        push(two, i);
    }
    take(one, &holder, 1, 2, seq, 9000);
    take_one(one, &other, 2);
    take(two, &holder, 3, 3, seq, 9000);
    unsigned n = 0;
    while (holder.first) {
        struct lane_lease *lease = holder.first;
        struct lane *lane = lane_lease_lane(lease);
        lane_put_back(lane, lane_lease_next(lease, 0), true, 0);
        n++;
    }
    ck_assert_uint_eq(n, 5);
    ck_assert_uint_eq(lane_counts(one).leased, 1);
    lane_end_leases(one);
    ck_assert_ptr_null(lane_lease_lane(other.first));
    lane_lease_forget(other.first);
    ck_assert_ptr_null(other.first);
    lane_free(one);
    end_lane(two);
}
END_TEST

/* As many entries as leases, or one lease of them all: ending is one look, the rest is done bit
 * by bit. */
START_TEST(test_leases_that_end_at_once_are_told_when_looked_at)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq[1000];
    for (unsigned i = 0; i < 1000; i++)
        push(lane, i);
    push_delayed(lane, 1000, 7000);
    for (unsigned i = 0; i < 500; i++)
        seq[i] = take_one(lane, &holder, 1 + i);
    ck_assert_uint_eq(take(lane, &holder, 600, 400, seq + 500, 9000), 400);
    ck_assert(lane_put_back(lane, seq[40], true, 0));
    lane_mark_revoked(lane, seq[3]);
    lane_end_leases(lane);
    ck_assert_uint_eq(lane_counts(lane).leased, 0);
    ck_assert_uint_eq(lane_counts(lane).waiting, 1000);
    ck_assert(lane_sweep(&env, 100));
    ck_assert_uint_eq(lane_wake(lane), 7000);
    ck_assert(lane_remove(lane, seq[1]));
    /* All come again in order, those given back before, too. */
    uint64_t again[1000];
    ck_assert_uint_eq(take(lane, &holder, 2000, 999, again, 9000), 999);
    ck_assert_uint_eq(again[0], seq[0]);
    ck_assert_uint_eq(again[1], seq[2]);
    for (unsigned i = 1; i < 999; i++)
        ck_assert_uint_gt(again[i], again[i - 1]);
    struct lane_entry e;
    ck_assert(lane_get(lane, seq[3], &e));
    ck_assert(!e.revoked && e.lease == 2000);
    while (lane_sweep(&env, 100))
        ;
    ck_assert_uint_eq(lane_counts(lane).memory, allocated);
    end_lane(lane);
}
END_TEST

static uint64_t push_expiring(struct lane *lane, unsigned n, int64_t due, int64_t expires)
{
    uint64_t seq;
    struct lane_new e = {
        .id = id(n), .body = "body", .body_len = 4, .due = due, .expires = expires};
    ck_assert_int_eq(lane_push(lane, &e, &seq), LANE_OK);
    return seq;
}

START_TEST(test_what_is_leased_expires_when_it_comes_back)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t one = push_expiring(lane, 1, 0, 2000), two = push_expiring(lane, 2, 0, 3000),
             three = push_expiring(lane, 3, 9000, 2500);
    push(lane, 4);
    ck_assert_int_eq(lane_expiry(lane), 2000);
    ck_assert_uint_eq(take_one(lane, &holder, 1), one);
    ck_assert_uint_eq(lane_expired(lane, 1999), 0);
    ck_assert_uint_eq(lane_expired(lane, 4000), three);
    lane_remove(lane, three);
    ck_assert_uint_eq(lane_expired(lane, 4000), two);
    lane_remove(lane, two);
    ck_assert_uint_eq(lane_expired(lane, 4000), 0);
    ck_assert_uint_eq(lane_counts(lane).expiring, 1);
    ck_assert_int_eq(lane_expiry(lane), LANE_NEVER - 1);
    lane_put_back(lane, one, false, 5000);
    ck_lane(lane);
    ck_assert_uint_eq(lane_expired(lane, 4000), one);
    /* Once more, with all leases ended at once. */
    lane_due(lane, 5000);
    ck_assert_uint_eq(take_one(lane, &holder, 2), one);
    ck_assert_uint_eq(lane_expired(lane, 4000), 0);
    lane_end_leases(lane);
    ck_lane(lane);
    ck_assert_uint_eq(lane_expired(lane, 4000), one);
    end_lane(lane);
}
END_TEST

START_TEST(test_acknowledged_entry_leaves_its_lease)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq[3];
    for (unsigned i = 0; i < 3; i++)
        push(lane, i);
    take(lane, &holder, 7, 3, seq, 9000);
    struct lane_lease *lease = lane_lease_find(lane, 7);
    lane_remove(lane, seq[1]);
    ck_lane(lane);
    ck_assert_uint_eq(lane_lease_next(lease, 0), seq[0]);
    ck_assert_uint_eq(lane_lease_next(lease, seq[0]), seq[2]);
    lane_remove(lane, seq[0]);
    lane_remove(lane, seq[2]);
    ck_assert_ptr_null(lane_lease_find(lane, 7));
    ck_assert_ptr_null(holder.first);
    end_lane(lane);
}
END_TEST

START_TEST(test_revoked_mark_lasts_as_long_as_the_lease)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    struct lane_entry e;
    uint64_t seq = push(lane, 1);
    lane_mark_revoked(lane, seq);
    ck_assert(lane_get(lane, seq, &e) && !e.revoked);
    take_one(lane, &holder, 1);
    lane_mark_revoked(lane, seq);
    ck_assert(lane_get(lane, seq, &e) && e.revoked);
    lane_put_back(lane, seq, true, 0);
    ck_assert(lane_get(lane, seq, &e) && !e.revoked);
    end_lane(lane);
}
END_TEST

Suite *take_suite(void)
{
    Suite *s = suite_create("take");
    TCase *t = tcase_create("take");
    tcase_set_timeout(t, 120); /* against hanging only */
    tcase_add_test(t, test_taken_in_order_of_storing);
    tcase_add_test(t, test_nacked_entry_keeps_its_place);
    tcase_add_test(t, test_delayed_entry_comes_back_to_its_place);
    tcase_add_test(t, test_strict_lane_gives_nothing_behind_a_leased_entry);
    tcase_add_test(t, test_strict_lane_gives_nothing_behind_a_delayed_entry);
    tcase_add_test(t, test_strict_lease_may_hold_a_run);
    tcase_add_test(t, test_overdue_leases_are_found_soonest_first);
    tcase_add_test(t, test_a_connection_finds_all_its_leases_in_all_lanes);
    tcase_add_test(t, test_acknowledged_entry_leaves_its_lease);
    tcase_add_test(t, test_leases_that_end_at_once_are_told_when_looked_at);
    tcase_add_test(t, test_what_is_leased_expires_when_it_comes_back);
    tcase_add_test(t, test_revoked_mark_lasts_as_long_as_the_lease);
    suite_add_tcase(s, t);
    return s;
}
