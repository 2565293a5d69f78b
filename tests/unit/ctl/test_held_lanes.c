/* The lanes of all nodes, each once. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "ctl/held_lanes.h"
#include "tests/unit/ctl/tests.h"

#define LANES 100000

static void add(struct held_lanes *all, unsigned i, const char *owners, long long entries)
{
    char lane[120];
    int len = snprintf(lane, sizeof lane, LANENAME_PREFIX "lmtp:[10.%u.%u.%u]:24|%s", i >> 16,
                       i >> 8 & 255, i & 255, owners);
    held_lanes_add(all, lane, (size_t)len, entries);
}

/* In a list each of these would be compared with all before it: 20,000,000,000 comparisons. */
START_TEST(test_each_of_very_many_lanes_is_there_once)
{
    struct held_lanes all = {0};
    for (unsigned i = 0; i < LANES; i++)
        add(&all, i, "mx1>mx2", i % 3);
    for (unsigned i = LANES; i-- > 0;)
        add(&all, i, "mx1>mx2", 2);
    size_t n = 0;
    for (const struct held_lane *h = all.first; h; h = h->next, n++) {
        ck_assert_int_eq(h->entries, 2);
        ck_assert_uint_eq(h->name.nowners, 2);
    }
    ck_assert_uint_eq(n, LANES);
    held_lanes_clear(&all);
    ck_assert_ptr_null(all.first);
}
END_TEST

START_TEST(test_lanes_are_told_apart)
{
    struct held_lanes all = {0};
    add(&all, 1, "mx1>mx2", 5);
    add(&all, 1, "mx1>mx3", 1);
    add(&all, 1, "mx1>mx2", 4);
    held_lanes_add(&all, "no lane", 7, 9);
    ck_assert_str_eq(all.first->name.owner[1], "mx3");
    ck_assert_int_eq(all.first->entries, 1);
    ck_assert_int_eq(all.first->next->entries, 5);
    ck_assert_ptr_null(all.first->next->next);
    held_lanes_clear(&all);
}
END_TEST

TCase *held_lanes_case(void)
{
    TCase *t = tcase_create("held lanes");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_each_of_very_many_lanes_is_there_once);
    tcase_add_test(t, test_lanes_are_told_apart);
    return t;
}
