#include <check.h>
#include <string.h>

#include "lib/cluster/liveness.h"
#include "tests/unit/lib/tests.h"

static const char *const names[] = {"mx1", "mx2", "mx3"};
static const struct liveness_times times = {2., 15., 60.};

static struct liveness *listener(void)
{
    return liveness_open(names, 3, 0, times, 100.);
}

/* A server's answer with one beat. */
static void told(struct liveness *l, size_t server, const char *name, const char *incarnation,
                 uint64_t counter, const char *text, double now)
{
    struct liveness_news b = {name,         incarnation, text, strlen(name), strlen(incarnation),
                              strlen(text), counter};
    liveness_update(l, server, liveness_generation(l), &b, 1, now);
}

/* Heard for the first time: the first answer only tells what is old. */
static void hear(struct liveness *l, const char *name, uint64_t counter, const char *text,
                 double now)
{
    told(l, 0, name, "i", counter - 1, text, now);
    told(l, 0, name, "i", counter, text, now);
}

START_TEST(test_what_lay_there_before_we_listened_is_no_news)
{
    struct liveness *l = listener();
    told(l, 0, "mx2", "i", 7, "state=alive", 101.);
    ck_assert_int_eq(liveness_state(l, 1, 101.), STATE_UNKNOWN);
    told(l, 0, "mx2", "i", 7, "state=alive", 102.);
    ck_assert_int_eq(liveness_state(l, 1, 102.), STATE_UNKNOWN);
    told(l, 0, "mx2", "i", 8, "state=alive", 103.);
    ck_assert_int_eq(liveness_state(l, 1, 103.), STATE_ALIVE);
    liveness_free(l);
}
END_TEST

START_TEST(test_a_milter_believes_a_young_beat_at_once)
{
    struct liveness *l = liveness_open(names, 3, -1, times, 100.);
    struct liveness_news b[] = {{"mx1", "i", "state=alive", 3, 1, 11, 8, 0.4},
                                {"mx2", "i", "state=alive", 3, 1, 11, 8, 2.5}};
    liveness_update(l, 0, liveness_generation(l), b, 2, 101.);
    ck_assert_int_eq(liveness_state_for_placement(l, 0, 101.), STATE_ALIVE);
    ck_assert_int_eq(liveness_state_for_placement(l, 0, 102.7), STATE_SILENT);
    ck_assert_int_eq(liveness_state(l, 1, 101.), STATE_UNKNOWN);
    liveness_free(l);
}
END_TEST

START_TEST(test_a_node_that_is_far_away_is_suspected_later)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=alive", 101.);
    hear(l, "mx3", 8, "state=alive", 101.);
    liveness_suspect(l, 1, 4.);
    ck_assert_double_eq(liveness_suspect_most(l), 4.);
    ck_assert_int_eq(liveness_state_for_placement(l, 1, 104.9), STATE_ALIVE);
    ck_assert_int_eq(liveness_state_for_placement(l, 2, 104.9), STATE_SILENT);
    ck_assert_int_eq(liveness_state_for_placement(l, 1, 105.1), STATE_SILENT);
    ck_assert(!liveness_dead(l, 1, 115.9));
    ck_assert(liveness_dead(l, 1, 116.1)); /* as early as any other */
    liveness_add(l, "mx4", 120.);
    ck_assert_double_eq(liveness_suspect_after(l, 3), 2.);
    liveness_free(l);
}
END_TEST

START_TEST(test_silence)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=alive", 103.);
    ck_assert_int_eq(liveness_state_for_placement(l, 1, 104.9), STATE_ALIVE);
    ck_assert_int_eq(liveness_state_for_placement(l, 1, 105.1), STATE_SILENT);
    ck_assert_int_eq(liveness_state(l, 1, 105.1), STATE_ALIVE);
    ck_assert(!liveness_dead(l, 1, 117.9));
    ck_assert(liveness_dead(l, 1, 118.1));
    /* Never heard: unknown first, then silent. */
    ck_assert_int_eq(liveness_state(l, 2, 114.), STATE_UNKNOWN);
    ck_assert_int_eq(liveness_state(l, 2, 116.), STATE_SILENT);
    ck_assert(liveness_silence(l, 2, 116.) < 0.);
    liveness_free(l);
}
END_TEST

START_TEST(test_old_servers_tell_no_news)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=alive", 103.);
    told(l, 1, "mx2", "i", 5, "state=returning", 103.1);
    told(l, 1, "mx2", "i", 6, "state=returning", 103.2);
    ck_assert_int_eq(liveness_state(l, 1, 103.3), STATE_ALIVE);
    told(l, 1, "mx2", "i", 9, "state=ready", 103.4);
    ck_assert_int_eq(liveness_state(l, 1, 103.5), STATE_READY);
    liveness_free(l);
}
END_TEST

START_TEST(test_a_new_incarnation_counts_from_anywhere)
{
    struct liveness *l = listener();
    hear(l, "mx2", 800, "state=alive", 103.);
    told(l, 0, "mx2", "j", 1, "state=returning", 104.);
    ck_assert_int_eq(liveness_state(l, 1, 104.), STATE_RETURNING);
    liveness_free(l);
}
END_TEST

START_TEST(test_after_forgetting_only_new_beats_count)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=alive hears=mx1:alive+", 103.);
    unsigned before = liveness_generation(l);
    liveness_forget(l, 104.);
    ck_assert_int_eq(liveness_state(l, 1, 104.), STATE_UNKNOWN);
    ck_assert(!liveness_has_taken_over(l, 1, 0));
    /* Asked before, answered after. */
    struct liveness_news late = {"mx2", "i", "state=alive", 3, 1, 11, 9};
    liveness_update(l, 0, before, &late, 1, 104.1);
    ck_assert_int_eq(liveness_state(l, 1, 104.1), STATE_UNKNOWN);
    told(l, 0, "mx2", "i", 10, "state=alive", 104.2);
    ck_assert_int_eq(liveness_state(l, 1, 104.2), STATE_UNKNOWN);
    told(l, 0, "mx2", "i", 11, "state=alive", 104.7);
    ck_assert_int_eq(liveness_state(l, 1, 104.7), STATE_ALIVE);
    liveness_free(l);
}
END_TEST

START_TEST(test_nobody_is_dead_whom_another_hears)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=alive", 103.);
    hear(l, "mx3", 8, "state=alive hears=mx1:alive,mx2:alive", 110.);
    told(l, 0, "mx3", "i", 9, "state=alive hears=mx1:alive,mx2:alive", 118.);
    ck_assert(!liveness_dead(l, 1, 119.));
    told(l, 0, "mx3", "i", 10, "state=alive hears=mx1:alive,mx2:silent", 119.5);
    ck_assert(liveness_dead(l, 1, 120.));
    liveness_free(l);
}
END_TEST

START_TEST(test_returning_for_long_is_dead_but_ready_is_not)
{
    struct liveness *l = listener();
    hear(l, "mx2", 1, "state=alive", 100.5);
    for (int i = 2; i < 20; i++)
        told(l, 0, "mx2", "i", (uint64_t)i, "state=returning", 100. + i);
    ck_assert(liveness_dead(l, 1, 119.5));
    told(l, 0, "mx2", "i", 20, "state=ready", 120.);
    ck_assert(!liveness_dead(l, 1, 120.));
    liveness_free(l);
}
END_TEST

START_TEST(test_an_announced_absence_is_waited_for)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=leaving for=60", 103.);
    ck_assert(!liveness_dead(l, 1, 119.));
    ck_assert(!liveness_dead(l, 1, 177.));
    ck_assert(liveness_dead(l, 1, 179.));
    /* Back before its time, it returns: that may take dead_after, too. */
    hear(l, "mx2", 18, "state=leaving for=60", 203.);
    told(l, 0, "mx2", "j", 1, "state=returning", 240.);
    ck_assert(!liveness_dead(l, 1, 254.));
    told(l, 0, "mx2", "j", 2, "state=returning", 255.);
    ck_assert(liveness_dead(l, 1, 255.));
    /* For longer than may be announced, or for no time that can be: it counts as the longest,
     * and as none. */
    hear(l, "mx3", 8, "state=leaving for=1e9", 303.);
    ck_assert(!liveness_dead(l, 2, 377.));
    ck_assert(liveness_dead(l, 2, 379.));
    hear(l, "mx3", 18, "state=leaving for=nan", 403.);
    ck_assert(liveness_dead(l, 2, 419.));
    liveness_free(l);
}
END_TEST

START_TEST(test_an_absence_that_was_announced_before_we_listened)
{
    struct liveness *l = listener();
    struct liveness_news b = {"mx2", "i", "state=leaving for=60", 3, 1, 20, 8, 10.};
    liveness_update(l, 0, liveness_generation(l), &b, 1, 101.);
    ck_assert_int_eq(liveness_state(l, 1, 101.), STATE_UNKNOWN);
    ck_assert_int_eq(liveness_state(l, 1, 120.), STATE_SILENT);
    ck_assert(!liveness_dead(l, 1, 165.));
    ck_assert(liveness_dead(l, 1, 167.));
    /* It is heard again: that was another life. */
    told(l, 0, "mx2", "j", 1, "state=returning", 170.);
    told(l, 0, "mx2", "j", 2, "state=alive", 171.);
    ck_assert_int_eq(liveness_state(l, 1, 171.), STATE_ALIVE);
    liveness_free(l);
}
END_TEST

START_TEST(test_what_one_says_the_other_reads)
{
    struct liveness *l = listener(), *other = liveness_open(names, 3, 1, times, 100.);
    bool lists[] = {false, true, false};
    struct beat b = {.state = STATE_READY,
                     .since = 12.,
                     .run_id = "abc",
                     .config = "0123",
                     .done = 77,
                     .in_flight = 5,
                     .memory = 71,
                     .retains_most = true};
    struct buf text = {0};
    hear(l, "mx2", 8, "state=alive", 103.);
    beat_encode(&b, l, lists, 104., &text);
    ck_assert_str_eq(text.data, "state=ready since=12 run=abc config=0123 done=77 hand=5 memory=71 "
                                "retained=most hears=mx2:alive+,mx3:unknown");
    hear(other, "mx1", 2, text.data, 104.);
    ck_assert_int_eq(liveness_state(other, 0, 104.), STATE_READY);
    ck_assert(liveness_has_taken_over(other, 0, 1) && !liveness_has_taken_over(other, 0, 2));
    ck_assert_int_eq(liveness_reported_state(other, 0, 1), STATE_ALIVE);
    ck_assert_int_eq(liveness_reported_state(other, 0, 2), STATE_UNKNOWN);
    ck_assert_uint_eq(liveness_beat(other, 0)->done, 77);
    ck_assert_int_eq(liveness_beat(other, 0)->memory, 71);
    ck_assert(liveness_beat(other, 0)->retains_most);
    ck_assert_str_eq(liveness_beat(other, 0)->run_id, "abc");
    buf_free(&text);
    liveness_free(l);
    liveness_free(other);
}
END_TEST

START_TEST(test_memory_is_a_percentage_whatever_a_beat_says)
{
    static const struct {
        const char *text;
        int percent;
    } row[] = {{"memory=99999999999", 100}, {"memory=4294967297", 100},
               {"memory=101", 100},         {"memory=-5", 0},
               {"memory=much", 0},          {"memory=", 0}};
    struct liveness *l = listener();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        hear(l, "mx2", 8 + 2 * i, row[i].text, 103. + (double)i);
        ck_assert_int_eq(liveness_beat(l, 1)->memory, row[i].percent);
    }
    liveness_free(l);
}
END_TEST

START_TEST(test_garbage_says_returning)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "= state=zombie hears=:,mx1:+,nobody:alive,, for=x", 103.);
    ck_assert_int_eq(liveness_state(l, 1, 103.), STATE_RETURNING);
    liveness_free(l);
}
END_TEST

START_TEST(test_another_relay_of_our_name_is_noticed)
{
    struct liveness *l = listener();
    liveness_own(l, "we");
    told(l, 0, "mx1", "before", 7, "state=alive", 101.); /* our predecessor */
    told(l, 0, "mx1", "we", 1, "state=alive", 102.);
    told(l, 0, "mx1", "we", 2, "state=alive", 103.);
    ck_assert(!liveness_duplicate_name(l));
    told(l, 0, "mx1", "they", 9, "state=alive", 104.);
    told(l, 0, "mx1", "we", 3, "state=alive", 104.5);
    told(l, 0, "mx1", "they", 10, "state=alive", 105.);
    ck_assert(!liveness_duplicate_name(l));
    told(l, 0, "mx1", "they", 11, "state=alive", 105.5);
    ck_assert(liveness_duplicate_name(l));
    liveness_free(l);
}
END_TEST

/* Each server had a connection with our predecessor that was cut; when it is healed, the kernel
 * delivers what that one said last. So for each predecessor. */
START_TEST(test_what_our_predecessor_said_last_and_comes_late_is_no_other_relay)
{
    struct liveness *l = listener();
    liveness_own(l, "we");
    for (size_t server = 0; server < 3; server++) {
        told(l, server, "mx1", "before", 7, "state=alive", 101.);
        told(l, server, "mx1", "we", 1, "state=alive", 102.);
        told(l, server, "mx1", "before", 8, "state=alive", 103.);
        told(l, server, "mx1", "before", 9, "state=leaving for=60", 103.);
        told(l, server, "mx1", "we", 2, "state=alive", 104.);
        told(l, server, "mx1", "long before", 70, "state=alive", 105.);
        told(l, server, "mx1", "long before", 71, "state=leaving for=60", 105.);
    }
    ck_assert(!liveness_duplicate_name(l));
    liveness_free(l);
}
END_TEST

START_TEST(test_a_node_that_comes_later_is_unknown_first)
{
    struct liveness *l = listener();
    hear(l, "mx2", 8, "state=alive hears=mx1:alive,mx3:silent", 103.);
    ck_assert(liveness_knows(l, 1, 0) && liveness_knows(l, 1, 2) && !liveness_knows(l, 2, 1));
    told(l, 0, "mx4", "i", 5, "state=alive", 199.); /* nobody we know */
    liveness_add(l, "mx4", 200.);
    ck_assert(!liveness_knows(l, 1, 3));
    ck_assert_int_eq(liveness_state(l, 3, 214.), STATE_UNKNOWN);
    ck_assert_int_eq(liveness_state(l, 3, 216.), STATE_SILENT);
    ck_assert(!liveness_dead(l, 3, 214.) && liveness_dead(l, 3, 216.));
    /* What lies there from before is no news; nor in its own server, which was never asked. */
    told(l, 0, "mx4", "i", 6, "state=alive", 201.);
    told(l, 3, "mx4", "i", 6, "state=alive", 201.);
    ck_assert_int_eq(liveness_state(l, 3, 202.), STATE_UNKNOWN);
    told(l, 0, "mx4", "i", 7, "state=alive hears=mx1:alive", 203.);
    ck_assert_int_eq(liveness_state(l, 3, 203.), STATE_ALIVE);
    ck_assert_int_eq(liveness_reported_state(l, 3, 0), STATE_ALIVE);
    told(l, 0, "mx2", "i", 9, "state=alive hears=mx1:alive,mx3:silent,mx4:unknown", 204.);
    ck_assert(liveness_knows(l, 1, 3));
    liveness_free(l);
}
END_TEST

TCase *liveness_tests(void)
{
    TCase *t = tcase_create("liveness");
    tcase_add_test(t, test_what_lay_there_before_we_listened_is_no_news);
    tcase_add_test(t, test_a_milter_believes_a_young_beat_at_once);
    tcase_add_test(t, test_silence);
    tcase_add_test(t, test_a_node_that_is_far_away_is_suspected_later);
    tcase_add_test(t, test_memory_is_a_percentage_whatever_a_beat_says);
    tcase_add_test(t, test_old_servers_tell_no_news);
    tcase_add_test(t, test_a_new_incarnation_counts_from_anywhere);
    tcase_add_test(t, test_after_forgetting_only_new_beats_count);
    tcase_add_test(t, test_nobody_is_dead_whom_another_hears);
    tcase_add_test(t, test_returning_for_long_is_dead_but_ready_is_not);
    tcase_add_test(t, test_an_announced_absence_is_waited_for);
    tcase_add_test(t, test_an_absence_that_was_announced_before_we_listened);
    tcase_add_test(t, test_what_one_says_the_other_reads);
    tcase_add_test(t, test_garbage_says_returning);
    tcase_add_test(t, test_another_relay_of_our_name_is_noticed);
    tcase_add_test(t, test_what_our_predecessor_said_last_and_comes_late_is_no_other_relay);
    tcase_add_test(t, test_a_node_that_comes_later_is_unknown_first);
    return t;
}
