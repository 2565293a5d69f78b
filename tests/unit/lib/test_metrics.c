#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/metrics_series.h"
#include "lib/base/metrics_text.h"
#include "tests/unit/lib/tests.h"

static char *text(unsigned programs, bool openmetrics)
{
    struct buf b = {0};
    metrics_text(&b, programs, openmetrics ? METRICS_OPENMETRICS : METRICS_CLASSIC);
    return b.data;
}

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *p = text; (p = strstr(p, line)); p++)
        if ((p == text || p[-1] == '\n') && p[n] == '\n')
            return true;
    return false;
}

#define ck_line(text, line) ck_assert_msg(has_line(text, line), "%s is missing in:\n%s", line, text)

START_TEST(test_a_counter_in_both_forms)
{
    metric_add(relay_taken, 3);
    char *classic = text(METRIC_RELAY, false), *open = text(METRIC_RELAY, true);
    ck_line(classic, "# TYPE dovelane_relay_taken_total counter");
    ck_line(classic, "dovelane_relay_taken_total 3");
    ck_line(open, "# TYPE dovelane_relay_taken counter");
    ck_line(open, "dovelane_relay_taken_total 3");
    ck_assert_ptr_null(strstr(classic, "# EOF"));
    ck_assert_str_eq(open + strlen(open) - 6, "# EOF\n");
    free(classic);
    free(open);
}
END_TEST

START_TEST(test_a_program_shows_its_own)
{
    char *relay = text(METRIC_RELAY, false), *milter = text(METRIC_MILTER, false);
    ck_assert_ptr_null(strstr(relay, "dovelane_mails_diverted"));
    ck_assert_ptr_null(strstr(milter, "dovelane_relay_"));
    ck_assert_ptr_null(strstr(milter, "dovelane_proxy_"));
    ck_line(relay, "dovelane_node_losses_total 0");
    ck_line(milter, "dovelane_node_losses_total 0");
    free(relay);
    free(milter);
    ck_assert_uint_eq(metrics_program("dovelane-relay"), METRIC_RELAY);
    ck_assert_uint_eq(metrics_program("another"), METRIC_ALL);
}
END_TEST

START_TEST(test_the_socket_has_whole_numbers_without_labels)
{
    struct buf b = {0};
    metric_observe(metric_series(METRIC_lane_seconds, "hop", NULL), 1);
    metric_series_set(metric_series(METRIC_node_entries, NULL, NULL), 5);
    metrics_text(&b, METRIC_ALL, METRICS_ALONE);
    ck_line(b.data, "dovelane_relay_lanes 0");
    ck_line(b.data, "dovelane_mails_diverted_total 0");
    for (const char *line = b.data; *line; line = strchr(line, '\n') + 1) {
        size_t n = strcspn(line, "\n"), name = strcspn(line, " ");
        ck_assert_msg(*line == '#' || !memchr(line, '{', n), "%.*s", (int)n, line);
        ck_assert_msg(*line == '#' || name + 1 + strspn(line + name + 1, "-0123456789") == n,
                      "%.*s", (int)n, line);
    }
    buf_free(&b);
    char *all = text(METRIC_RELAY, false);
    ck_line(all, "dovelane_node_entries 5");
    free(all);
}
END_TEST

START_TEST(test_labels_are_escaped)
{
    metric_series_add(metric_series(METRIC_deliveries, "a\"b\\c\n\xc3\xa9", "sent"), 2);
    char *classic = text(METRIC_RELAY, false);
    ck_line(classic, "dovelane_deliveries_total{nexthop=\"a\\\"b\\\\c???\",result=\"sent\"} 2");
    free(classic);
}
END_TEST

START_TEST(test_a_histogram_is_cumulative)
{
    struct metric_series *s = metric_series(METRIC_store_seconds, "mx1", NULL);
    metric_observe(s, 0.0005);
    metric_observe(s, 0.001);
    metric_observe(s, 0.3);
    metric_observe(s, 100);
    metric_observe(s, -1);
    char *classic = text(METRIC_MILTER, true);
    ck_line(classic, "# UNIT dovelane_store_seconds seconds");
    ck_line(classic, "dovelane_store_seconds_bucket{node=\"mx1\",le=\"0.001\"} 3");
    ck_line(classic, "dovelane_store_seconds_bucket{node=\"mx1\",le=\"0.25\"} 3");
    ck_line(classic, "dovelane_store_seconds_bucket{node=\"mx1\",le=\"0.5\"} 4");
    ck_line(classic, "dovelane_store_seconds_bucket{node=\"mx1\",le=\"30.0\"} 4");
    ck_line(classic, "dovelane_store_seconds_bucket{node=\"mx1\",le=\"+Inf\"} 5");
    ck_line(classic, "dovelane_store_seconds_count{node=\"mx1\"} 5");
    ck_line(classic, "dovelane_store_seconds_sum{node=\"mx1\"} 100.301500");
    free(classic);
}
END_TEST

START_TEST(test_values_beyond_the_bound_are_other)
{
    char name[32];
    for (int i = 0; i < 2 * METRIC_VALUES_MOST; i++) {
        snprintf(name, sizeof name, "hop%d", i);
        metric_series_add(metric_series(METRIC_deferrals, name, "4.4.1"), 1);
        metric_series_add(metric_series(METRIC_deferrals, name, "4.2.0"), 1);
    }
    size_t n = 0;
    for (const struct metric_series *s = metric_series_first(METRIC_deferrals); s; s = s->next)
        n++;
    ck_assert_uint_eq(n, 2 * (METRIC_VALUES_MOST + 1));
    char *classic = text(METRIC_RELAY, false);
    ck_line(classic, "dovelane_deferrals_total{nexthop=\"hop99\",reason=\"4.4.1\"} 1");
    ck_line(classic, "dovelane_deferrals_total{nexthop=\"other\",reason=\"4.2.0\"} 100");
    free(classic);
}
END_TEST

START_TEST(test_a_gauge_that_is_summed_up)
{
    struct metric_series *a = metric_series(METRIC_lane_entries, "a", NULL);
    struct metric_series *b = metric_series(METRIC_lane_entries, "b", NULL);
    metric_gather_begin(METRIC_lane_entries);
    metric_gather(a, 2);
    metric_gather(a, 3);
    metric_gather(b, 1);
    metric_publish(METRIC_lane_entries);
    metric_gather_begin(METRIC_lane_entries);
    metric_gather(b, 7); /* and then it is given up */
    metric_gather_begin(METRIC_lane_entries);
    metric_gather(a, 4);
    char *before = text(METRIC_RELAY, false);
    ck_line(before, "dovelane_lane_entries{nexthop=\"a\"} 5");
    ck_line(before, "dovelane_lane_entries{nexthop=\"b\"} 1");
    metric_publish(METRIC_lane_entries);
    char *after = text(METRIC_RELAY, false);
    ck_line(after, "dovelane_lane_entries{nexthop=\"a\"} 4");
    ck_line(after, "dovelane_lane_entries{nexthop=\"b\"} 0");
    free(before);
    free(after);
}
END_TEST

START_TEST(test_seconds_never_and_unknown)
{
    struct metric_series *s = metric_series(METRIC_node_memory_full_seconds, "mx1", NULL);
    metric_series_set(s, METRIC_NEVER);
    char *never = text(METRIC_RELAY, false);
    ck_line(never, "dovelane_node_memory_full_seconds{node=\"mx1\"} +Inf");
    metric_series_set(s, 1500000);
    char *known = text(METRIC_RELAY, false);
    ck_line(known, "dovelane_node_memory_full_seconds{node=\"mx1\"} 1.500000");
    metric_series_set(s, METRIC_UNKNOWN);
    char *unknown = text(METRIC_RELAY, false);
    ck_assert_ptr_null(strstr(unknown, "full_seconds{"));
    free(never);
    free(known);
    free(unknown);
}
END_TEST

static void *count(void *arg)
{
    char name[32];
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "n%d", i % 50);
        metric_series_add(metric_series(METRIC_store_refusals, name, "FULL"), 1);
    }
    return NULL;
}

START_TEST(test_threads_count_and_read_at_one_time)
{
    pthread_t thread[4];
    long long sum = 0;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, count, NULL), 0);
    for (int i = 0; i < 50; i++)
        free(text(METRIC_MILTER, i % 2));
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (const struct metric_series *s = metric_series_first(METRIC_store_refusals); s; s = s->next)
        sum += atomic_load(&s->number);
    ck_assert_int_eq(sum, 80000);
}
END_TEST

/* What OpenMetrics and promtool ask of names, for all of them. */
START_TEST(test_declarations)
{
    for (int m = 0; m < METRICS; m++) {
        const struct metric_declaration *d = &metric_declarations[m];
        size_t n = strlen(d->name), u = strlen(d->unit);
        ck_assert_msg(d->name[strspn(d->name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0',
                      "%s", d->name);
        ck_assert_msg(!u || (n > u && !strcmp(d->name + n - u, d->unit)), "%s: unit", d->name);
        ck_assert_msg(*d->help && !strpbrk(d->help, "\\\n|"), "%s: help", d->name);
        ck_assert_msg(d->programs && !(d->programs & ~(unsigned)METRIC_ALL), "%s", d->name);
        ck_assert_msg(!d->alone || !*d->label[0], "%s", d->name);
        for (size_t i = 1; d->kind == METRIC_HISTOGRAM && !isinf(d->bounds[i - 1]); i++)
            ck_assert_msg(d->bounds[i] > d->bounds[i - 1], "%s: bounds", d->name);
        for (int k = 0; k < m; k++)
            ck_assert_str_ne(d->name, metric_declarations[k].name);
    }
}
END_TEST

TCase *metrics_tests(void)
{
    TCase *c = tcase_create("metrics");
    tcase_add_test(c, test_a_counter_in_both_forms);
    tcase_add_test(c, test_a_program_shows_its_own);
    tcase_add_test(c, test_the_socket_has_whole_numbers_without_labels);
    tcase_add_test(c, test_labels_are_escaped);
    tcase_add_test(c, test_a_histogram_is_cumulative);
    tcase_add_test(c, test_values_beyond_the_bound_are_other);
    tcase_add_test(c, test_a_gauge_that_is_summed_up);
    tcase_add_test(c, test_seconds_never_and_unknown);
    tcase_add_test(c, test_threads_count_and_read_at_one_time);
    tcase_add_test(c, test_declarations);
    return c;
}
