/* unit_meanwhile - what an exchange must see that no dot of the giver's shows: elements that
 * came to the asker while it was under way, and what the giver knows of messages that it does
 * not have. Each story needs four replicas, or an op between two answers. After it all ops are
 * delivered and no further exchange runs. */
#include "tests/unit/orset/unit.h"

#include "dovecot-plugin/orset/ops/uid.h"

static void set_flags(struct replica *r, uint32_t uid, uint8_t system)
{
    struct orset_flags now = {.system = system};
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_local_flags(r->os, ORSET_INBOX, uid, &now, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

static uint64_t next_number(struct replica *r)
{
    return orset_vector_get(r->os, orset_self(r->os)) + 1;
}

struct four {
    struct replica a, b, c, d;
};

static void open_four(struct four *f)
{
    open_replica(&f->a, 1);
    open_replica(&f->b, 2);
    open_replica(&f->c, 3);
    open_replica(&f->d, 4);
}

static void close_four(struct four *f)
{
    close_replica(&f->a);
    close_replica(&f->b);
    close_replica(&f->c);
    close_replica(&f->d);
}

/* b flags a's mail and unflags it; c has the first op of the two, d both, neither (or c alone)
 * the mail. c exchanges with d: the second op will not come any more. */
static void flag_that_was_cleared(bool has_mail)
{
    struct four f;
    open_four(&f);
    append(&f.a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&f.a, &f.b, 1, 1), 0);
    follow(&f.b);
    if (has_mail)
        ck_assert_int_eq(send_to(&f.a, &f.c, 1, 1), 0);
    set_flags(&f.b, 1, ORSET_FLAGGED);
    ck_assert_int_eq(send_to(&f.b, &f.c, 2, 1), 0);
    ck_assert_int_eq(send_to(&f.b, &f.d, 2, 1), 0);
    uint64_t second = next_number(&f.b);
    set_flags(&f.b, 1, 0);
    ck_assert_int_eq(send_to(&f.b, &f.d, 2, second), 0);
    ck_assert_int_eq(take_over(&f.c, 3, &f.d, 4), ORSET_KNOWN);
    ck_assert_uint_eq(orset_remembered(f.c.os), 0);
    ck_assert_int_eq(send_to(&f.a, &f.c, 1, 1), 0);
    ck_assert_int_eq(send_to(&f.a, &f.d, 1, 1), 0);
    assert_equal(&f.c, &f.d);
    assert_equal(&f.c, &f.b);
    close_four(&f);
}

START_TEST(test_a_remembered_flag_that_the_giver_saw_cleared_goes)
{
    flag_that_was_cleared(false);
}
END_TEST

START_TEST(test_a_flag_that_the_giver_saw_cleared_goes_though_it_has_not_the_mail)
{
    flag_that_was_cleared(true);
}
END_TEST

/* What the giver remembers of a mail that it does not have is not cleared. */
START_TEST(test_a_flag_that_the_giver_remembers_stays)
{
    struct four f;
    struct orset_flags now;
    struct orset_message m;
    open_four(&f);
    append(&f.a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&f.a, &f.b, 1, 1), 0);
    ck_assert_int_eq(send_to(&f.a, &f.c, 1, 1), 0);
    follow(&f.b);
    follow(&f.c);
    set_flags(&f.b, 1, ORSET_FLAGGED);
    ck_assert_int_eq(send_to(&f.b, &f.c, 2, 1), 0);
    ck_assert_int_eq(send_to(&f.b, &f.d, 2, 1), 0);
    ck_assert_int_eq(take_over(&f.c, 3, &f.d, 4), ORSET_KNOWN);
    ck_assert_int_eq(orset_message_by_uid(f.c.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_flags(f.c.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_uint_eq(now.system, ORSET_FLAGGED);
    ck_assert_int_eq(send_to(&f.a, &f.d, 1, 1), 0);
    assert_equal(&f.c, &f.d);
    close_four(&f);
}
END_TEST

/* The keeper's word on c's own mail reaches c through d, which has not the mail. */
START_TEST(test_a_uid_that_the_giver_remembers_is_agreed_here)
{
    struct four f;
    struct orset_message m;
    struct orset_buf ask = {.alloc = &HEAP};
    open_four(&f);
    append(&f.a, ORSET_INBOX, 1, 1, 0);
    append(&f.c, ORSET_INBOX, 1, 2, 0);
    ck_assert_int_eq(send_to(&f.c, &f.a, 3, 1), 0);
    follow(&f.a); /* at UID 2: not the agreed one */
    uint64_t round = next_number(&f.a);
    ck_assert_int_eq(orset_begin(f.a.os), 0);
    ck_assert_int_eq(orset_uid_ask(f.a.os, ORSET_INBOX, &ask), 0);
    ck_assert_int_eq(orset_uid_settle(f.a.os, ORSET_INBOX, NULL, 0), 0);
    ck_assert_int_eq(orset_commit(f.a.os), 0);
    orset_buf_free(&ask);
    ck_assert_uint_gt(next_number(&f.a), round);
    ck_assert_int_eq(send_to(&f.a, &f.d, 1, 1), 0);
    ck_assert_int_eq(take_over(&f.c, 3, &f.d, 4), ORSET_KNOWN);
    ck_assert_int_eq(orset_message_by_uid(f.c.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_uint_ne(m.agreed, 1);
    ck_assert_int_eq(send_to(&f.c, &f.d, 3, 1), 0);
    assert_equal(&f.c, &f.d);
    assert_equal(&f.c, &f.a);
    close_four(&f);
}
END_TEST

/* One step of an exchange: an answer to q, merged; q is the next question. */
static int step(struct replica *to, uint64_t site, struct replica *from, struct orset_exchange *x,
                struct orset_buf *q)
{
    struct orset_buf a = {.alloc = &HEAP};
    ck_assert_int_eq(orset_begin(from->os), 0);
    ck_assert_int_eq(orset_answer(from->os, site, q->data, q->len, &a), 0);
    ck_assert_int_eq(orset_commit(from->os), 0);
    q->len = 0;
    ck_assert_int_eq(orset_begin(to->os), 0);
    int e = orset_take(to->os, x, a.data, a.len, q);
    ck_assert_int_ge(e, 0);
    ck_assert_int_eq(orset_commit(to->os), 0);
    orset_buf_free(&a);
    return e;
}

/* b removed a's mail; c hears d's hello, which covers both, and then gets the mail, by a's op or
 * from a's state. */
static void mail_that_comes_meanwhile(bool by_exchange)
{
    struct four f;
    struct orset_buf q = {.alloc = &HEAP};
    struct orset_exchange *x;
    open_four(&f);
    append(&f.a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&f.a, &f.b, 1, 1), 0);
    follow(&f.b);
    ck_assert_int_eq(send_to(&f.a, &f.d, 1, 1), 0);
    expunge(&f.b, ORSET_INBOX, 1);
    ck_assert_int_eq(send_to(&f.b, &f.d, 2, 1), 0);
    create(&f.d, "\0F", 2); /* so that there is a second question */
    ck_assert_int_eq(orset_ask_hello(f.c.os, 4, &x, &q), 0);
    int e = ORSET_OK;
    for (unsigned i = 0; e == ORSET_OK; i++) {
        e = step(&f.c, 3, &f.d, x, &q);
        if (i != 1) /* INBOX was compared, F was not */
            continue;
        if (by_exchange)
            ck_assert_int_eq(take_over(&f.c, 3, &f.a, 1), ORSET_KNOWN);
        else
            ck_assert_int_eq(send_to(&f.a, &f.c, 1, 1), 0);
        ck_assert_uint_eq(count(&f.c, ORSET_INBOX, 1), 1);
    }
    orset_exchange_free(f.c.os, x);
    orset_buf_free(&q);
    ck_assert_int_eq(send_to(&f.b, &f.c, 2, 1), 0);
    ck_assert_uint_eq(count(&f.c, ORSET_INBOX, 1), 0);
    assert_equal(&f.c, &f.d);
    close_four(&f);
}

START_TEST(test_a_removed_mail_whose_op_comes_in_the_middle_does_not_stay)
{
    mail_that_comes_meanwhile(false);
}
END_TEST

START_TEST(test_a_removed_mail_that_another_exchange_brings_in_the_middle_does_not_stay)
{
    mail_that_comes_meanwhile(true);
}
END_TEST

/* --- where the mails of a GUID are ------------------------------------------------------------- */

static bool there(void *arg, uint32_t home, uint32_t uid)
{
    const uint32_t *gone = arg;
    (void)home;
    return uid != *gone;
}

static int where(struct replica *r, uint8_t guid, uint32_t gone)
{
    struct orset_facts facts = facts_of(guid, 0);
    return orset_guid_where(r->os, facts.guid, there, &gone);
}

static void count_removed(void *arg, const struct orset_facts *facts)
{
    (void)facts;
    ++*(unsigned *)arg;
}

START_TEST(a_guid_is_found_in_any_folder)
{
    struct replica a, b;
    unsigned removed = 0;
    uint64_t next;
    open_replica(&a, 1);
    open_replica(&b, 2);
    orset_on_removed(b.os, count_removed, &removed);
    append(&a, ORSET_INBOX, 1, 7, 0);
    ck_assert_int_eq(where(&a, 7, 0), ORSET_PLACED);
    ck_assert_int_eq(where(&a, 7, 1), ORSET_WAITING); /* the mailbox lacks it */
    ck_assert_int_eq(where(&a, 8, 0), ORSET_NOWHERE);
    send_to(&a, &b, 1, 1);
    next = orset_vector_get(a.os, orset_self(a.os)) + 1;
    ck_assert_int_eq(where(&b, 7, 0), ORSET_WAITING); /* in the state, and not placed */
    follow(&b);
    ck_assert_int_eq(where(&b, 7, 0), ORSET_PLACED);
    uint32_t f = create(&a, "\0F", 2);
    append(&a, f, 1, 7, 0);
    expunge(&a, ORSET_INBOX, 1);
    ck_assert_int_eq(where(&a, 7, 0), ORSET_PLACED); /* moved */
    send_to(&a, &b, 1, next);
    next = orset_vector_get(a.os, orset_self(a.os)) + 1;
    ck_assert_int_eq(where(&b, 7, 0), ORSET_WAITING);
    ck_assert_uint_eq(removed, 1);
    follow(&b);
    ck_assert_int_eq(where(&b, 7, 0), ORSET_PLACED);
    expunge(&a, f, 1);
    ck_assert_int_eq(where(&a, 7, 0), ORSET_NOWHERE);
    send_to(&a, &b, 1, next);
    ck_assert_int_eq(where(&b, 7, 0), ORSET_DOOMED); /* it is still in the mailbox */
    ck_assert_uint_eq(removed, 2);
    follow(&b);
    ck_assert_int_eq(where(&b, 7, 0), ORSET_NOWHERE);
    orset_on_removed(b.os, NULL, NULL);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

TCase *meanwhile_cases(void)
{
    TCase *t = tcase_create("meanwhile");
    tcase_add_test(t, test_a_remembered_flag_that_the_giver_saw_cleared_goes);
    tcase_add_test(t, test_a_flag_that_the_giver_saw_cleared_goes_though_it_has_not_the_mail);
    tcase_add_test(t, test_a_flag_that_the_giver_remembers_stays);
    tcase_add_test(t, test_a_uid_that_the_giver_remembers_is_agreed_here);
    tcase_add_test(t, test_a_removed_mail_whose_op_comes_in_the_middle_does_not_stay);
    tcase_add_test(t, test_a_removed_mail_that_another_exchange_brings_in_the_middle_does_not_stay);
    tcase_add_test(t, a_guid_is_found_in_any_folder);
    return t;
}
