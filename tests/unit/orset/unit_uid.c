/* unit_uid - UID rounds (F31), and which side wins for \Deleted (F28). */
#include "dovecot-plugin/orset/ops/uid.h"
#include "tests/unit/orset/unit.h"

/* One whole round of keeper, with the answer of other. */
static int settle(struct replica *keeper, struct replica *other, bool told_meanwhile)
{
    struct orset_buf ask = {.alloc = &HEAP}, answer = {.alloc = &HEAP};
    ck_assert_int_eq(orset_begin(keeper->os), 0);
    ck_assert_int_eq(orset_uid_ask(keeper->os, ORSET_INBOX, &ask), 0);
    ck_assert_int_eq(orset_commit(keeper->os), 0);
    ck_assert_int_eq(orset_uid_answer(other->os, ask.data, ask.len, &answer), 0);
    struct orset_answer a = {answer.data, answer.len};
    ck_assert_int_eq(orset_begin(keeper->os), 0);
    if (told_meanwhile)
        ck_assert_int_eq(orset_uid_mark_dirty(keeper->os, ORSET_INBOX), 0);
    int e = orset_uid_settle(keeper->os, ORSET_INBOX, &a, 1);
    ck_assert_int_eq(orset_commit(keeper->os), 0);
    orset_buf_free(&ask);
    orset_buf_free(&answer);
    return e;
}

static void clash(struct replica *a, struct replica *b)
{
    open_replica(a, 1);
    open_replica(b, 2);
    append(a, ORSET_INBOX, 1, 1, 0);
    for (uint8_t i = 1; i <= 5; i++)
        append(b, ORSET_INBOX, i, (uint8_t)(10 + i), 0);
    ck_assert_int_eq(send_to(a, b, 1, 1), 0);
    ck_assert_int_eq(send_to(b, a, 2, 1), 0);
    follow(a);
    follow(b);
}

START_TEST(test_one_round_settles_a_clash_where_nobody_saves_meanwhile)
{
    struct replica a, b;
    struct orset_message x, y;
    struct orset_folder f;
    clash(&a, &b);
    ck_assert_int_gt(orset_uid_mismatches(b.os, ORSET_INBOX), 0);
    /* The highest UIDNEXT may be another site's. */
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_uid_next(b.os, ORSET_INBOX, 100), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    uint64_t before = orset_vector_get(a.os, orset_self(a.os));
    ck_assert_int_eq(settle(&a, &b, false), ORSET_OK);
    ck_assert_int_eq(send_to(&a, &b, 1, before + 1), 0);
    follow(&a);
    follow(&b);
    ck_assert_int_eq(orset_uid_mismatches(a.os, ORSET_INBOX), 0);
    ck_assert_int_eq(orset_uid_mismatches(b.os, ORSET_INBOX), 0);
    ck_assert(!orset_uid_dirty(b.os, ORSET_INBOX, false));
    ck_assert_int_eq(orset_folder_get(b.os, ORSET_INBOX, &f), 0);
    for (uint32_t uid = 1; uid < f.uid_next; uid++) {
        int here = orset_message_by_uid(a.os, ORSET_INBOX, uid, &x),
            there = orset_message_by_uid(b.os, ORSET_INBOX, uid, &y);
        ck_assert_int_eq(here, there);
        if (here)
            ck_assert_uint_eq(x.facts.guid[0], y.facts.guid[0]);
    }
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_a_dirty_that_is_told_during_a_round_survives_it)
{
    struct replica a, b;
    clash(&a, &b);
    ck_assert_int_eq(settle(&a, &b, true), ORSET_OK);
    follow(&a);
    ck_assert(orset_uid_dirty(a.os, ORSET_INBOX, true));
    ck_assert_int_ge(settle(&a, &b, false), 0);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

static uint32_t uid_next(struct replica *r)
{
    struct orset_folder f;
    ck_assert_int_eq(orset_folder_get(r->os, ORSET_INBOX, &f), 0);
    return f.uid_next;
}

static void round_of(struct replica *a, struct replica *b, int is)
{
    uint64_t before = orset_vector_get(a->os, orset_self(a->os));
    ck_assert_int_eq(settle(a, b, false), is);
    if (is == ORSET_OK)
        ck_assert_int_eq(send_to(a, b, 1, before + 1), 0);
    follow(a);
    follow(b);
}

/* A mailbox that had 250,000 mails is joined: each round follows it by a step, until all is
 * settled. Before, a peer's word raised UIDNEXT by 1,000,000 in one round. */
START_TEST(test_another_site_s_uidnext_is_followed_in_steps)
{
    struct replica a, b;
    clash(&a, &b);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_uid_next(b.os, ORSET_INBOX, 250000), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    for (int i = 0; i < 2; i++) {
        uint32_t before = uid_next(&a);
        round_of(&a, &b, ORSET_OK);
        ck_assert(orset_uid_stepped(a.os, ORSET_INBOX));
        ck_assert_uint_le(uid_next(&a), before + ORSET_UID_STEP + 100);
        ck_assert_int_gt(orset_uid_mismatches(b.os, ORSET_INBOX), 0);
    }
    round_of(&a, &b, ORSET_OK);
    ck_assert(!orset_uid_stepped(a.os, ORSET_INBOX));
    ck_assert_int_eq(orset_uid_mismatches(a.os, ORSET_INBOX), 0);
    ck_assert_int_eq(orset_uid_mismatches(b.os, ORSET_INBOX), 0);
    /* And one that nobody has is not followed at all. */
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_uid_next(b.os, ORSET_INBOX, 2000000), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    round_of(&a, &b, ORSET_E_MALFORMED);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

static int follow_late(struct replica *r)
{
    ck_assert_int_eq(orset_begin(r->os), 0);
    int e = orset_uid_follow(r->os, ORSET_INBOX);
    ck_assert_int_eq(orset_commit(r->os), 0);
    return e;
}

/* A round comes while a mail below its UIDs has no body here. Followed at once, UIDNEXT would
 * pass that mail's UID, and it would get another one at all sites. */
START_TEST(test_a_round_is_followed_when_the_mails_before_it_are_there)
{
    struct replica a, b;
    struct orset_message x, y;
    clash(&a, &b);
    uint32_t late = uid_next(&a);
    uint64_t before = orset_vector_get(a.os, orset_self(a.os));
    append(&a, ORSET_INBOX, late, 99, 0);
    ck_assert_int_eq(settle(&a, &b, false), ORSET_OK);
    ck_assert_int_eq(send_to(&a, &b, 1, before + 1), 0);
    follow(&a);
    ck_assert(orset_uid_dirty(b.os, ORSET_INBOX, false));
    follow(&b);
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, late, &x), 1);
    ck_assert_uint_eq(x.facts.guid[0], 99);
    orset_uid_hold(b.os, true);
    ck_assert_int_eq(follow_late(&b), ORSET_KNOWN);
    orset_uid_hold(b.os, false);
    ck_assert_int_eq(follow_late(&b), ORSET_OK);
    ck_assert(!orset_uid_dirty(b.os, ORSET_INBOX, false));
    follow(&b);
    ck_assert_int_eq(orset_uid_mismatches(a.os, ORSET_INBOX), 0);
    ck_assert_int_eq(orset_uid_mismatches(b.os, ORSET_INBOX), 0);
    ck_assert_uint_eq(uid_next(&a), uid_next(&b));
    for (uint32_t uid = 1; uid < uid_next(&a); uid++) {
        int here = orset_message_by_uid(a.os, ORSET_INBOX, uid, &x);
        int there = orset_message_by_uid(b.os, ORSET_INBOX, uid, &y);
        ck_assert_int_eq(here, there);
        if (here)
            ck_assert_uint_eq(x.facts.guid[0], y.facts.guid[0]);
    }
    ck_assert_int_eq(follow_late(&b), ORSET_KNOWN);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

static uint8_t change(struct replica *r, uint8_t system)
{
    struct orset_flags now = {.system = system}, shown;
    struct orset_message m;
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_ge(orset_local_flags(r->os, ORSET_INBOX, 1, &now, NULL), 0);
    ck_assert_int_eq(orset_commit(r->os), 0);
    ck_assert_int_eq(orset_message_by_uid(r->os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_flags(r->os, ORSET_INBOX, m.dot, &shown), 0);
    return shown.system;
}

/* Both saw it deleted; one rescues it, the other deletes it once more. And the same with
 * \Flagged, where setting wins. */
static uint8_t clear_against_set(uint8_t flag)
{
    struct replica a, b;
    uint64_t na, nb;
    struct orset_message m;
    struct orset_flags shown;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, flag);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    na = orset_vector_get(a.os, orset_self(a.os)) + 1;
    nb = orset_vector_get(b.os, orset_self(b.os)) + 1;
    ck_assert_uint_eq(change(&a, 0), 0);
    ck_assert_uint_eq(change(&b, 0), 0);
    ck_assert_uint_eq(change(&b, flag), flag);
    ck_assert_int_eq(send_to(&a, &b, 1, na), 0);
    ck_assert_int_eq(send_to(&b, &a, 2, nb), 0);
    assert_equal(&a, &b);
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_flags(b.os, ORSET_INBOX, m.dot, &shown), 0);
    close_replica(&a);
    close_replica(&b);
    return shown.system;
}

START_TEST(test_clearing_wins_for_deleted_and_setting_for_others)
{
    ck_assert_uint_eq(clear_against_set(ORSET_DELETED), 0);
    ck_assert_uint_eq(clear_against_set(ORSET_FLAGGED), ORSET_FLAGGED);
}
END_TEST

TCase *uid_cases(void)
{
    TCase *t = tcase_create("uid");
    tcase_add_test(t, test_one_round_settles_a_clash_where_nobody_saves_meanwhile);
    tcase_add_test(t, test_another_site_s_uidnext_is_followed_in_steps);
    tcase_add_test(t, test_a_dirty_that_is_told_during_a_round_survives_it);
    tcase_add_test(t, test_a_round_is_followed_when_the_mails_before_it_are_there);
    tcase_add_test(t, test_clearing_wins_for_deleted_and_setting_for_others);
    return t;
}
