#include <check.h>
#include <string.h>

#include "lib/cluster/nearness.h"
#include "lib/cluster/placement.h"
#include "tests/unit/lib/tests.h"

/* Nodes are letters, domains are digits. */
static char together[16]; /* "ab": no mail may be on both */
static unsigned long asked;

static bool fit(const void *arg, const size_t *node, size_t n, bool all)
{
    (void)arg, (void)all;
    asked++;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && *together; k++)
            if ((char)('a' + node[i]) == together[0] && (char)('a' + node[k]) == together[1])
                return false;
    return true;
}

/* The candidates are a, b, c ... in this order; their domains: "112". */
static const char *chosen(const char *domains, size_t copies, size_t least)
{
    static char out[16];
    size_t node[512], domain[512], found[PLACEMENT_COPIES_MOST], n = strlen(domains);
    for (size_t i = 0; i < n; i++) {
        node[i] = i;
        domain[i] = (size_t)domains[i];
    }
    struct placement p = {n, node, domain, copies, least, fit, NULL};
    if (!placement_choose(&p, found))
        return "none";
    for (size_t i = 0; i < copies; i++)
        out[i] = (char)('a' + found[i]);
    out[copies] = '\0';
    return out;
}

START_TEST(test_copies_are_in_as_many_domains_as_there_can_be)
{
    static const struct {
        const char *domains;
        size_t copies, least;
        const char *wanted;
    } row[] = {
        {"123", 2, 1, "ab"},    {"112", 2, 1, "ac"},    {"111", 2, 1, "ab"},
        {"111", 2, 2, "none"},  {"1122", 3, 1, "abc"},  {"1122", 3, 2, "abc"},
        {"1112", 3, 2, "abd"},  {"1122", 3, 3, "none"}, {"11223", 3, 1, "ace"},
        {"11123", 3, 3, "ade"}, {"1", 1, 1, "a"},       {"1", 2, 1, "none"},
        {"", 1, 1, "none"},     {"12", 2, 3, "none"},   {"12345678", 8, 8, "abcdefgh"},
    };
    *together = '\0';
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        ck_assert_str_eq(chosen(row[i].domains, row[i].copies, row[i].least), row[i].wanted);
}
END_TEST

START_TEST(test_who_does_not_fit_is_passed_over)
{
    strcpy(together, "ac");
    ck_assert_str_eq(chosen("112", 2, 1), "bc"); /* still two domains */
    ck_assert_str_eq(chosen("12", 2, 2), "ab");
    strcpy(together, "ab");
    ck_assert_str_eq(chosen("12", 2, 2), "none");
    ck_assert_str_eq(chosen("122", 2, 2), "ac");
    ck_assert_str_eq(chosen("112", 2, 1), "ac");
    /* Two domains cannot be had together: one is enough where it is not forbidden. */
    strcpy(together, "ba");
    ck_assert_str_eq(chosen("12", 1, 1), "a");
    *together = '\0';
}
END_TEST

static bool never(const void *arg, const size_t *node, size_t n, bool all)
{
    (void)arg, (void)node, (void)n;
    asked++;
    return !all;
}

START_TEST(test_a_search_without_an_end_ends)
{
    size_t node[256], domain[256], found[PLACEMENT_COPIES_MOST];
    for (size_t i = 0; i < 256; i++)
        node[i] = domain[i] = i;
    struct placement p = {256, node, domain, 8, 1, never, NULL};
    asked = 0;
    ck_assert(!placement_choose(&p, found));
    ck_assert_uint_le(asked, PLACEMENT_STEPS * 2);
    /* One domain, where all could be in different ones: found at once. */
    memset(domain, 0, sizeof domain);
    p.fit = fit;
    asked = 0;
    ck_assert(placement_choose(&p, found));
    ck_assert_uint_lt(asked, 100);
}
END_TEST

START_TEST(test_the_shortest_time_counts)
{
    struct nearness n = {0};
    ck_assert_int_eq(nearness_class(&n), NEARNESS_UNKNOWN);
    ck_assert(nearness_rtt(&n) < 0.);
    nearness_add(&n, .1);
    nearness_add(&n, .02);
    int there = nearness_class(&n);
    /* Busy, for less than all samples. */
    for (int i = 1; i < NEARNESS_SAMPLES; i++)
        nearness_add(&n, 3.);
    ck_assert_int_eq(nearness_class(&n), there);
    nearness_add(&n, 3.);
    ck_assert_int_gt(nearness_class(&n), there);
    n = (struct nearness){0};
    nearness_add(&n, 1e9);
    nearness_add(&n, -1.);
    ck_assert_int_eq(nearness_class(&n), 0);
}
END_TEST

START_TEST(test_a_little_more_or_less_changes_nothing)
{
    for (double rtt = .0015; rtt < 2.; rtt *= 1.07) {
        struct nearness n = {0};
        nearness_add(&n, rtt);
        int rank = nearness_class(&n);
        for (int i = 0; i < 5 * NEARNESS_SAMPLES; i++) {
            nearness_add(&n, rtt * (i / NEARNESS_SAMPLES % 2 ? 1.1 : .95));
            ck_assert_int_eq(nearness_class(&n), rank);
        }
        for (int i = 0; i < NEARNESS_SAMPLES; i++)
            nearness_add(&n, rtt * 3.);
        ck_assert_int_gt(nearness_class(&n), rank);
        for (int i = 0; i < NEARNESS_SAMPLES; i++)
            nearness_add(&n, rtt);
        ck_assert_int_eq(nearness_class(&n), rank);
    }
}
END_TEST

START_TEST(test_a_time_follows_the_way_within_its_bounds)
{
    const struct far_time time = {.4, 2.5, 2., 0.}, named = {.4, .4, 2., 0.};
    struct nearness n = {0};
    ck_assert_double_eq(nearness_time(&n, &time), .4); /* not known */
    ck_assert_double_eq(far_time_at(&time, -1.), .4);
    ck_assert_double_eq(far_time_at(&time, .01), .4);
    for (double rtt = .21; rtt < 1.1; rtt *= 1.03) {
        double there = far_time_at(&time, rtt);
        ck_assert_msg(there >= 2. * rtt && there <= 3. * rtt, "%f at %f", there, rtt);
    }
    ck_assert_double_eq(far_time_at(&time, 60.), 2.5);
    ck_assert_double_eq(far_time_at(&named, 60.), .4);
    /* What is a little longer, or shorter, changes nothing. */
    for (int i = 0; i < NEARNESS_SAMPLES; i++)
        nearness_add(&n, .4);
    double before = nearness_time(&n, &time);
    for (int i = 0; i < 2 * NEARNESS_SAMPLES; i++)
        nearness_add(&n, .5);
    ck_assert_double_eq(nearness_time(&n, &time), before);
}
END_TEST

TCase *placement_tests(void)
{
    TCase *t = tcase_create("placement");
    tcase_add_test(t, test_copies_are_in_as_many_domains_as_there_can_be);
    tcase_add_test(t, test_who_does_not_fit_is_passed_over);
    tcase_add_test(t, test_a_search_without_an_end_ends);
    tcase_add_test(t, test_the_shortest_time_counts);
    tcase_add_test(t, test_a_little_more_or_less_changes_nothing);
    tcase_add_test(t, test_a_time_follows_the_way_within_its_bounds);
    return t;
}
