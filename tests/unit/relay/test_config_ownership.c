#include <string.h>

#include "relay/cluster/config_ownership.h"
#include "tests/unit/relay/tests.h"

static struct config_node nodes[] = {{.name = "mx1"}, {.name = "mx2"}, {.name = "mx3"}};

static enum ownership judge(const char *self, const char *dead1, const char *dead2,
                            const char *lane, size_t *place)
{
    char *dead[] = {(char *)dead1, (char *)dead2};
    struct config c = {.nnodes = 3, .node = nodes, .dead = {dead2 ? 2 : dead1 ? 1 : 0, dead}};
    struct lanename name;
    ck_assert(lanename_parse(lane, strlen(lane), &name));
    enum ownership o = ownership_judge(&c, self, &name, place);
    lanename_free(&name);
    return o;
}

#define LANE "dovelane:lmtp:[10.0.0.5]:24|mx1>mx2>mx3"

START_TEST(test_the_first_owner_drains)
{
    size_t place;
    ck_assert_int_eq(judge("mx1", NULL, NULL, LANE, &place), OWNERSHIP_OURS);
    ck_assert_uint_eq(place, 0);
    ck_assert_int_eq(judge("mx2", NULL, NULL, LANE, &place), OWNERSHIP_LATER);
    ck_assert_int_eq(judge("mx3", NULL, NULL, LANE, &place), OWNERSHIP_LATER);
}
END_TEST

START_TEST(test_a_later_owner_drains_when_all_before_it_are_dead)
{
    size_t place;
    ck_assert_int_eq(judge("mx2", "mx1", NULL, LANE, &place), OWNERSHIP_OURS);
    ck_assert_uint_eq(place, 1);
    ck_assert_int_eq(judge("mx3", "mx1", NULL, LANE, &place), OWNERSHIP_LATER);
    ck_assert_int_eq(judge("mx3", "mx2", NULL, LANE, &place), OWNERSHIP_LATER);
    ck_assert_int_eq(judge("mx3", "mx1", "mx2", LANE, &place), OWNERSHIP_OURS);
    ck_assert_uint_eq(place, 2);
}
END_TEST

START_TEST(test_an_owner_without_a_node_section_is_dead)
{
    size_t place;
    ck_assert_int_eq(judge("mx2", NULL, NULL, "dovelane:smtp:[a]:25|gone>mx2", &place),
                     OWNERSHIP_OURS);
    ck_assert_uint_eq(place, 1);
}
END_TEST

START_TEST(test_a_node_called_dead_drains_nothing)
{
    size_t place;
    ck_assert_int_eq(judge("mx1", "mx1", NULL, LANE, &place), OWNERSHIP_LATER);
    ck_assert_int_eq(judge("mx2", "mx1", "mx2", LANE, &place), OWNERSHIP_LATER);
}
END_TEST

START_TEST(test_no_owner_no_drain)
{
    size_t place;
    ck_assert_int_eq(judge("mx3", "mx1", "mx2", "dovelane:smtp:[a]:25|mx1>mx2", &place),
                     OWNERSHIP_NONE);
    ck_assert_int_eq(judge("mx3", "mx1", "mx2", "dovelane:smtp:[a]:25|mx1>mx2|mx1.3", &place),
                     OWNERSHIP_NONE);
}
END_TEST

TCase *ownership_tests(void)
{
    TCase *t = tcase_create("ownership");
    tcase_add_test(t, test_the_first_owner_drains);
    tcase_add_test(t, test_a_later_owner_drains_when_all_before_it_are_dead);
    tcase_add_test(t, test_an_owner_without_a_node_section_is_dead);
    tcase_add_test(t, test_a_node_called_dead_drains_nothing);
    tcase_add_test(t, test_no_owner_no_drain);
    return t;
}
