/* Without memory nothing changes, and giving back needs none. */
#include "tests/unit/lane/world.h"

START_TEST(test_push_without_memory_changes_nothing)
{
    struct lane *lane = new_lane();
    uint64_t seq;
    for (unsigned i = 0; i < 200; i++) {
        struct lane_counts before = lane_counts(lane);
        long n = 0;
        for (fail_after = n; try_push(lane, i, &seq) != LANE_OK; fail_after = ++n) {
            fail_after = -1;
            ck_lane(lane);
            ck_assert_uint_eq(lane_counts(lane).length, before.length);
            ck_assert_uint_eq(lane_counts(lane).bytes, before.bytes);
        }
        fail_after = -1;
    }
    ck_assert_uint_eq(lane_counts(lane).memory, allocated);
    end_lane(lane);
}
END_TEST

START_TEST(test_leased_entries_come_back_without_memory)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq[100];
    for (unsigned i = 0; i < 100; i++)
        push(lane, i);
    ck_assert_uint_eq(take(lane, &holder, 1, 100, seq, 9000), 100);
    fail_after = 0;
    for (unsigned i = 0; i < 100; i++)
        ck_assert(lane_put_back(lane, seq[i], true, i % 2 ? 5000 + i : 0));
    ck_lane(lane);
    lane_due(lane, 9000);
    ck_lane(lane);
    fail_after = -1;
    ck_assert_uint_eq(lane_counts(lane).waiting, 100);
    end_lane(lane);
}
END_TEST

START_TEST(test_copy_without_memory_leaves_nothing_behind)
{
    struct lane *lane = new_lane(), *copy;
    for (unsigned i = 0; i < 50; i++)
        push(lane, i);
    size_t before = allocated;
    long n = 0;
    for (fail_after = n; !(copy = lane_copy(lane)); fail_after = ++n)
        ck_assert_uint_eq(allocated, before);
    fail_after = -1;
    ck_lane(copy);
    lane_free(copy);
    end_lane(lane);
}
END_TEST

Suite *memory_suite(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    tcase_set_timeout(t, 120); /* against hanging only */
    tcase_add_test(t, test_push_without_memory_changes_nothing);
    tcase_add_test(t, test_leased_entries_come_back_without_memory);
    tcase_add_test(t, test_copy_without_memory_leaves_nothing_behind);
    suite_add_tcase(s, t);
    return s;
}
