#include "tests/unit/lib/tests.h"

#include <string.h>

#include "lib/ingress/depth.h"

#define A "dovelane:smtp:[a]:25"
#define HOP "smtp:[a]:25"

static struct depth *d;

static void setup(void)
{
    d = depth_new(3);
}

static void teardown(void)
{
    depth_free(d);
}

static void says(size_t node, const char *name, long long entries, double since)
{
    ck_assert(depth_lane(d, node, name, strlen(name), entries));
    if (since > 0.)
        depth_oldest(d, node, depth_lanes(d, node) - 1, since);
}

static struct depth_is is(const char *class, double now)
{
    struct depth_is out;
    ck_assert(depth_of(d, HOP, class, now, &out));
    return out;
}

static bool known(double now)
{
    struct depth_is out;
    return depth_of(d, HOP, NULL, now, &out);
}

START_TEST(nothing_is_known_before_a_node_was_heard)
{
    ck_assert(!known(10.));
    depth_end(d, 10.);
    ck_assert(!known(10.));
    depth_heard(d, 0, 10.);
    depth_end(d, 10.);
    ck_assert(known(10.));
    ck_assert_int_eq(is(NULL, 10.).entries, 0);
}
END_TEST

/* Of the copies of a lane the largest counts; lanes of other owners and next hops are others. */
START_TEST(each_entry_counts_once)
{
    says(0, A "|mx1>mx2", 7, 0.);
    says(1, A "|mx1>mx2", 9, 0.);
    says(1, A "|mx2>mx3", 20, 0.);
    says(2, A "|mx2>mx3", 20, 0.);
    says(2, "dovelane:smtp:[b]:25|mx3>mx1", 1000, 0.);
    for (size_t i = 0; i < 3; i++)
        depth_heard(d, i, 10.);
    depth_end(d, 10.);
    ck_assert_int_eq(is(NULL, 10.).entries, 29);
}
END_TEST

START_TEST(classes_count_apart_and_together)
{
    says(0, A "|mx1>mx2", 1, 5.);
    says(0, A "|mx1>mx2|+bulk", 10, 2.);
    says(0, A "|mx2>mx1|+bulk", 20, 4.);
    says(0, A "|mx1>mx2|+bulky", 100, 0.);
    depth_heard(d, 0, 10.);
    depth_end(d, 10.);
    ck_assert_int_eq(is("", 10.).entries, 1);
    ck_assert_int_eq(is("bulk", 10.).entries, 30);
    ck_assert_int_eq(is(NULL, 10.).entries, 131);
    ck_assert_double_eq_tol(is("", 11.).oldest, 6., .001);
    ck_assert_double_eq_tol(is("bulk", 11.).oldest, 9., .001);
    ck_assert_double_eq_tol(is(NULL, 11.).oldest, 9., .001);
    ck_assert_double_eq(is("bulky", 11.).oldest, 0.);
}
END_TEST

START_TEST(other_names_are_left_out)
{
    const char *const name[] = {"dovelane:replica:a>b", "dovelane:order", A, "other"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        ck_assert(!depth_lane(d, 0, name[i], strlen(name[i]), 5));
    ck_assert_int_eq(depth_lanes(d, 0), 0);
}
END_TEST

/* Until the nodes' answers have it. */
START_TEST(what_was_stored_since_counts_on_top)
{
    depth_storing(d, HOP, "");
    depth_storing(d, HOP, "");
    depth_heard(d, 0, 10.);
    depth_end(d, 10.);
    ck_assert_int_eq(is("", 10.).entries, 2);
    depth_over(d, HOP, "", true);
    depth_over(d, HOP, "", false); /* it went elsewhere */
    ck_assert_int_eq(is("", 10.).entries, 1);
    ck_assert_int_eq(is("", 10.).unlisted, 1);
    says(0, A "|mx1>mx2", 1, 0.);
    depth_heard(d, 0, 11.);
    depth_end(d, 11.);
    ck_assert_int_eq(is("", 11.).entries, 1);
    ck_assert_int_eq(is("", 11.).unlisted, 0);
    depth_heard(d, 0, 12.); /* delivered */
    depth_end(d, 12.);
    ck_assert_int_eq(is("", 12.).entries, 0);
}
END_TEST

/* A lost node takes nothing with it that another owner has, and an answer that breaks off leaves
 * the one before. */
START_TEST(what_a_node_said_counts_on_for_a_while)
{
    says(0, A "|mx1>mx2", 7, 0.);
    depth_heard(d, 0, 10.);
    says(1, A "|mx1>mx2", 7, 0.);
    depth_heard(d, 1, 10.);
    depth_end(d, 10.);
    says(0, A "|mx1>mx2", 1, 0.);
    depth_broken(d, 0);
    depth_end(d, 11.);
    ck_assert_int_eq(is(NULL, 11.).entries, 7);
    says(1, A "|mx1>mx2", 5, 0.);
    depth_heard(d, 1, 10. + DEPTH_KEEP + 1.);
    depth_end(d, 10. + DEPTH_KEEP + 1.);
    ck_assert_int_eq(is(NULL, 10. + DEPTH_KEEP + 1.).entries, 5);
    depth_end(d, 10. + 3 * DEPTH_KEEP);
    ck_assert(!known(10. + 3 * DEPTH_KEEP));
}
END_TEST

/* Of many lanes not all are asked for their age in each round. */
START_TEST(an_age_counts_on_until_it_is_measured_again)
{
    says(0, A "|mx1>mx2", 2, 3.);
    depth_heard(d, 0, 10.);
    depth_end(d, 10.);
    says(0, A "|mx1>mx2", 2, 0.);
    depth_heard(d, 0, 11.);
    depth_end(d, 11.);
    ck_assert_double_eq_tol(is(NULL, 12.).oldest, 9., .001);
    says(0, A "|mx1>mx2", 1, 11.);
    depth_heard(d, 0, 12.);
    depth_end(d, 12.);
    ck_assert_double_eq_tol(is(NULL, 12.).oldest, 1., .001);
    depth_heard(d, 0, 13.);
    depth_end(d, 13.);
    ck_assert_double_eq(is(NULL, 13.).oldest, 0.);
}
END_TEST

TCase *depth_tests(void)
{
    TCase *t = tcase_create("depth");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_is_known_before_a_node_was_heard);
    tcase_add_test(t, each_entry_counts_once);
    tcase_add_test(t, classes_count_apart_and_together);
    tcase_add_test(t, other_names_are_left_out);
    tcase_add_test(t, what_was_stored_since_counts_on_top);
    tcase_add_test(t, what_a_node_said_counts_on_for_a_while);
    tcase_add_test(t, an_age_counts_on_until_it_is_measured_again);
    return t;
}
