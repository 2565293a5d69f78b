#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/row.h"
#include "ctl/top_rows.h"
#include "tests/unit/ctl/tests.h"

#define ONE "dovelane:smtp:[a]:25|mx1>mx2"
#define TWO "dovelane:smtp:[a]:25|mx2>mx1"
#define THREE "dovelane:lmtp:[b]:24|mx1"
#define REPLICAS "dovelane:replica:site-a>site-b:bulk"

static struct config *config;
static struct top *top;

static void start(void)
{
    static const char text[] = "copies = 2\nreplicate_namespaces = { \"inbox\" }\n"
                               "node mx1 { redis = \"127.0.0.1:1\" }\n"
                               "node mx2 { redis = \"127.0.0.1:2\" }\n"
                               "replica site-a { id = 1 redis = \"127.0.0.1:1\" }\n"
                               "replica site-b { id = 2 redis = \"127.0.0.1:3\" }\n";
    char path[] = "/tmp/test-ctl-XXXXXX", *error = NULL;
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(fd);
    config = config_read(path, &error);
    unlink(path);
    ck_assert_msg(config != NULL, "%s", error ? error : "");
    top = top_new(config);
}

static void end(void)
{
    top_free(top);
    config_free(config);
}

/* One round of a server: lanes, and what their details say. */
static void round_of(size_t server, const struct top_lane *lane, size_t n, double now)
{
    top_reached(top, server, NULL);
    top_said(top, server, &(struct top_server){.entries = 1, .most = 100, .used = 50}, now);
    top_lanes_begin(top, server);
    for (size_t i = 0; i < n; i++)
        top_lane(top, server, &lane[i]);
    top_lanes_end(top, server, now);
    for (size_t i = 0; i < n; i++)
        top_lane_detail(top, server, &lane[i], now);
}

START_TEST(a_server_of_replicas_alone_is_asked_too)
{
    ck_assert_uint_eq(top_servers(top), 3);
    ck_assert_str_eq(top_server(top, 2, 1.).name, "site-b");
    ck_assert(!top_server(top, 2, 1.).node && top_server(top, 0, 1.).node);
    ck_assert_str_eq(top_server_link(top, 1).address, "127.0.0.1:2");
}
END_TEST

START_TEST(a_mail_counts_once_whoever_has_it)
{
    round_of(0, (struct top_lane[]){{ONE, 5, 500, 6, 10}}, 1, 1.);
    round_of(1, (struct top_lane[]){{ONE, 4, 400, 5, 9}, {TWO, 1, 10, 2, 3}}, 2, 1.);
    struct top_lanes_view v = top_lanes(top, false, TOP_BY_DEPTH, 1.5);
    ck_assert_uint_eq(v.n, 2);
    ck_assert_str_eq(v.v[0].name, ONE);
    ck_assert_int_eq(v.v[0].length, 5);
    ck_assert_uint_eq(v.v[0].copies, 2);
    ck_assert_double_eq_tol(v.v[0].age, 10.5, 1e-9);
    ck_assert_str_eq(v.v[0].destination, "smtp:[a]:25");
    top_lanes_free(&v);
    struct top_hops_view h = top_hops(top, TOP_BY_DEPTH, 1.5);
    ck_assert_uint_eq(h.n, 1);
    ck_assert_int_eq(h.v[0].length, 6);
    top_hops_free(&h);
}
END_TEST

START_TEST(rates_come_of_two_words)
{
    round_of(0, (struct top_lane[]){{ONE, 10, 1, 11, 1}}, 1, 1.);
    struct top_lanes_view v = top_lanes(top, false, TOP_BY_DEPTH, 1.);
    ck_assert(v.v[0].in < 0 && v.v[0].out < 0);
    top_lanes_free(&v);
    round_of(0, (struct top_lane[]){{ONE, 10, 1, 12, 1}}, 1, 1.1); /* too soon to say */
    round_of(0, (struct top_lane[]){{ONE, 4, 1, 15, 1}}, 1, 3.);   /* 4 came, 10 went */
    v = top_lanes(top, false, TOP_BY_DEPTH, 3.);
    ck_assert_double_eq_tol(v.v[0].in, 2., 1e-9);
    ck_assert_double_eq_tol(v.v[0].out, 5., 1e-9);
    top_lanes_free(&v);
    round_of(0, (struct top_lane[]){{ONE, 1, 1, 2, 1}}, 1, 4.); /* emptied, and begun again */
    v = top_lanes(top, false, TOP_BY_DEPTH, 4.);
    ck_assert_double_eq_tol(v.v[0].in, 2., 1e-9);
    top_lanes_free(&v);
}
END_TEST

START_TEST(lanes_that_are_gone_are_not_shown_nor_those_of_who_is_away)
{
    round_of(0, (struct top_lane[]){{ONE, 1, 1, 2, 1}, {THREE, 1, 1, 2, 1}}, 2, 1.);
    round_of(0, (struct top_lane[]){{THREE, 1, 1, 2, 1}}, 1, 2.);
    struct top_lanes_view v = top_lanes(top, false, TOP_BY_NAME, 2.);
    ck_assert_uint_eq(v.n, 1);
    ck_assert_str_eq(v.v[0].name, THREE);
    top_lanes_free(&v);
    v = top_lanes(top, false, TOP_BY_NAME, 2. + TOP_FRESH);
    ck_assert_uint_eq(v.n, 0);
    top_lanes_free(&v);
    ck_assert(!top_server(top, 0, 2. + TOP_FRESH).fresh);
    ck_assert_double_eq_tol(top_server(top, 0, 7.).silent, 5., 1e-9);
}
END_TEST

START_TEST(orders)
{
    static const char *const first[] = {ONE, THREE, THREE, THREE};
    round_of(0, (struct top_lane[]){{ONE, 9, 1, 10, 1}, {THREE, 2, 1, 10, 5}}, 2, 1.);
    round_of(0, (struct top_lane[]){{ONE, 9, 1, 10, 2}, {THREE, 2, 1, 30, 6}}, 2, 2.);
    for (int by = TOP_BY_DEPTH; by <= TOP_BY_NAME; by++) {
        struct top_lanes_view v = top_lanes(top, false, (enum top_sort)by, 2.);
        ck_assert_str_eq(v.v[0].name, first[by]);
        top_lanes_free(&v);
    }
}
END_TEST

START_TEST(replicas_have_a_list_of_their_own)
{
    round_of(0, (struct top_lane[]){{REPLICAS, 3, 10, 4, 60}}, 1, 1.);
    struct top_lanes_view v = top_lanes(top, true, TOP_BY_DEPTH, 1.);
    ck_assert_uint_eq(v.n, 1);
    ck_assert_str_eq(v.v[0].from, "site-a");
    ck_assert_str_eq(v.v[0].to, "site-b");
    ck_assert(v.v[0].bulk);
    top_lanes_free(&v);
    v = top_lanes(top, false, TOP_BY_DEPTH, 1.);
    ck_assert_uint_eq(v.n, 0);
    top_lanes_free(&v);
}
END_TEST

START_TEST(a_next_hop_that_is_away_is_there_without_mail)
{
    round_of(0, NULL, 0, 1.);
    top_away_begin(top, 0);
    top_away(top, 0, "smtp:[c]:25", "Connection refused");
    json_t *rows = top_rows(top, TOP_BY_DEPTH, 0, 1.);
    const json_t *hop = row_item(rows, "next_hops", 0);
    ck_assert_str_eq(row_get_text(hop, "error"), "Connection refused");
    char *line = top_line(TOP_HOPS, hop);
    ck_assert(strstr(line, "smtp:[c]:25  Connection refused (mx1)") != NULL);
    free(line);
    json_decref(rows);
}
END_TEST

START_TEST(beats_give_states_and_rates)
{
    struct liveness_news news = {
        "mx1", "i", "state=alive since=1 run=r config=c done=10 hand=2 hears=", 3, 1, 0, 1, 0.2};
    news.text_len = strlen(news.text);
    round_of(0, NULL, 0, 1.);
    top_beats(top, 0, &news, 1, 1.);
    news.counter = 2;
    news.text = "state=alive since=2 run=r config=c done=30 hand=1 hears=";
    news.text_len = strlen(news.text);
    top_beats(top, 0, &news, 1, 3.);
    struct top_server_view v = top_server(top, 0, 3.);
    ck_assert(v.has_beat && v.state == STATE_ALIVE);
    ck_assert_uint_eq(v.done, 30);
    ck_assert_double_eq_tol(v.delivered, 10., 1e-9);
    json_t *rows = top_rows(top, TOP_BY_DEPTH, 0, 3.);
    char *line = top_line(TOP_NODES, row_item(rows, "nodes", 0));
    ck_assert(!strncmp(line, "mx1            alive ", 21));
    free(line);
    json_decref(rows);
}
END_TEST

TCase *top_model_case(void)
{
    TCase *t = tcase_create("top_model");
    tcase_add_checked_fixture(t, start, end);
    tcase_add_test(t, a_server_of_replicas_alone_is_asked_too);
    tcase_add_test(t, a_mail_counts_once_whoever_has_it);
    tcase_add_test(t, rates_come_of_two_words);
    tcase_add_test(t, lanes_that_are_gone_are_not_shown_nor_those_of_who_is_away);
    tcase_add_test(t, orders);
    tcase_add_test(t, replicas_have_a_list_of_their_own);
    tcase_add_test(t, a_next_hop_that_is_away_is_there_without_mail);
    tcase_add_test(t, beats_give_states_and_rates);
    return t;
}
