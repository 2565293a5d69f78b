/* A small group of nodes whose beats, links and copies the test holds: the stories of
 * tests/model, with durations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/cluster/takeover_rules.h"
#include "tests/unit/relay/tests.h"

#define N 3
#define STEP 0.5

static const char *const names[] = {"mx1", "mx2", "mx3"};
static const struct liveness_times heard_times = {2., 15., 60.};
static const struct role_times role_times = {.beat = STEP,
                                             .dead_after = 15.,
                                             .settle = 5.,
                                             .handover_wait = 60.,
                                             .alone_wait = 300.,
                                             .restless_most = 600.};

struct node {
    bool up; /* relay and server */
    bool whole;
    bool checked;
    size_t in_flight;
    bool busy[N];
    struct liveness *l;
    struct role *d;
    uint64_t counter;
    unsigned lives;
    enum role_kind last[64];
    size_t nevents;
};

static struct group {
    size_t n;
    double now;
    struct node node[N];
    bool cut[N][N]; /* neither may connect to the other */
} g;

static void start(size_t i)
{
    struct node *x = &g.node[i];
    role_free(x->d);
    liveness_free(x->l);
    x->l = liveness_open(names, g.n, (int)i, heard_times, g.now);
    x->d = role_open(x->l, g.n, i, role_times, g.now);
    x->up = true;
    x->lives++;
    x->counter = 0;
    x->checked = false;
    x->in_flight = 0;
    memset(x->busy, 0, sizeof x->busy);
}

static void group(size_t n)
{
    for (size_t i = 0; i < N; i++) {
        role_free(g.node[i].d);
        liveness_free(g.node[i].l);
    }
    memset(&g, 0, sizeof g);
    g.n = n;
    for (size_t i = 0; i < n; i++)
        start(i);
}

static bool linked(size_t i, size_t j)
{
    return g.node[i].up && g.node[j].up && !g.cut[i][j] && !g.cut[j][i];
}

static void say(size_t i)
{
    struct node *x = &g.node[i];
    struct beat b = {.state = role_state(x->d)};
    struct buf text = {0};
    char incarnation[24];
    beat_encode(&b, x->l, role_taken(x->d), g.now, &text);
    x->counter++;
    snprintf(incarnation, sizeof incarnation, "%u", x->lives);
    for (size_t j = 0; j < g.n; j++) {
        if (j == i || !linked(i, j))
            continue;
        struct liveness *l = g.node[j].l;
        struct liveness_news news = {names[i], incarnation, text.data, 3, strlen(incarnation),
                                     text.len, x->counter};
        liveness_update(l, i, liveness_generation(l), &news, 1, g.now);
    }
    buf_free(&text);
}

static void look(size_t i)
{
    struct node *x = &g.node[i];
    int other[N];
    enum reach reach[N];
    bool dead[N] = {0};
    struct role_set set = {"all", 0, other, reach, x->whole, x->checked};
    bool witness = false, all = true;
    for (size_t j = 0; j < g.n; j++)
        if (j != i) {
            other[set.n] = (int)j;
            reach[set.n++] = !linked(i, j)     ? REACH_NOT
                             : g.node[j].whole ? REACH_WHOLE
                                               : REACH_NOT_WHOLE;
            witness |= linked(i, j) && g.node[j].whole;
            all &= linked(i, j);
        }
    /* The comparison takes no time here: with a whole owner, or with all. */
    if (role_state(x->d) == STATE_RETURNING && role_settled(x->d, g.now) &&
        (witness || (!x->whole && all)))
        x->whole = x->checked = set.whole = set.checked = true;
    struct role_view v = {.now = g.now,
                          .own_up = true,
                          .in_flight = x->in_flight,
                          .busy = x->busy,
                          .called_dead = dead,
                          .nsets = 1,
                          .set = &set};
    for (struct role_event e; (e = role_next(x->d, &v)).kind != ROLE_SAME;) {
        if (x->nevents < 64)
            x->last[x->nevents++] = e.kind;
        if (e.kind == ROLE_RETURNS)
            x->checked = set.checked = false;
    }
}

static void pass(double seconds)
{
    for (double end = g.now + seconds; g.now < end; g.now += STEP)
        for (size_t i = 0; i < g.n; i++)
            if (g.node[i].up) {
                look(i);
                say(i);
            }
}

static enum node_state role(size_t i)
{
    return role_state(g.node[i].d);
}

static bool took(size_t i, size_t j)
{
    return role_taken(g.node[i].d)[j];
}

static bool serves_for(size_t i, size_t j)
{
    bool dead[N] = {0};
    int before = (int)j;
    return g.node[i].up && role_serves(g.node[i].d, &before, 1, dead, g.now);
}

static bool serves(size_t i)
{
    bool dead[N] = {0};
    return g.node[i].up && role_serves(g.node[i].d, NULL, 0, dead, g.now);
}

START_TEST(test_all_start_at_once)
{
    group(3);
    pass(5.);
    for (size_t i = 0; i < 3; i++)
        ck_assert(!serves(i));
    pass(5.);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(role(i), STATE_ALIVE);
        ck_assert(g.node[i].whole && serves(i) && !serves_for(i, (i + 1) % 3));
    }
}
END_TEST

START_TEST(test_a_dead_node_is_taken_over_after_dead_after_and_not_before)
{
    group(3);
    pass(20.);
    g.node[0].up = false;
    pass(14.);
    ck_assert(!took(1, 0));
    pass(4.);
    ck_assert(took(1, 0) && took(2, 0) && serves_for(1, 0));
    ck_assert_int_eq(role(1), STATE_ALIVE);
}
END_TEST

START_TEST(test_it_comes_back_and_nobody_drains_for_it_any_more)
{
    group(3);
    pass(20.);
    g.node[0].up = g.node[0].whole = false;
    pass(30.);
    g.node[1].busy[0] = true; /* mx2 has a mail of it in flight */
    start(0);
    pass(3.);
    ck_assert(serves_for(1, 0) && !serves(0)); /* meanwhile the taker goes on */
    pass(7.);
    ck_assert_int_eq(role(0), STATE_READY);
    ck_assert(took(1, 0) && !serves_for(1, 0) && !serves(0));
    g.node[1].busy[0] = false;
    pass(3.);
    ck_assert_int_eq(role(0), STATE_ALIVE);
    ck_assert(!took(1, 0) && serves(0) && !serves_for(1, 0));
}
END_TEST

START_TEST(test_never_two_drain_the_same)
{
    group(2);
    pass(20.);
    for (unsigned round = 0; round < 12; round++) {
        srand(round);
        for (double end = g.now + 60.; g.now < end;) {
            size_t i = (size_t)rand() % 2;
            if (g.node[i].up && g.node[!i].up && rand() % 20 == 0)
                g.node[i].up = g.node[i].whole = false;
            else if (!g.node[i].up && rand() % 30 == 0)
                start(i);
            pass(STEP);
            ck_assert(!(serves(0) && serves_for(1, 0)));
            ck_assert(!(serves(1) && serves_for(0, 1)));
        }
        for (size_t i = 0; i < 2; i++)
            if (!g.node[i].up)
                start(i);
        pass(1400.);
        ck_assert(serves(0) && serves(1) && g.node[0].whole && g.node[1].whole);
    }
}
END_TEST

START_TEST(test_a_cut_between_two_that_a_third_hears_kills_nobody)
{
    group(3);
    pass(20.);
    g.cut[0][1] = true;
    pass(60.);
    for (size_t i = 0; i < 3; i++)
        ck_assert(role(i) == STATE_ALIVE && !took(i, (i + 1) % 3) && !took(i, (i + 2) % 3));
}
END_TEST

START_TEST(test_who_is_alone_waits_before_it_takes_over)
{
    group(3);
    pass(20.);
    g.cut[0][1] = g.cut[0][2] = true;
    pass(30.);
    ck_assert(took(1, 0) && !took(0, 1));
    pass(300.);
    ck_assert(took(0, 1));
    /* Healed: both sides find themselves taken over, compare, and go on. */
    g.cut[0][1] = g.cut[0][2] = false;
    pass(60.);
    for (size_t i = 0; i < 3; i++)
        ck_assert(role(i) == STATE_ALIVE && !took(i, (i + 1) % 3) && !took(i, (i + 2) % 3));
}
END_TEST

START_TEST(test_a_node_that_lost_what_it_held_returns)
{
    group(2);
    pass(20.);
    g.node[0].whole = false;
    pass(1.);
    ck_assert_int_eq(role(0), STATE_RETURNING);
    ck_assert(!serves(0));
    pass(30.);
    ck_assert(serves(0) && g.node[0].whole);
}
END_TEST

START_TEST(test_nobody_is_whole_by_time_when_the_other_is_away)
{
    group(2);
    pass(20.);
    g.node[1].up = false;
    pass(1.);
    g.node[0].whole = false;
    start(0);
    pass(250.);
    ck_assert_int_eq(role(0), STATE_RETURNING);
    pass(100.);
    ck_assert(role(0) == STATE_ALIVE && !g.node[0].whole); /* it may serve what it has */
    start(1);
    pass(2.);
    ck_assert_int_eq(role(0), STATE_RETURNING); /* and becomes whole as soon as somebody is there */
    pass(60.);
    ck_assert(role(0) == STATE_ALIVE && g.node[0].whole);
}
END_TEST

START_TEST(test_flapping_is_damped)
{
    group(2);
    pass(20.);
    ck_assert(role_damped(g.node[0].d) <= 0.);
    for (unsigned i = 0; i < 3; i++) {
        role_return(g.node[0].d, "test", g.now);
        g.node[0].checked = false;
        pass(20. + 30. * i);
        ck_assert_int_eq(role(0), STATE_ALIVE + (role_damped(g.node[0].d) > 20. + 30. * i ? 1 : 0));
    }
    ck_assert(role_damped(g.node[0].d) >= 60.);
    pass(700.);
    role_return(g.node[0].d, "test", g.now);
    ck_assert(role_damped(g.node[0].d) <= 0.);
}
END_TEST

START_TEST(test_a_planned_stop_is_waited_for)
{
    group(2);
    pass(20.);
    role_leave(g.node[0].d, g.now);
    struct liveness_news news = {"mx1", "1", "state=leaving for=60", 3,
                                 1,     20,  g.node[0].counter + 1};
    liveness_update(g.node[1].l, 0, liveness_generation(g.node[1].l), &news, 1, g.now);
    g.node[0].up = false;
    pass(70.);
    ck_assert(!took(1, 0));
    pass(310.);
    ck_assert(took(1, 0));
}
END_TEST

START_TEST(test_handover_wait_ends_the_wait)
{
    group(2);
    pass(20.);
    g.node[0].up = g.node[0].whole = false;
    pass(330.);
    ck_assert(took(1, 0));
    g.node[1].busy[0] = true;
    start(0);
    pass(60.);
    ck_assert_int_eq(role(0), STATE_READY);
    size_t before = g.node[0].nevents;
    pass(10.);
    /* Alive; and back to where it was, as long as the taker still says that it took it over. */
    ck_assert_uint_ge(g.node[0].nevents, before + 2);
    ck_assert_int_eq(g.node[0].last[before], ROLE_ALIVE);
    ck_assert_int_eq(g.node[0].last[before + 1], ROLE_RETURNS);
}
END_TEST

START_TEST(test_what_the_admin_calls_dead_is_dead_at_once)
{
    bool dead[N] = {false, true, false}, none[N] = {0};
    int other[] = {1};
    enum reach reach[] = {REACH_NOT};
    struct liveness *l = liveness_open(names, 2, 0, heard_times, 0.);
    struct role *d = role_open(l, 2, 0, role_times, 0.);
    struct role_set set = {"mx1+mx2", 1, other, reach, true, false};
    struct role_view v = {
        .own_up = true, .busy = none, .called_dead = dead, .nsets = 1, .set = &set};
    for (v.now = 0.; v.now < 10.; v.now += STEP)
        while (role_next(d, &v).kind != ROLE_SAME)
            ;
    ck_assert_int_eq(role_state(d), STATE_ALIVE);
    ck_assert(role_taken(d)[1] && role_serves(d, other, 1, dead, v.now) &&
              role_serves(d, NULL, 0, dead, v.now));
    bool ourselves[N] = {true, false, false};
    ck_assert(!role_serves(d, NULL, 0, ourselves, v.now));
    role_free(d);
    liveness_free(l);
}
END_TEST

TCase *role_tests(void)
{
    TCase *t = tcase_create("duty");
    tcase_add_test(t, test_all_start_at_once);
    tcase_add_test(t, test_a_dead_node_is_taken_over_after_dead_after_and_not_before);
    tcase_add_test(t, test_it_comes_back_and_nobody_drains_for_it_any_more);
    tcase_add_test(t, test_never_two_drain_the_same);
    tcase_add_test(t, test_a_cut_between_two_that_a_third_hears_kills_nobody);
    tcase_add_test(t, test_who_is_alone_waits_before_it_takes_over);
    tcase_add_test(t, test_a_node_that_lost_what_it_held_returns);
    tcase_add_test(t, test_nobody_is_whole_by_time_when_the_other_is_away);
    tcase_add_test(t, test_flapping_is_damped);
    tcase_add_test(t, test_a_planned_stop_is_waited_for);
    tcase_add_test(t, test_handover_wait_ends_the_wait);
    tcase_add_test(t, test_what_the_admin_calls_dead_is_dead_at_once);
    return t;
}
