/* Of each site the newest parcel waits, and the walk over a user's parcels meets none that is done
 * with. confirm.c alone, with stubs around it. */
#include <check.h>
#include <stdlib.h>

#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/confirm.h"

/* confirms: how many of the user's own numbers */
struct given {
    struct parcel_in_flight parcel;
    uint8_t confirms;
    bool done;
};

static const struct config config = {.sweep_active = 3600000};
static struct replicator replicator = {.config = &config, .group = {.self = 1, .npeers = 2}};
static struct user *user;
static bool room;

bool outbox_answered(const struct outbox *o, size_t peer)
{
    (void)o, (void)peer;
    return true;
}

int group_peer(const struct group *g, uint64_t site)
{
    (void)g, (void)site;
    return -1;
}

enum user_kind user_kind(const struct user *u)
{
    (void)u;
    return USER_ORDINARY;
}

void user_all_confirmed(struct user *u, size_t peer)
{
    (void)u, (void)peer;
}

bool take_may_wait(const struct inbox *t)
{
    (void)t;
    return room;
}

void take_waits(struct inbox *t, struct parcel_in_flight *p)
{
    (void)t;
    ck_assert(!((struct given *)p)->done);
}

/* Its memory stays, so that a look at it is seen. */
void user_parcel_done(struct user *u, struct parcel_in_flight *p)
{
    struct given *g = (struct given *)p;
    ck_assert(!g->done);
    g->done = true;
    TAILQ_REMOVE(&u->parcels, p, in_user);
    u->nwaiting -= p->waits;
    p->waits = false;
}

bool parcel_confirms(struct text body, uint64_t site, uint64_t epoch, uint64_t counter)
{
    const struct given *g =
        (const struct given *)(const void *)(body.p - offsetof(struct given, confirms));
    (void)site, (void)epoch;
    ck_assert(!g->done);
    return g->confirms == counter;
}

static void begin(void)
{
    room = true;
    user = calloc(1, sizeof *user + 2 * sizeof *user->peer);
    user->r = &replicator;
    user->counter = 1;
    TAILQ_INIT(&user->parcels);
}

static void end(void)
{
    free(user);
}

static void hear(struct given *g, size_t peer, uint8_t confirms)
{
    *g = (struct given){.parcel = {.peer = peer, .kind = PARCEL_BATCH}, .confirms = confirms};
    g->parcel.body = (struct text){&g->confirms, 1};
    TAILQ_INSERT_TAIL(&user->parcels, &g->parcel, in_user);
    confirm_heard(user, &g->parcel);
}

START_TEST(of_a_site_the_newest_waits)
{
    struct given older, newer, other;
    hear(&older, 0, 1);
    hear(&other, 1, 1);
    ck_assert(older.parcel.waits && other.parcel.waits);
    hear(&newer, 0, 1);
    ck_assert(older.done && newer.parcel.waits && other.parcel.waits);
    ck_assert_uint_eq(user->nwaiting, 2);
}
END_TEST

static void close_with(const struct given *older, const struct given *newer)
{
    ck_assert(!older->parcel.waits && newer->parcel.waits);
    confirm_closed(user);
    ck_assert(!older->done && !older->parcel.waits);
    ck_assert(!newer->done && newer->parcel.waits);
    ck_assert_uint_eq(user->nwaiting, 1);
}

/* His worker noted another counter, and went away before it took them. */
START_TEST(an_older_one_that_confirms_all_now_leaves_the_newer_one)
{
    struct given older, newer;
    hear(&older, 0, 2);
    hear(&newer, 0, 1);
    user->counter = 2;
    close_with(&older, &newer);
}
END_TEST

START_TEST(an_older_one_that_there_is_room_for_now_leaves_the_newer_one)
{
    struct given older, newer;
    room = false;
    hear(&older, 0, 1);
    room = true;
    hear(&newer, 0, 1);
    close_with(&older, &newer);
}
END_TEST

START_TEST(what_came_while_a_worker_had_it_waits_as_far_as_it_is_the_newest)
{
    struct given older, newer, other;
    user->worker = (struct worker *)user;
    hear(&older, 0, 1);
    hear(&other, 1, 1);
    hear(&newer, 0, 1);
    ck_assert_uint_eq(user->nwaiting, 0);
    user->worker = NULL;
    confirm_closed(user);
    ck_assert(older.done && newer.parcel.waits && other.parcel.waits);
    ck_assert_uint_eq(user->nwaiting, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("confirm");
    TCase *t = tcase_create("confirm");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, of_a_site_the_newest_waits);
    tcase_add_test(t, an_older_one_that_confirms_all_now_leaves_the_newer_one);
    tcase_add_test(t, an_older_one_that_there_is_room_for_now_leaves_the_newer_one);
    tcase_add_test(t, what_came_while_a_worker_had_it_waits_as_far_as_it_is_the_newest);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
