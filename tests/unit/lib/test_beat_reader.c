#include "tests/unit/lib/tests.h"

#include <string.h>

#include "lib/redis/beat_reader.h"

#define UNKNOWN "ERR unknown command 'LANE.BEATS', with args beginning with: "
#define REFUSED "NOPERM this user has no permissions to run the 'lane.beats' command"

static bool is_older(const struct beat_reader *r)
{
    return !strcmp(beat_reader_command(r), "LANE.BEAT");
}

START_TEST(an_older_server_is_asked_the_older_way_from_then_on)
{
    struct beat_reader r = {0};
    ck_assert(!is_older(&r));
    ck_assert(beat_reader_turns(&r, UNKNOWN));
    ck_assert(is_older(&r) && !beat_reader_turns(&r, NULL));
    ck_assert(!beat_reader_turns(&r, NULL) && is_older(&r));
}
END_TEST

START_TEST(users_change_while_it_asks)
{
    struct beat_reader r = {0};
    ck_assert(beat_reader_turns(&r, REFUSED) && is_older(&r) && !beat_reader_turns(&r, NULL));
    ck_assert(beat_reader_turns(&r, REFUSED) && !is_older(&r) && !beat_reader_turns(&r, NULL));
    ck_assert(!is_older(&r));
}
END_TEST

START_TEST(who_refuses_both_is_not_asked_without_end)
{
    struct beat_reader r = {0};
    for (int look = 0; look < 4; look++) {
        bool first = is_older(&r);
        ck_assert(beat_reader_turns(&r, REFUSED) && is_older(&r) != first);
        ck_assert(!beat_reader_turns(&r, REFUSED));
    }
    /* and is heard as soon as one of them is allowed */
    ck_assert(beat_reader_turns(&r, UNKNOWN));
    ck_assert(!beat_reader_turns(&r, NULL) && is_older(&r));
}
END_TEST

START_TEST(other_errors_change_nothing)
{
    struct beat_reader r = {0};
    ck_assert(!beat_reader_turns(&r, "LOADING Redis is loading the dataset in memory") &&
              !beat_reader_turns(&r, "BUSY") && !is_older(&r));
}
END_TEST

TCase *beat_reader_tests(void)
{
    TCase *t = tcase_create("beat_reader");
    tcase_add_test(t, an_older_server_is_asked_the_older_way_from_then_on);
    tcase_add_test(t, users_change_while_it_asks);
    tcase_add_test(t, who_refuses_both_is_not_asked_without_end);
    tcase_add_test(t, other_errors_change_nothing);
    return t;
}
