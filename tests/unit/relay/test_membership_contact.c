#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "relay/heartbeat/membership_contact.h"
#include "lib/cluster/members.h"
#include "relay/heartbeat/membership.h"
#include "tests/unit/relay/tests.h"

#define TEXT(hears) "state=alive since=9 run=r config=c done=0 hand=0 hears=" hears

/* A relay of mx1 that joins, and what it needs to say whom it has not met. */
static struct config *config;
static struct relay relay;
static struct contact *contact;
static struct liveness *liveness;
static char directory[] = "/tmp/test-meeting-XXXXXX", *file;

static void setup(void)
{
    char path[200], *error = NULL;
    const char *names[] = {"mx1", "mx2"};
    struct members table = {0};
    strcpy(directory + sizeof directory - 7, "XXXXXX");
    ck_assert(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/conf", directory);
    FILE *f = fopen(path, "w");
    fprintf(f,
            "state_directory = \"%s\"\nmembership = learned\nnode mx1 { redis = \"127.0.0.1:1\" "
            "}\nnode mx2 { redis = \"127.0.0.1:2\" }\n",
            directory);
    fclose(f);
    members_read(&table, "1/1 joining mx8 127.0.0.1:8 - - -\n");
    file = members_file(directory, "dovelane-relay");
    ck_assert(members_save(&table, file) == 0);
    members_free(&table);
    config = config_read(path, &error);
    ck_assert_msg(config != NULL, "%s", error);
    unlink(path);
    relay = (struct relay){.loop = ev_default_loop(0), .node = "mx1", .config = config};
    relay.membership = membership_open(&relay);
    contact = contact_open(&relay);
    liveness = liveness_open(names, 2, 0, (struct liveness_times){5., 10., 60.}, clock_monotonic());
}

static void teardown(void)
{
    liveness_free(liveness);
    contact_free(contact);
    membership_close(relay.membership);
    membership_free(relay.membership);
    config_free(config);
    unlink(file);
    free(file);
    rmdir(directory);
}

/* mx2's beats have us, so that only those whom they name beside us are missing. */
static void hears_us(void)
{
    static const char text[] = TEXT("mx1:alive");
    struct liveness_news news = {"mx2", "i", text, 3, 1, sizeof text - 1, 1, 0.};
    for (news.counter = 1; news.counter <= 2; news.counter++)
        liveness_update(liveness, 0, liveness_generation(liveness), &news, 1, clock_monotonic());
    ck_assert(liveness_knows(liveness, 1, 0));
}

/* It may lie in the server of one that its relay does not reach any more. */
START_TEST(test_an_older_beat_does_not_replace_what_a_newer_one_names)
{
    double now = clock_monotonic();
    hears_us();
    contact_beat(contact, "mx2", TEXT("mx1:alive,mx9:alive"), now - 1., true);
    contact_beat(contact, "mx2", TEXT("mx1:alive"), now - 3., false);
    struct unmet_node u = contact_unmet(contact, liveness, now);
    ck_assert(u.why && !strcmp(u.node, "mx9") && !strcmp(u.by, "mx2"));
    /* The newest counts, whichever server has it. */
    contact_beat(contact, "mx2", TEXT("mx1:alive"), now, false);
    contact_beat(contact, "mx2", TEXT("mx1:alive,mx9:alive"), now - 1., true);
    ck_assert(!contact_unmet(contact, liveness, now).why);
}
END_TEST

/* Where mx2 has a section of it, it counts. */
START_TEST(test_one_that_was_taken_out_and_joins_again_is_met_like_any_other)
{
    double now = clock_monotonic();
    hears_us();
    ck_assert(config_list_has(&config->forgotten, "mx8"));
    contact_beat(contact, "mx2", TEXT("mx1:alive,mx8:alive"), now, true);
    struct unmet_node u = contact_unmet(contact, liveness, now);
    ck_assert(u.why && !strcmp(u.why, "it does not reach node") && !strcmp(u.node, "mx8"));
}
END_TEST

TCase *contact_tests(void)
{
    TCase *t = tcase_create("meeting");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_an_older_beat_does_not_replace_what_a_newer_one_names);
    tcase_add_test(t, test_one_that_was_taken_out_and_joins_again_is_met_like_any_other);
    return t;
}
