/* What is stored, found, replaced, handed over and removed. */
#include <string.h>

#include "tests/unit/lane/world.h"

START_TEST(test_pushed_entry_is_found_by_sequence_and_id)
{
    struct lane *lane = new_lane();
    uint64_t seq = push(lane, 7);
    struct lane_entry e;
    ck_assert(lane_get(lane, seq, &e));
    ck_assert_mem_eq(e.body, "body", 4);
    ck_assert_mem_eq(e.meta, "meta", 4);
    ck_assert_mem_eq(e.id, id(7), LANE_ID_LEN);
    ck_assert(lane_find(lane, id(7), &e));
    ck_assert_uint_eq(e.seq, seq);
    ck_assert(!lane_find(lane, id(8), &e));
    ck_assert(!lane_get(lane, seq + 1, &e));
    end_lane(lane);
}
END_TEST

START_TEST(test_an_id_is_stored_once)
{
    struct lane *lane = new_lane();
    uint64_t seq = push(lane, 7), again;
    ck_assert_int_eq(try_push(lane, 7, &again), LANE_HELD);
    ck_assert_uint_eq(again, seq);
    ck_assert_uint_eq(lane_counts(lane).length, 1);
    end_lane(lane);
}
END_TEST

START_TEST(test_entries_without_id_are_all_stored)
{
    struct lane *lane = new_lane();
    struct lane_new e = {.body = "x", .body_len = 1};
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_OK);
    ck_assert_uint_eq(lane_counts(lane).length, 300);
    end_lane(lane);
}
END_TEST

START_TEST(test_bounds_are_exact_and_count_what_is_leased_and_delayed)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq;
    lane_settings(lane)->maxlen = 3;
    push(lane, 1);
    take_one(lane, &holder, 1);
    push_delayed(lane, 2, 5000);
    push(lane, 3);
    ck_assert_int_eq(try_push(lane, 4, &seq), LANE_FULL);
    ck_assert_int_eq(try_push(lane, 3, &seq), LANE_HELD);
    *lane_settings(lane) = (struct lane_settings){.maxbytes = 32};
    push(lane, 4);
    ck_assert_int_eq(try_push(lane, 5, &seq), LANE_FULL);
    struct lane_new empty = {0};
    ck_assert_int_eq(lane_push(lane, &empty, &seq), LANE_OK);
    end_lane(lane);
}
END_TEST

START_TEST(test_meta_is_replaced_by_a_higher_revision_only)
{
    struct lane *lane = new_lane();
    struct lane_entry e;
    uint64_t seq = push(lane, 1);
    ck_assert_int_eq(lane_set_meta(lane, seq, 0, "new", 3), LANE_STALE);
    ck_assert_int_eq(lane_set_meta(lane, seq, 2, "longer meta", 11), LANE_OK);
    ck_assert_int_eq(lane_set_meta(lane, seq, 2, "again", 5), LANE_STALE);
    ck_assert_int_eq(lane_set_meta(lane, seq, 3, "", 0), LANE_OK);
    ck_assert_int_eq(lane_set_meta(lane, seq, 4, "m", 1), LANE_OK);
    ck_assert(lane_get(lane, seq, &e));
    ck_assert_uint_eq(e.meta_len, 1);
    ck_assert_mem_eq(e.body, "body", 4);
    ck_assert_uint_eq(lane_counts(lane).bytes, 5);
    lane_settings(lane)->maxbytes = 5;
    ck_assert_int_eq(lane_set_meta(lane, seq, 5, "mm", 2), LANE_FULL);
    ck_assert_int_eq(lane_set_meta(lane, seq + 1, 5, "m", 1), LANE_ABSENT);
    end_lane(lane);
}
END_TEST

START_TEST(test_sequences_never_come_back)
{
    struct lane *lane = new_lane();
    uint64_t first = push(lane, 1), second;
    lane_remove(lane, first);
    second = push(lane, 1);
    ck_assert_uint_gt(second, first);
    end_lane(lane);
    lane = new_lane(); /* it vanished and came back */
    ck_assert_uint_gt(push(lane, 1), second);
    end_lane(lane);
}
END_TEST

START_TEST(test_copy_continues_with_numbers_of_its_own)
{
    struct lane *lane = new_lane();
    struct lane_holder holder = {0};
    uint64_t seq = push(lane, 1);
    push(lane, 2);
    take_one(lane, &holder, 1);
    struct lane *copy = lane_copy(lane);
    ck_lane(copy);
    ck_assert_uint_eq(lane_first_seq(copy), seq);
    ck_assert_uint_eq(lane_counts(copy).waiting, 2);
    uint64_t here = push(lane, 3), there = push(copy, 3);
    ck_assert_uint_ne(here, there);
    lane_free(copy);
    end_lane(lane);
}
END_TEST

START_TEST(test_given_sequences_must_rise)
{
    struct lane *lane = new_lane();
    struct lane_new e = {.seq = 1000, .body = "x", .body_len = 1};
    ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_OK);
    ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_ORDER);
    e.seq = 999;
    ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_ORDER);
    e.seq = (uint64_t)LANE_SEQ_MAX + 1;
    ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_ORDER);
    e.seq = 900000;
    ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_OK);
    ck_lane(lane);
    ck_assert_uint_gt(push(lane, 1), 900000);
    end_lane(lane);
}
END_TEST

START_TEST(test_numbers_go_on_above_a_raised_last_one)
{
    struct lane *lane = new_lane();
    uint64_t seq = push(lane, 1);
    ck_assert(!lane_raise_last(lane, seq - 1));
    ck_assert(lane_raise_last(lane, 5000000));
    ck_assert_uint_gt(push(lane, 2), 5000000);
    struct lane_new e = {.seq = 4999999};
    ck_assert_int_eq(lane_push(lane, &e, NULL), LANE_ORDER);
    end_lane(lane);
}
END_TEST

START_TEST(test_hand_over_keeps_all_but_the_sequence)
{
    struct lane *from = new_lane(), *to = new_lane();
    struct lane_entry e;
    uint64_t seq = push_delayed(from, 1, 5000), there;
    lane_set_meta(from, seq, 9, "result", 6);
    lane_put_back(from, seq, true, 7000);
    ck_assert_int_eq(lane_hand_over(from, seq, to, &there), LANE_OK);
    ck_lane(from);
    ck_lane(to);
    ck_assert_uint_eq(lane_counts(from).length, 0);
    ck_assert_uint_eq(lane_counts(from).bytes, 0);
    ck_assert(lane_find(to, id(1), &e));
    ck_assert_uint_eq(e.revision, 9);
    ck_assert_uint_eq(e.attempts, 1);
    ck_assert_int_eq(e.until, 7000);
    ck_assert_int_eq(e.state, LANE_DELAYED);
    ck_assert_mem_eq(e.meta, "result", 6);
    ck_assert_mem_eq(e.body, "body", 4);
    push(from, 1);
    ck_assert_int_eq(lane_hand_over(from, lane_first_seq(from), to, &there), LANE_HELD);
    lane_free(from);
    end_lane(to);
}
END_TEST

START_TEST(test_siphash_is_siphash)
{
    /* As appendix A of Aumasson et al. has it, key 00..0f and message 00..0e, and no message at
     * all; values for 1-3 as other implementations of it give them. */
    uint8_t key[16], message[15];
    for (uint8_t i = 0; i < 16; i++)
        key[i] = i;
    for (uint8_t i = 0; i < 15; i++)
        message[i] = i;
    ck_assert_uint_eq(lane_hash(key, message, sizeof message), 0xd320d86d2a519956u);
    ck_assert_uint_eq(lane_hash(key, message, 0), 0xabac0158050fc4dcu);
}
END_TEST

Suite *push_suite(void)
{
    Suite *s = suite_create("push");
    TCase *t = tcase_create("push");
    tcase_set_timeout(t, 120); /* against hanging only */
    tcase_add_test(t, test_pushed_entry_is_found_by_sequence_and_id);
    tcase_add_test(t, test_an_id_is_stored_once);
    tcase_add_test(t, test_entries_without_id_are_all_stored);
    tcase_add_test(t, test_bounds_are_exact_and_count_what_is_leased_and_delayed);
    tcase_add_test(t, test_meta_is_replaced_by_a_higher_revision_only);
    tcase_add_test(t, test_sequences_never_come_back);
    tcase_add_test(t, test_copy_continues_with_numbers_of_its_own);
    tcase_add_test(t, test_given_sequences_must_rise);
    tcase_add_test(t, test_numbers_go_on_above_a_raised_last_one);
    tcase_add_test(t, test_hand_over_keeps_all_but_the_sequence);
    tcase_add_test(t, test_siphash_is_siphash);
    suite_add_tcase(s, t);
    return s;
}
