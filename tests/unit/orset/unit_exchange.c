/* unit_exchange - the five conditions of exchange.h under which "covered and absent" means
 * removed (F35). Each test walks one story twice: as the core does it, and with the condition
 * broken by hand; then the mail must be lost, or the test would show nothing. */
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "tests/unit/orset/unit.h"

/* version, kind, vector of one state; the rest of another's answer */
static void splice(struct replica *vector_of, struct orset_buf *vector,
                   const struct orset_buf *body, struct replica *body_of, struct orset_buf *out)
{
    struct orset_buf v = {.alloc = &HEAP}, w = {.alloc = &HEAP};
    orset_vector_write(vector_of->os, &v);
    orset_vector_write(body_of->os, &w);
    out->len = 0;
    orset_buf_put(out, vector->data, 2 + v.len);
    orset_buf_put(out, body->data + 2 + w.len, body->len - 2 - w.len);
    orset_buf_free(&v);
    orset_buf_free(&w);
}

static void give(struct replica *from, uint64_t asker, const struct orset_buf *q,
                 struct orset_buf *a)
{
    a->len = 0;
    ck_assert_int_eq(orset_begin(from->os), 0);
    ck_assert_int_eq(orset_answer(from->os, asker, q->data, q->len, a), 0);
    ck_assert_int_eq(orset_commit(from->os), 0);
}

/* (a) An answer's vector and elements are of one moment. Broken: elements read before a mail
 * came, the vector after. */
static unsigned one_moment(bool broken)
{
    struct replica a, b, before;
    struct orset_buf q = {.alloc = &HEAP}, now = {.alloc = &HEAP}, old = {.alloc = &HEAP},
                     answer = {.alloc = &HEAP};
    struct orset_exchange *x;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    append(&a, ORSET_INBOX, 2, 2, 0);
    open_copy(&before, b.mem, 2);
    ck_assert_int_eq(send_to(&a, &b, 1, 3), 0);
    int e = orset_ask_hello(a.os, 2, &x, &q);
    while (e == 0) {
        give(&b, 1, &q, &now);
        give(&before, 1, &q, &old);
        splice(&b, &now, broken ? &old : &now, broken ? &before : &b, &answer);
        q.len = 0;
        ck_assert_int_eq(orset_begin(a.os), 0);
        e = orset_take(a.os, x, answer.data, answer.len, &q);
        ck_assert_int_ge(e, 0);
        ck_assert_int_eq(orset_commit(a.os), 0);
    }
    orset_exchange_free(a.os, x);
    unsigned n = count(&a, ORSET_INBOX, 2);
    orset_buf_free(&q);
    orset_buf_free(&now);
    orset_buf_free(&old);
    orset_buf_free(&answer);
    close_replica(&a);
    close_replica(&b);
    close_replica(&before);
    return n;
}

/* (b) The vector means "in the state". Broken: an op was skipped (no room, a name that cannot
 * be), its number not. in_folder: what was skipped is in a folder that the site leaves out, (d)
 * with one vector for all namespaces. */
static unsigned in_the_state(bool broken, bool in_folder)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    uint32_t f = in_folder ? create(&a, "shared\0F", 8) : ORSET_INBOX;
    append(&a, f, 1, 1, 0);
    uint64_t last = orset_vector_get(a.os, orset_self(a.os));
    if (broken) {
        send_to(&a, &b, 1, last + 1);
        ck_assert_int_eq(orset_begin(b.os), 0);
        struct origin *o = &b.os->origin[orset_find_origin(b.os, (struct orset_origin){1, 101})];
        o->counter = last;
        o->dirty = true;
        ck_assert_int_eq(orset_commit(b.os), 0);
    } else {
        ck_assert_int_eq(send_to(&a, &b, 1, 1), 0); /* and no mailbox ever places it */
    }
    ck_assert_int_eq(take_over(&a, 1, &b, 2), ORSET_KNOWN);
    unsigned n = count(&a, f, 1);
    close_replica(&a);
    close_replica(&b);
    return n;
}

/* (c) No number is given twice. Broken: an old copy counts on, its running hash forgotten. */
static unsigned never_twice(bool broken)
{
    struct replica a, b, copy;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_copy(&copy, a.mem, 1);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(orset_begin(copy.os), 0);
    if (!broken)
        ck_assert_int_eq(orset_new_epoch(copy.os, 7), 0);
    ck_assert_int_eq(orset_local_subscribe(copy.os, "\0F", 2, true), 0);
    ck_assert_int_eq(orset_local_subscribe(copy.os, "\0F", 2, false), 0);
    if (broken)
        copy.os->origin[copy.os->self].chain = 0;
    ck_assert_int_eq(orset_commit(copy.os), 0);
    ck_assert_int_eq(take_over(&copy, 1, &b, 2), ORSET_KNOWN);
    ck_assert_int_eq(take_over(&b, 2, &copy, 1), ORSET_KNOWN);
    unsigned n = count(&b, ORSET_INBOX, 1);
    close_replica(&a);
    close_replica(&b);
    close_replica(&copy);
    return n;
}

/* (d) Both sides hold the same namespaces: each namespace is a state with a vector of its own,
 * and a site that leaves one out has nothing to exchange of it. */
static unsigned same_namespaces(void)
{
    struct replica a, shared, b;
    open_replica(&a, 1);
    open_replica(&shared, 1);
    open_replica(&b, 2);
    uint32_t f = create(&shared, "shared\0F", 8);
    append(&shared, f, 1, 1, 0);
    append(&a, ORSET_INBOX, 1, 2, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(take_over(&a, 1, &b, 2), ORSET_KNOWN);
    assert_equal(&a, &b);
    unsigned n = count(&shared, f, 1);
    close_replica(&a);
    close_replica(&shared);
    close_replica(&b);
    return n;
}

/* (e) The vector is raised with the last difference. Broken: at the hello; then the exchange is
 * given up. */
static unsigned raised_last(bool broken)
{
    struct replica a, b;
    struct orset_buf q = {.alloc = &HEAP}, answer = {.alloc = &HEAP};
    struct orset_exchange *x;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&b, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(orset_ask_hello(a.os, 2, &x, &q), 0);
    give(&b, 1, &q, &answer);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_take(a.os, x, answer.data, answer.len, &q), 0);
    if (broken)
        ck_assert_int_eq(orset_raise(a.os, x), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    orset_exchange_free(a.os, x);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    unsigned n = count(&b, ORSET_INBOX, 1);
    orset_buf_free(&q);
    orset_buf_free(&answer);
    close_replica(&a);
    close_replica(&b);
    return n;
}

START_TEST(test_a_vector_and_elements_of_one_moment)
{
    ck_assert_uint_eq(one_moment(false), 1);
    ck_assert_uint_eq(one_moment(true), 0);
}
END_TEST

START_TEST(test_b_the_vector_means_in_the_state)
{
    ck_assert_uint_eq(in_the_state(false, false), 1);
    ck_assert_uint_eq(in_the_state(true, false), 0);
}
END_TEST

START_TEST(test_c_no_number_is_given_twice)
{
    ck_assert_uint_eq(never_twice(false), 1);
    ck_assert_uint_eq(never_twice(true), 0);
}
END_TEST

START_TEST(test_d_a_vector_for_each_namespace)
{
    ck_assert_uint_eq(same_namespaces(), 1);
    ck_assert_uint_eq(in_the_state(true, true), 0);
}
END_TEST

START_TEST(test_e_the_vector_is_raised_last)
{
    ck_assert_uint_eq(raised_last(false), 1);
    ck_assert_uint_eq(raised_last(true), 0);
}
END_TEST

/* The giver lost its state in the middle and has what others gave it since: its answers are
 * older than its hello. */
START_TEST(test_a_giver_that_is_older_than_its_hello_is_noticed)
{
    struct replica a, b, fresh;
    struct orset_buf q = {.alloc = &HEAP}, answer = {.alloc = &HEAP};
    struct orset_exchange *x;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_copy(&fresh, b.mem, 2);
    append(&b, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(orset_ask_hello(a.os, 2, &x, &q), 0);
    give(&b, 1, &q, &answer);
    q.len = 0;
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_take(a.os, x, answer.data, answer.len, &q), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    give(&fresh, 1, &q, &answer);
    ck_assert_int_eq(orset_begin(a.os), 0);
    q.len = 0;
    ck_assert_int_eq(orset_take(a.os, x, answer.data, answer.len, &q), ORSET_E_ABSENT);
    orset_rollback(a.os);
    orset_exchange_free(a.os, x);
    ck_assert_int_eq(take_over(&a, 1, &b, 2), ORSET_KNOWN);
    assert_equal(&a, &b);
    orset_buf_free(&q);
    orset_buf_free(&answer);
    close_replica(&a);
    close_replica(&b);
    close_replica(&fresh);
}
END_TEST

/* --- what is remembered, and exchanges
 * ------------------------------------------------------------------------------------------- */

/* The first steps of an exchange: the folder's messages are merged, the vector is not raised. */
static void take_messages_only(struct replica *to, uint64_t site, struct replica *from,
                               uint64_t from_site)
{
    struct orset_buf q = {.alloc = &HEAP}, a = {.alloc = &HEAP};
    struct orset_exchange *x;
    ck_assert_int_eq(orset_ask_hello(to->os, from_site, &x, &q), 0);
    for (unsigned step = 0; step < 2; step++) { /* hello, messages; subscriptions would come now */
        give(from, site, &q, &a);
        q.len = 0;
        ck_assert_int_eq(orset_begin(to->os), 0);
        ck_assert_int_eq(orset_take(to->os, x, a.data, a.len, &q), 0);
        ck_assert_int_eq(orset_commit(to->os), 0);
    }
    orset_exchange_free(to->os, x);
    orset_buf_free(&q);
    orset_buf_free(&a);
}

START_TEST(test_what_an_unfinished_exchange_removed_stays_removed_when_its_add_comes)
{
    struct replica a, b, x;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&x, 3);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_subscribe(b.os, "\0F", 2, true), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    take_messages_only(&x, 3, &b, 2);
    ck_assert_uint_eq(count(&x, ORSET_INBOX, 1), 1);
    expunge(&b, ORSET_INBOX, 1);
    take_messages_only(&x, 3, &b, 2);
    ck_assert_uint_eq(count(&x, ORSET_INBOX, 1), 0);
    ck_assert_int_eq(send_to(&a, &x, 1, 1), 0);
    ck_assert_uint_eq(count(&x, ORSET_INBOX, 1), 0);
    close_replica(&a);
    close_replica(&b);
    close_replica(&x);
}
END_TEST

START_TEST(test_an_exchange_forgets_no_remove_above_what_it_covers)
{
    struct replica a, b, c, x;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 4);
    open_replica(&x, 3);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    append(&a, ORSET_INBOX, 2, 2, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    expunge(&b, ORSET_INBOX, 2);
    ck_assert_int_eq(send_to(&b, &x, 2, 1), 0); /* before the add it names */
    ck_assert_int_eq(take_over(&x, 3, &c, 4), ORSET_KNOWN);
    ck_assert_int_eq(send_to(&a, &x, 1, 3), 0);
    ck_assert_uint_eq(count(&x, ORSET_INBOX, 1), 1);
    ck_assert_uint_eq(count(&x, ORSET_INBOX, 2), 0);
    assert_equal(&x, &b);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
    close_replica(&x);
}
END_TEST

START_TEST(test_a_flag_that_came_before_its_message_is_there_when_an_exchange_brings_it)
{
    struct replica a, b, c, x;
    struct orset_flags flagged = {.system = ORSET_FLAGGED}, now;
    struct orset_dot d;
    struct orset_message m;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 4);
    open_replica(&x, 3);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_flags(b.os, ORSET_INBOX, 1, &flagged, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_int_eq(send_to(&b, &x, 2, 1), 0);
    ck_assert_int_eq(take_over(&x, 3, &c, 4), ORSET_KNOWN);
    follow(&x);
    ck_assert_int_eq(orset_message_by_uid(x.os, ORSET_INBOX, 1, &m), 1);
    d = m.dot;
    ck_assert_int_eq(orset_message_flags(x.os, ORSET_INBOX, d, &now), 0);
    ck_assert_uint_eq(now.system, ORSET_FLAGGED);
    assert_equal(&x, &b);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
    close_replica(&x);
}
END_TEST

TCase *exchange_cases(void)
{
    TCase *t = tcase_create("exchange");
    tcase_add_test(t, test_a_vector_and_elements_of_one_moment);
    tcase_add_test(t, test_b_the_vector_means_in_the_state);
    tcase_add_test(t, test_c_no_number_is_given_twice);
    tcase_add_test(t, test_d_a_vector_for_each_namespace);
    tcase_add_test(t, test_e_the_vector_is_raised_last);
    tcase_add_test(t, test_a_giver_that_is_older_than_its_hello_is_noticed);
    tcase_add_test(t, test_what_an_unfinished_exchange_removed_stays_removed_when_its_add_comes);
    tcase_add_test(t, test_an_exchange_forgets_no_remove_above_what_it_covers);
    tcase_add_test(t, test_a_flag_that_came_before_its_message_is_there_when_an_exchange_brings_it);
    return t;
}
