/* unit_join - mailboxes that were full before their state knew of them (F36), and bytes that
 * differ under one GUID (F17). */
#include "dovecot-plugin/orset/ops/match_mails.h"
#include "tests/unit/orset/unit.h"

struct mail {
    uint32_t uid;
    uint8_t guid, body, flags;
};

static void join(struct replica *r, const struct mail *m, unsigned n, unsigned *made,
                 unsigned *united, unsigned *left)
{
    struct orset_join *j;
    *made = 0;
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_join_begin(r->os, ORSET_INBOX, &j), 0);
    for (unsigned i = 0; i < n; i++) {
        struct orset_facts f = facts_of(m[i].guid, m[i].body);
        struct orset_flags fl = {.system = m[i].flags};
        int e = orset_join_add(r->os, j, m[i].uid, &f, &fl, NULL);
        ck_assert_int_ge(e, 0);
        *made += e == ORSET_OK;
    }
    ck_assert_int_eq(orset_join_end(r->os, j, united, left), 0);
    orset_join_free(r->os, j);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

static void both_ways(struct replica *a, struct replica *b)
{
    ck_assert_int_eq(take_over(a, 1, b, 2), ORSET_KNOWN);
    ck_assert_int_eq(take_over(b, 2, a, 1), ORSET_KNOWN);
}

static uint64_t messages(struct replica *r)
{
    struct orset_folder f;
    ck_assert_int_eq(orset_folder_get(r->os, ORSET_INBOX, &f), 0);
    return f.messages;
}

static void mark_deleted(struct replica *r, uint32_t uid)
{
    struct orset_flags deleted = {.system = ORSET_DELETED};
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_local_flags(r->os, ORSET_INBOX, uid, &deleted, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

/* What the mailbox is asked to have, by the first task that is about flags. */
static uint8_t asked_flags(struct replica *r)
{
    struct orset_task t = {.at_len = 0};
    int e;
    while ((e = orset_task_next(r->os, &t)) > 0 && t.kind != ORSET_TASK_FLAGS)
        ;
    ck_assert_int_eq(e, 1);
    return t.flags.system;
}

START_TEST(test_a_lost_state_binds_by_guid_and_makes_no_dot)
{
    struct replica a, b;
    struct mail m[] = {{1, 1, 1, 0}, {2, 2, 2, 0}};
    unsigned made, united, left;
    open_replica(&a, 1);
    open_replica(&b, 2); /* its mailbox has both mails, its state is new */
    append(&a, ORSET_INBOX, 1, 1, ORSET_SEEN);
    append(&a, ORSET_INBOX, 2, 2, 0);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    join(&b, m, 2, &made, &united, &left);
    ck_assert_uint_eq(made + united + left, 0);
    assert_equal(&a, &b);
    /* The flags are the state's, not those of the index that was lost. */
    struct orset_task t = {.at_len = 0};
    while (orset_task_next(b.os, &t) > 0 && t.kind != ORSET_TASK_FLAGS)
        ck_assert_int_ne(t.kind, ORSET_TASK_PLACE);
    ck_assert_int_eq(t.kind, ORSET_TASK_FLAGS);
    ck_assert_uint_eq(t.flags.system, ORSET_SEEN);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_equal_bytes_under_other_guids_are_matched_as_multisets)
{
    struct replica a, b;
    struct mail m[] = {{1, 51, 7, 0}, {2, 52, 7, 0}, {3, 53, 7, 0}, {4, 54, 8, 0}};
    struct orset_facts f = facts_of(51, 7);
    struct orset_flags none = {0};
    unsigned made, united, left;
    open_replica(&a, 1);
    open_replica(&b, 2);
    ck_assert_int_eq(orset_begin(a.os), 0);
    for (uint8_t i = 1; i <= 2; i++) { /* the same bytes twice, as two mails */
        struct orset_facts g = facts_of(i, 7);
        ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, i, &g, &none, NULL), 0);
    }
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    join(&b, m, 4, &made, &united, &left);
    ck_assert_uint_eq(made, 2); /* the third of them, and the other mail */
    both_ways(&a, &b);
    follow(&a);
    assert_equal(&a, &b);
    ck_assert_uint_eq(messages(&a), 4);
    /* The alias: a rebuilt index, or a copy of the mail, speaks of the message's GUID. */
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_missing(b.os, ORSET_INBOX, 1), 0);
    ck_assert_int_eq(orset_local_add(b.os, ORSET_INBOX, 9, &f, &none, NULL), ORSET_KNOWN);
    uint32_t folder;
    uint8_t guid[16] = {1};
    struct orset_dot d;
    struct orset_message copy;
    ck_assert_int_eq(orset_local_create(b.os, "\0H", 2, 1, guid, &folder), 0);
    ck_assert_int_eq(orset_local_add(b.os, folder, 1, &f, &none, &d), ORSET_OK);
    ck_assert_int_eq(orset_message_get(b.os, folder, d, &copy), 1);
    ck_assert_uint_eq(copy.facts.guid[0], 1);
    ck_assert_int_eq(orset_commit(b.os), 0);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* Both ingested before they met. */
START_TEST(test_two_seeded_stores_that_both_ingested_become_one)
{
    struct replica a, b;
    struct mail ma[] = {{1, 11, 7, ORSET_SEEN}, {2, 14, 8, 0}},
                mb[] = {{1, 12, 7, ORSET_FLAGGED}, {2, 13, 8, 0}};
    unsigned made, united, left;
    struct orset_flags now;
    struct orset_message m;
    open_replica(&a, 1);
    open_replica(&b, 2);
    join(&a, ma, 2, &made, &united, &left);
    ck_assert_uint_eq(made, 2);
    join(&b, mb, 2, &made, &united, &left);
    ck_assert_uint_eq(made, 2);
    both_ways(&a, &b);
    join(&a, ma, 2, &made, &united, &left);
    ck_assert_uint_eq(made, 0);
    ck_assert_uint_eq(united, 1); /* 14 gives way to 13 */
    ck_assert_uint_eq(left, 1);   /* 12 will give way to 11, over there */
    join(&b, mb, 2, &made, &united, &left);
    ck_assert_uint_eq(united, 1);
    both_ways(&a, &b);
    both_ways(&a, &b);
    follow(&a);
    follow(&b);
    assert_equal(&a, &b);
    ck_assert_uint_eq(messages(&a), 2);
    ck_assert_uint_eq(count(&a, ORSET_INBOX, 11) + count(&a, ORSET_INBOX, 13), 2);
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_uint_eq(m.facts.guid[0], 11);
    ck_assert_int_eq(orset_message_flags(b.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_uint_eq(now.system, ORSET_SEEN | ORSET_FLAGGED);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* The two stores of test_two_seeded_stores_that_both_ingested_become_one, and a third site that knows
 * b's mail alone. What it marked has come to b's state, and not to b's mailbox. */
START_TEST(test_a_deleted_of_the_copy_that_gives_way_is_set_on_the_other)
{
    struct replica a, b, c;
    struct mail ma[] = {{1, 11, 7, 0}}, mb[] = {{1, 12, 7, 0}};
    unsigned made, united, left;
    struct orset_flags now;
    struct orset_message m;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 3);
    join(&a, ma, 1, &made, &united, &left);
    join(&b, mb, 1, &made, &united, &left);
    ck_assert_int_eq(send_to(&b, &c, 2, 1), 0);
    follow(&c);
    mark_deleted(&c, 1);
    ck_assert_int_eq(send_to(&c, &b, 3, 1), 0);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    join(&b, mb, 1, &made, &united, &left);
    ck_assert_uint_eq(united, 1);
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_uint_eq(m.facts.guid[0], 11);
    ck_assert_int_eq(orset_message_flags(b.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_uint_eq(now.system, ORSET_DELETED);
    ck_assert_uint_eq(asked_flags(&b), ORSET_DELETED);
    both_ways(&a, &b);
    ck_assert_uint_eq(asked_flags(&a), ORSET_DELETED);
    follow(&a);
    follow(&b);
    assert_equal(&a, &b);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
}
END_TEST

/* A storage that was rebuilt has the mail once, where it was there twice. */
START_TEST(test_a_lost_copy_is_made_again_and_not_united_with_the_other_one)
{
    struct replica a;
    struct mail m[] = {{1, 1, 1, 0}, {2, 1, 1, 0}};
    unsigned made, united, left;
    open_replica(&a, 1);
    join(&a, m, 2, &made, &united, &left);
    ck_assert_uint_eq(made, 2);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_ge(orset_local_missing(a.os, ORSET_INBOX, 2), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    join(&a, m, 1, &made, &united, &left);
    ck_assert_uint_eq(made + united + left, 0);
    ck_assert_uint_eq(messages(&a), 2);
    ck_assert_int_eq(orset_unplaced(a.os, 10), 1);
    close_replica(&a);
}
END_TEST

static int next_body(struct replica *r, struct orset_task *t)
{
    int e;
    t->at_len = 0;
    while ((e = orset_task_next(r->os, t)) > 0 && t->kind != ORSET_TASK_BODY)
        ;
    return e;
}

START_TEST(test_of_two_bodies_under_one_guid_the_smallest_hash_wins)
{
    struct replica a, b;
    struct orset_facts mine = facts_of(1, 9), theirs = facts_of(1, 5);
    struct orset_flags none = {0};
    struct orset_message m;
    struct orset_task t;
    open_replica(&a, 1);
    open_replica(&b, 2);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 1, &mine, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_add(b.os, ORSET_INBOX, 1, &theirs, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(next_body(&b, &t), 0); /* it has the winner */
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    ck_assert_int_eq(next_body(&a, &t), 1);
    ck_assert_uint_eq(t.uid, 1);
    ck_assert_uint_eq(t.message.facts.sha256[0], 5);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_done_body(a.os, ORSET_INBOX, 1, 2, t.message.facts.sha256), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(next_body(&a, &t), 0);
    ck_assert_int_eq(orset_message_by_uid(a.os, ORSET_INBOX, 2, &m), 1);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* c knows a's mail alone, which it marks; the mark has come to a's state, and not to its mailbox. */
START_TEST(test_a_deleted_of_bytes_that_are_replaced_is_set_on_the_others)
{
    struct replica a, b, c;
    struct orset_facts mine = facts_of(1, 9), theirs = facts_of(1, 5);
    struct orset_flags none = {0}, now;
    struct orset_message m;
    struct orset_task t;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 3);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 1, &mine, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_add(b.os, ORSET_INBOX, 1, &theirs, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    follow(&c);
    mark_deleted(&c, 1);
    ck_assert_int_eq(send_to(&c, &a, 3, 1), 0);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    ck_assert_int_eq(next_body(&a, &t), 1);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_done_body(a.os, ORSET_INBOX, 1, 2, t.message.facts.sha256), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_message_by_uid(a.os, ORSET_INBOX, 2, &m), 1);
    ck_assert_uint_eq(m.facts.sha256[0], 5);
    ck_assert_int_eq(orset_message_flags(a.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_uint_eq(now.system, ORSET_DELETED);
    ck_assert_uint_eq(asked_flags(&a), ORSET_DELETED);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_uint_eq(asked_flags(&b), ORSET_DELETED);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
}
END_TEST

START_TEST(test_a_mail_waiting_for_its_removal_is_no_new_mail)
{
    struct replica a, b;
    struct orset_facts f = facts_of(1, 0);
    struct orset_flags none = {0};
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    expunge(&a, ORSET_INBOX, 1);
    ck_assert_int_eq(send_to(&a, &b, 1, 3), 0);
    ck_assert_int_eq(orset_begin(b.os), 0); /* scanned before it was expunged there */
    ck_assert_int_eq(orset_local_add(b.os, ORSET_INBOX, 1, &f, &none, NULL), ORSET_KNOWN);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_uint_eq(count(&b, ORSET_INBOX, 1), 0);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

TCase *join_cases(void)
{
    TCase *t = tcase_create("join");
    tcase_add_test(t, test_a_lost_state_binds_by_guid_and_makes_no_dot);
    tcase_add_test(t, test_equal_bytes_under_other_guids_are_matched_as_multisets);
    tcase_add_test(t, test_two_seeded_stores_that_both_ingested_become_one);
    tcase_add_test(t, test_a_deleted_of_the_copy_that_gives_way_is_set_on_the_other);
    tcase_add_test(t, test_a_lost_copy_is_made_again_and_not_united_with_the_other_one);
    tcase_add_test(t, test_of_two_bodies_under_one_guid_the_smallest_hash_wins);
    tcase_add_test(t, test_a_deleted_of_bytes_that_are_replaced_is_set_on_the_others);
    tcase_add_test(t, test_a_mail_waiting_for_its_removal_is_no_new_mail);
    return t;
}
