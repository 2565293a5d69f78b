/* unit_epoch - old copies of a state, and what a new epoch does (F20). */
#include "tests/unit/orset/unit.h"

static void new_epoch(struct replica *r, uint64_t epoch)
{
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_new_epoch(r->os, epoch), 0);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

static void hello(struct replica *from, struct replica *to, uint64_t site, int result)
{
    ck_assert_int_eq(send_to(from, to, site, orset_vector_get(from->os, orset_self(from->os)) + 1),
                     result);
}

static void set_attribute(struct replica *r, const char *value)
{
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_local_attribute(r->os, ORSET_NO_FOLDER, "sieve", 5,
                                           (const uint8_t *)value, strlen(value)),
                     ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

/* Restored, its user works on, then a peer's hello shows it; on both sides of the peer's
 * counter. */
static void works_on(unsigned lost, unsigned since)
{
    struct replica a, b, old;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    hello(&b, &a, 2, 0); /* shared so far */
    open_copy(&old, a.mem, 1);
    for (unsigned i = 0; i < lost; i++)
        append(&a, ORSET_INBOX, 2 + i, (uint8_t)(10 + i), ORSET_SEEN);
    set_attribute(&a, "lost");
    ck_assert_int_eq(send_to(&a, &b, 1, 3), 0);
    follow(&b);
    /* What the old copy's user does: mails, a mark, an expunge, a folder with a mail, its
     * subscription, a setting. */
    for (unsigned i = 0; i < since; i++)
        append(&old, ORSET_INBOX, 2 + i, (uint8_t)(20 + i), ORSET_FLAGGED);
    set_attribute(&old, "since"); /* under the stamp that "lost" has */
    uint32_t f = create(&old, "\0New", 4);
    append(&old, f, 1, 30, 0);
    ck_assert_int_eq(orset_begin(old.os), 0);
    struct orset_flags flagged = {.system = ORSET_FLAGGED};
    ck_assert_int_eq(orset_local_flags(old.os, ORSET_INBOX, 1, &flagged, NULL), ORSET_OK);
    ck_assert_int_eq(orset_local_subscribe(old.os, "\0New", 4, true), ORSET_OK);
    ck_assert_int_eq(orset_local_attribute(old.os, f, "k", 1, (const uint8_t *)"v", 1), ORSET_OK);
    ck_assert_int_eq(orset_commit(old.os), 0);
    hello(&b, &old, 2, ORSET_E_ROLLED_BACK);
    new_epoch(&old, 7);
    ck_assert_int_eq(take_over(&old, 1, &b, 2), ORSET_KNOWN);
    ck_assert_int_eq(take_over(&b, 2, &old, 1), ORSET_KNOWN);
    follow(&old);
    follow(&b);
    assert_equal(&old, &b);
    /* Nothing is lost of either history, and nothing is twice. */
    ck_assert_uint_eq(count(&b, ORSET_INBOX, 1), 1);
    for (unsigned i = 0; i < lost; i++)
        ck_assert_uint_eq(count(&old, ORSET_INBOX, (uint8_t)(10 + i)), 1);
    for (unsigned i = 0; i < since; i++)
        ck_assert_uint_eq(count(&b, ORSET_INBOX, (uint8_t)(20 + i)), 1);
    uint32_t g = orset_folder_by_name(b.os, "\0New", 4);
    ck_assert_uint_ne(g, ORSET_NO_FOLDER);
    ck_assert_uint_eq(count(&b, g, 30), 1);
    ck_assert(orset_subscribed(b.os, "\0New", 4));
    const uint8_t *v;
    size_t len;
    ck_assert_int_eq(orset_attribute_get(b.os, g, "k", 1, &v, &len), 1);
    struct orset_flags now;
    struct orset_message m;
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_flags(b.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_uint_eq(now.system, ORSET_FLAGGED);
    /* And both go on. */
    append(&old, ORSET_INBOX, 40, 40, 0);
    ck_assert_int_eq(send_to(&old, &b, 1, orset_vector_get(old.os, orset_self(old.os)) - 1), 0);
    assert_equal(&old, &b);
    close_replica(&a);
    close_replica(&b);
    close_replica(&old);
}

START_TEST(test_what_was_done_since_a_restore_is_renumbered_when_the_peer_is_ahead)
{
    works_on(8, 1);
}
END_TEST

START_TEST(test_what_was_done_since_a_restore_is_renumbered_when_the_own_counter_is_ahead)
{
    works_on(1, 8);
}
END_TEST

/* The state is older than its mailbox: a mail was saved there since, and told. What its reader at the
 * peer did to it, he did to that one: it gets no second dot, which would outlive his removal. */
START_TEST(test_a_mail_that_an_earlier_epoch_told_of_is_not_told_again)
{
    struct replica a, b, old;
    struct orset_facts f = facts_of(1, 0);
    struct orset_flags seen = {.system = ORSET_SEEN}, none = {0};
    struct orset_dot dot = {0, 0};
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_copy(&old, a.mem, 1);
    append(&a, ORSET_INBOX, 1, 1, ORSET_SEEN);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_flags(b.os, ORSET_INBOX, 1, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(b.os), 0);
    new_epoch(&old, 7);
    ck_assert_int_eq(take_over(&old, 1, &b, 2), ORSET_KNOWN);
    ck_assert_int_eq(orset_begin(old.os), 0);
    ck_assert_int_eq(orset_local_add(old.os, ORSET_INBOX, 1, &f, &seen, &dot), ORSET_KNOWN);
    ck_assert_int_eq(orset_local_also(old.os, ORSET_INBOX, 1, &f, &seen, &dot), ORSET_KNOWN);
    ck_assert_int_eq(orset_commit(old.os), 0);
    expunge(&b, ORSET_INBOX, 1);
    ck_assert_int_eq(take_over(&old, 1, &b, 2), ORSET_KNOWN);
    ck_assert_int_eq(take_over(&b, 2, &old, 1), ORSET_KNOWN);
    ck_assert_uint_eq(count(&old, ORSET_INBOX, 1), 0);
    assert_equal(&old, &b);
    close_replica(&a);
    close_replica(&b);
    close_replica(&old);
}
END_TEST

START_TEST(test_a_state_without_a_peer_s_word_renumbers_and_doubles_nothing)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0); /* and b's vector never came back */
    new_epoch(&a, 7);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    ck_assert_int_eq(take_over(&a, 1, &b, 2), ORSET_KNOWN);
    follow(&b);
    assert_equal(&a, &b);
    struct orset_folder f;
    ck_assert_int_eq(orset_folder_get(b.os, ORSET_INBOX, &f), 0);
    ck_assert_uint_eq(f.messages, 2); /* dots */
    ck_assert_uint_eq(f.uid_next, 2); /* one mail */
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_after_a_power_loss_nothing_is_renumbered_and_removed_stays_removed)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    expunge(&a, ORSET_INBOX, 1);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_epoch_trust(a.os), 0);
    ck_assert_int_eq(orset_new_epoch(a.os, 7), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(take_over(&a, 1, &b, 2), ORSET_KNOWN);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    ck_assert_uint_eq(count(&a, ORSET_INBOX, 1) + count(&b, ORSET_INBOX, 1), 0);
    assert_equal(&a, &b);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_a_peer_ahead_of_an_epoch_just_drawn_lies)
{
    struct replica a, b, other;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&other, 1); /* the same site and epoch: what a forger would say */
    append(&other, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&other, &b, 1, 1), 0);
    hello(&b, &a, 2, ORSET_E_FORGED);
    close_replica(&a);
    close_replica(&b);
    close_replica(&other);
}
END_TEST

START_TEST(test_a_peer_that_gives_itself_less_than_is_known_of_it_is_told)
{
    struct replica a, b, old;
    struct orset_buf out = {.alloc = &HEAP};
    struct orset_batch_result r;
    uint64_t next;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_copy(&old, a.mem, 1);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_ge(orset_batch_make(old.os, 1, 100, NULL, 0, &out, &next), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_batch_apply(b.os, 1, out.data, out.len, &r), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert(r.lost);
    orset_buf_free(&out);
    close_replica(&a);
    close_replica(&b);
    close_replica(&old);
}
END_TEST

/* A third party heard of the lost future second hand: its vector says nothing, what it remembers
 * does. */
START_TEST(test_in_doubt_any_mention_of_a_new_number_shows_the_old_copy)
{
    struct replica a, b, c, old;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 3);
    open_copy(&old, a.mem, 1);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    expunge(&b, ORSET_INBOX, 1);
    ck_assert_int_eq(send_to(&b, &c, 2, 1), 0); /* c remembers that number 1 of site 1 is removed */
    ck_assert_int_eq(orset_begin(old.os), 0);
    ck_assert_int_eq(orset_epoch_doubt(old.os, true), 0);
    ck_assert_int_eq(orset_commit(old.os), 0);
    append(&old, ORSET_INBOX, 1, 2, 0);
    ck_assert_int_eq(take_over(&c, 3, &old, 1), ORSET_E_EXCHANGE); /* it does not answer */
    ck_assert_int_eq(take_over(&old, 1, &c, 3), ORSET_E_ROLLED_BACK);
    new_epoch(&old, 7);
    ck_assert_int_eq(take_over(&old, 1, &c, 3), ORSET_KNOWN);
    ck_assert_int_eq(take_over(&c, 3, &old, 1), ORSET_KNOWN);
    ck_assert_uint_eq(count(&c, ORSET_INBOX, 2), 1);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
    close_replica(&old);
}
END_TEST

/* How much is left to be done. */
static unsigned to_do(struct replica *r, enum orset_task_kind kind)
{
    struct orset_task t = {.at_len = 0};
    unsigned n = 0;
    while (orset_task_next(r->os, &t) > 0)
        n += t.kind == kind;
    return n;
}

/* Of a mailbox that shows what nobody did: an old backup's, or less. No op, and the state's is
 * to be had again. */
START_TEST(test_what_is_shown_by_nobodys_doing_is_made_as_the_state_has_it)
{
    struct replica a;
    open_replica(&a, 1);
    set_attribute(&a, "old");
    set_attribute(&a, "new");
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_subscribe(a.os, "\0F", 2, true), 0);
    uint64_t counter = orset_vector_get(a.os, orset_self(a.os));
    const uint8_t *old = (const uint8_t *)"old", *new = (const uint8_t *)"new";
    ck_assert_int_eq(orset_local_attribute_shown(a.os, ORSET_NO_FOLDER, "sieve", 5, old, 3),
                     ORSET_OK);
    ck_assert_int_eq(orset_local_attribute_shown(a.os, ORSET_NO_FOLDER, "never", 5, old, 3),
                     ORSET_OK);
    ck_assert_int_eq(orset_local_subscription_shown(a.os, "\0F", 2, false), ORSET_OK);
    ck_assert_int_eq(orset_local_subscription_shown(a.os, "\0G", 2, true), ORSET_OK);
    ck_assert_uint_eq(to_do(&a, ORSET_TASK_ATTRIBUTE), 2);
    ck_assert_uint_eq(to_do(&a, ORSET_TASK_SUBSCRIPTION), 2);
    ck_assert_int_eq(orset_local_attribute_shown(a.os, ORSET_NO_FOLDER, "sieve", 5, new, 3),
                     ORSET_KNOWN);
    ck_assert_int_eq(orset_local_attribute_shown(a.os, ORSET_NO_FOLDER, "never", 5, NULL, 0),
                     ORSET_KNOWN);
    ck_assert_int_eq(orset_local_subscription_shown(a.os, "\0F", 2, true), ORSET_KNOWN);
    ck_assert_int_eq(orset_local_subscription_shown(a.os, "\0G", 2, false), ORSET_KNOWN);
    ck_assert_uint_eq(to_do(&a, ORSET_TASK_ATTRIBUTE) + to_do(&a, ORSET_TASK_SUBSCRIPTION), 0);
    ck_assert_uint_eq(orset_vector_get(a.os, orset_self(a.os)), counter);
    ck_assert_int_eq(orset_commit(a.os), 0);
    close_replica(&a);
}
END_TEST

struct spoil {
    uint64_t epoch;
    uint8_t key[16], value[256];
    size_t key_len, len;
};

static int find_epoch(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
                      size_t len)
{
    struct spoil *s = arg;
    struct orset_reader r = orset_reader_of(value, len);
    (void)orset_read_u64(&r);
    if (orset_read_u64(&r) != s->epoch)
        return 0;
    ck_assert(key_len <= sizeof s->key && len <= sizeof s->value);
    memcpy(s->key, key, s->key_len = key_len);
    memcpy(s->value, value, s->len = len);
    return 1;
}

/* The running hash of an epoch's ops, in the row of it: a bit of the disk. */
static void spoil_hash(struct replica *a, uint64_t number)
{
    struct spoil s = {.epoch = 101};
    struct orset_origin me = {1, 7};
    struct orset_store store;
    orset_close(a->os);
    orset_memstore_interface(a->mem, &store);
    ck_assert_int_eq(store.each(store.ctx, ORSET_T_ORIGIN, "", 0, 0, find_epoch, &s), 1);
    struct orset_reader r = orset_reader_of(s.value, s.len);
    (void)orset_read_u64(&r), (void)orset_read_u64(&r);
    ck_assert_uint_eq(orset_read_num(&r, UINT64_MAX), number);
    s.value[r.at - s.value] ^= 1;
    ck_assert_int_eq(store.begin(store.ctx), 0);
    s.len -= 4; /* no seal, as a program wrote it that knows none: a seal tells of it */
    ck_assert_int_eq(store.put(store.ctx, ORSET_T_ORIGIN, s.key, s.key_len, s.value, s.len), 0);
    ck_assert_int_eq(store.commit(store.ctx), 0);
    ck_assert_int_eq(orset_open(&a->os, &HEAP, &store, &me, NULL), 0);
}

START_TEST(test_a_spoilt_hash_of_an_epoch_that_is_over_stops_nobody)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0); /* and its presence */
    append(&a, ORSET_INBOX, 2, 2, 0);
    uint64_t n = orset_vector_get(a.os, orset_self(a.os));
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_epoch_trust(a.os), 0);
    ck_assert_int_eq(orset_new_epoch(a.os, 7), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(take_over(&b, 2, &a, 1), ORSET_KNOWN);
    spoil_hash(&a, n);
    append(&a, ORSET_INBOX, 3, 3, 0);
    append(&b, ORSET_INBOX, 4, 4, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    follow(&a);
    follow(&b);
    ck_assert_uint_eq(count(&b, ORSET_INBOX, 3) + count(&a, ORSET_INBOX, 4), 2);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

TCase *epoch_cases(void)
{
    TCase *t = tcase_create("epoch");
    tcase_add_test(t, test_what_was_done_since_a_restore_is_renumbered_when_the_peer_is_ahead);
    tcase_add_test(t,
                   test_what_was_done_since_a_restore_is_renumbered_when_the_own_counter_is_ahead);
    tcase_add_test(t, test_a_mail_that_an_earlier_epoch_told_of_is_not_told_again);
    tcase_add_test(t, test_a_state_without_a_peer_s_word_renumbers_and_doubles_nothing);
    tcase_add_test(t, test_after_a_power_loss_nothing_is_renumbered_and_removed_stays_removed);
    tcase_add_test(t, test_in_doubt_any_mention_of_a_new_number_shows_the_old_copy);
    tcase_add_test(t, test_a_peer_ahead_of_an_epoch_just_drawn_lies);
    tcase_add_test(t, test_a_peer_that_gives_itself_less_than_is_known_of_it_is_told);
    tcase_add_test(t, test_a_spoilt_hash_of_an_epoch_that_is_over_stops_nobody);
    tcase_add_test(t, test_what_is_shown_by_nobodys_doing_is_made_as_the_state_has_it);
    return t;
}
