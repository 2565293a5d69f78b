/* unit - rules of the core one by one, each as a reader of orset.h would expect it; SQLite state
 * and reserve.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dovecot-plugin/store/reserve.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/orset/state/mailbox_tree.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "tests/unit/orset/unit.h"

struct names {
    char text[400];
};

static int add_name(void *arg, const struct orset_mailbox *m)
{
    struct names *n = arg;
    if (m->name) {
        strcat(n->text, m->folder == ORSET_NO_FOLDER ? "(" : "[");
        for (size_t i = 1; i < m->name_len; i++) {
            char c[2] = {m->name[i] ? m->name[i] : '/', 0};
            strcat(n->text, c);
        }
        strcat(n->text, m->folder == ORSET_NO_FOLDER ? ")" : "]");
    }
    return 0;
}

/* --- tests
 * -------------------------------------------------------------------------------------------------
 */

START_TEST(test_a_second_scan_makes_no_op)
{
    struct replica a;
    struct orset_facts f = {.guid = {1}, .sha256 = {1}};
    struct orset_flags seen = {.system = ORSET_SEEN};
    open_replica(&a, 1);
    append(&a, ORSET_INBOX, 1, 1, ORSET_SEEN);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 1, &f, &seen, NULL), ORSET_KNOWN);
    ck_assert_int_eq(orset_local_flags(a.os, ORSET_INBOX, 1, &seen, NULL), ORSET_KNOWN);
    ck_assert_int_eq(orset_local_flags(a.os, ORSET_INBOX, 1, &seen, &seen),
                     ORSET_OK); /* asserted again, explicitly */
    ck_assert_int_eq(orset_commit(a.os), 0);
    close_replica(&a);
}
END_TEST

/* b's client copies the mail to where a's copy is about to be placed. Unless b says so, a's removal
 * of its own copy takes b's away. */
START_TEST(test_what_a_client_saved_meanwhile_is_not_removed_with_the_peers)
{
    struct replica a, b;
    struct orset_facts f = facts_of(1, 0);
    struct orset_flags none = {0};
    struct orset_dot dot = {0, 0};
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_also(b.os, ORSET_INBOX, 7, &f, &none, &dot), ORSET_KNOWN);
    ck_assert_int_eq(orset_local_add(b.os, ORSET_INBOX, 7, &f, &none, &dot), ORSET_KNOWN);
    ck_assert_uint_ne(dot.counter, 0);
    struct orset_facts other = facts_of(1, 9);
    ck_assert_int_eq(orset_local_also(b.os, ORSET_INBOX, 7, &other, &none, &dot), ORSET_KNOWN);
    ck_assert_int_eq(orset_local_also(b.os, ORSET_INBOX, 7, &f, &none, &dot), ORSET_OK);
    ck_assert_uint_eq(dot.origin, orset_self(b.os));
    ck_assert_int_eq(orset_local_also(b.os, ORSET_INBOX, 7, &f, &none, &dot), ORSET_KNOWN);
    ck_assert_int_eq(orset_commit(b.os), 0);
    expunge(&a, ORSET_INBOX, 1);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    ck_assert_uint_eq(count(&a, ORSET_INBOX, 1), 1);
    ck_assert_uint_eq(count(&b, ORSET_INBOX, 1), 1);
    follow(&a);
    assert_equal(&a, &b);
    struct orset_message m;
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 7, &m), 1);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* Both between two scans: the mailbox looks as before. */
START_TEST(test_deleted_set_and_cleared_again_wins_over_a_setting_elsewhere)
{
    struct replica a, b;
    struct orset_message m;
    struct orset_flags none = {0}, deleted = {.system = ORSET_DELETED}, now;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_undeleted(a.os, ORSET_INBOX, 1, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_flags(b.os, ORSET_INBOX, 1, &deleted, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_rescued(b.os, ORSET_INBOX, m.dot), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 3), 0);
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_flags(b.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_int_eq(now.system, 0);
    ck_assert_int_eq(orset_message_rescued(b.os, ORSET_INBOX, m.dot), 1);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_a_keyword_the_mailbox_cannot_hold_is_not_read_back_as_removed)
{
    struct replica a, b;
    struct orset_flags none = {0}, kw = {.nkeywords = 1}, now;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(orset_begin(a.os), 0);
    kw.keyword[0] = (uint16_t)orset_keyword(a.os, "Urgent", 6);
    ck_assert_int_eq(orset_keyword(a.os, "uRGENT", 6), kw.keyword[0]);
    ck_assert_int_eq(orset_local_flags(a.os, ORSET_INBOX, 1, &kw, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 3), 0);
    /* b's mailbox could not set it, and is scanned again. */
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_done_flags(b.os, ORSET_INBOX, 1, &none), 0);
    ck_assert_int_eq(orset_local_flags(b.os, ORSET_INBOX, 1, &none, NULL), ORSET_KNOWN);
    struct orset_message m;
    ck_assert_int_eq(orset_message_by_uid(b.os, ORSET_INBOX, 1, &m), 1);
    ck_assert_int_eq(orset_message_flags(b.os, ORSET_INBOX, m.dot, &now), 0);
    ck_assert_int_eq(now.nkeywords, 1);
    ck_assert_int_eq(orset_commit(b.os), 0);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_missing_is_not_removed)
{
    struct replica a;
    struct orset_task t = {.at_len = 0};
    open_replica(&a, 1);
    append(&a, ORSET_INBOX, 1, 1, ORSET_FLAGGED);
    uint64_t before = orset_vector_get(a.os, orset_self(a.os));
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_missing(a.os, ORSET_INBOX, 1), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_uint_eq(orset_vector_get(a.os, orset_self(a.os)), before);
    while (orset_task_next(a.os, &t) > 0 && t.kind != ORSET_TASK_PLACE)
        ;
    ck_assert_int_eq(t.kind, ORSET_TASK_PLACE);
    ck_assert_int_eq(t.flags.system, ORSET_FLAGGED);
    close_replica(&a);
}
END_TEST

static unsigned rows_of(struct replica *r, enum orset_task_kind kind)
{
    struct orset_task t = {.at_len = 0};
    unsigned n = 0;
    while (orset_task_next(r->os, &t) > 0)
        n += t.kind == kind;
    return n;
}

/* Forty copies are there that were placed: the walk over a GUID's rows takes more than one page. */
START_TEST(test_a_source_is_removed_after_what_is_copied_from_it)
{
    struct replica a, b;
    struct orset_task t = {.at_len = 0};
    open_replica(&a, 1);
    open_replica(&b, 2);
    uint32_t g = create(&a, "\0G", 2);
    for (uint32_t uid = 1; uid <= 40; uid++)
        append(&a, ORSET_INBOX, uid, 1, 0);
    append(&a, ORSET_INBOX, 41, 2, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    uint64_t next = orset_vector_get(a.os, orset_self(a.os)) + 1;
    append(&a, g, 1, 1, 0);
    expunge(&a, ORSET_INBOX, 40);
    expunge(&a, ORSET_INBOX, 41);
    ck_assert_int_eq(send_to(&a, &b, 1, next), 0);
    ck_assert_uint_eq(rows_of(&b, ORSET_TASK_PLACE), 1);
    ck_assert_uint_eq(rows_of(&b, ORSET_TASK_REMOVE), 1); /* the other mail's */
    while (orset_task_next(b.os, &t) > 0 && t.kind != ORSET_TASK_PLACE)
        ;
    ck_assert_uint_ne(t.source_uid, 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_done_place(b.os, t.message.folder, t.message.dot, 1, &t.flags), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_uint_eq(rows_of(&b, ORSET_TASK_REMOVE), 2);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_cyclic_renames_lose_nothing_and_show_parents)
{
    struct replica a, b;
    struct names n = {""}, m = {""};
    open_replica(&a, 1);
    open_replica(&b, 2);
    uint32_t g = create(&a, "\0G", 2), p = create(&a, "\0P", 2);
    append(&a, g, 1, 1, 0);
    append(&a, p, 1, 2, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_rename(a.os, g, "\0P\0G", 4), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_rename(b.os, orset_folder_by_name(b.os, "\0P", 2), "\0G\0P", 4),
                     0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 7), 0);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    orset_tree(a.os, add_name, &n);
    orset_tree(b.os, add_name, &m);
    ck_assert_str_eq(n.text, "(G)[G/P](P)[P/G]");
    ck_assert_str_eq(n.text, m.text);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* b's user renames the mailbox when a's DELETE is in the state already, and the mailbox is still
 * there. c gets the two in the other order. */
START_TEST(test_a_rename_that_had_not_seen_the_deletion_outlives_it)
{
    struct replica a, b, c;
    struct names n = {""}, m = {""}, o = {""};
    struct orset_folder f;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 3);
    uint32_t x = create(&a, "\0F", 2);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    follow(&b);
    uint32_t y = orset_folder_by_name(b.os, "\0F", 2);
    uint64_t deletes = orset_vector_get(a.os, orset_self(a.os)) + 1;
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_delete(a.os, x), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(send_to(&a, &b, 1, deletes), 0);
    ck_assert_int_eq(orset_folder_get(b.os, y, &f), 0);
    ck_assert(!f.live);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_local_rename(b.os, y, "\0G", 2), ORSET_OK);
    ck_assert_int_eq(orset_local_rename(b.os, y, "\0G", 2), ORSET_KNOWN);
    ck_assert_int_eq(orset_commit(b.os), 0);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    ck_assert_int_eq(send_to(&b, &c, 2, 1), 0);
    ck_assert_int_eq(send_to(&a, &c, 1, deletes), 0);
    orset_tree(a.os, add_name, &n);
    orset_tree(b.os, add_name, &m);
    orset_tree(c.os, add_name, &o);
    ck_assert_str_eq(n.text, "[G]");
    ck_assert_str_eq(m.text, n.text);
    ck_assert_str_eq(o.text, n.text);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
}
END_TEST

START_TEST(test_two_ids_with_one_name_are_one_mailbox_until_one_is_renamed)
{
    struct replica a, b;
    struct names n = {""};
    struct orset_folder f;
    open_replica(&a, 1);
    open_replica(&b, 2);
    uint32_t x = create(&a, "\0Sent", 5), y = create(&b, "\0Sent", 5);
    append(&a, x, 1, 1, 0);
    append(&b, y, 1, 2, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), 0);
    follow(&a);
    orset_tree(b.os, add_name, &n);
    ck_assert_str_eq(n.text, "[Sent]");
    ck_assert_int_eq(orset_folder_get(b.os, y, &f), 0);
    ck_assert_uint_ne(f.home, y); /* the smaller id, site 1's, shows both */
    struct orset_message m;
    ck_assert_int_eq(
        orset_message_by_uid(b.os, f.home, 1, &m) + orset_message_by_uid(b.os, f.home, 2, &m), 2);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* A peer's mail that was not placed yet is no mail that whoever deletes the folder could see. */
static void delete_with_an_unplaced_mail(bool made_by_both, bool filled)
{
    struct replica a, b;
    struct orset_task t = {.at_len = 0};
    struct orset_folder f;
    open_replica(&a, 1);
    open_replica(&b, 2);
    uint32_t x = create(&a, "\0F", 2), y = made_by_both ? create(&b, "\0F", 2) : ORSET_NO_FOLDER;
    if (!made_by_both) {
        ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
        follow(&b);
        y = orset_folder_by_name(b.os, "\0F", 2);
    }
    if (filled)
        append(&a, x, 1, 1, 0);
    append(&b, y, 1, 2, 0);
    if (filled || made_by_both)
        ck_assert_int_eq(send_to(&a, &b, 1, made_by_both ? 1 : 2), 0);
    ck_assert_int_eq(orset_folder_get(b.os, y, &f), 0);
    uint32_t shown = f.home;
    ck_assert_int_eq(orset_begin(b.os), 0);
    while (orset_task_next(b.os, &t) > 0 && t.kind == ORSET_TASK_FOLDER)
        ck_assert_int_eq(orset_done_folder(b.os, t.folder), 0);
    ck_assert_int_eq(orset_local_delete(b.os, shown), 0);
    ck_assert_int_eq(orset_commit(b.os), 0);
    t.at_len = 0;
    ck_assert_int_gt(orset_task_next(b.os, &t), 0);
    ck_assert_int_eq(t.kind, ORSET_TASK_FOLDER);
    ck_assert_int_eq(orset_folder_get(b.os, t.folder, &f), 0);
    ck_assert(f.live && f.home == t.folder);
    close_replica(&a);
    close_replica(&b);
}

START_TEST(test_a_deleted_folder_that_lives_on_is_to_be_made_again)
{
    delete_with_an_unplaced_mail(false, true);
    delete_with_an_unplaced_mail(true, true);
    /* the other id's mail, which was to be placed in the deleted mailbox */
    delete_with_an_unplaced_mail(true, false);
}
END_TEST

START_TEST(test_a_peer_may_not_speak_for_another_nor_name_numbers_never_given)
{
    struct replica a, b;
    struct orset_buf out = {.alloc = &HEAP};
    struct orset_batch_result r;
    uint64_t next;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(orset_batch_make(a.os, 1, 1000, NULL, 0, &out, &next), 0);
    ck_assert_int_eq(orset_begin(b.os), 0);
    ck_assert_int_eq(orset_batch_apply(b.os, 3, out.data, out.len, &r), ORSET_E_FORGED);
    orset_rollback(b.os);
    for (size_t n = 0; n < out.len; n++) { /* cut anywhere */
        ck_assert_int_eq(orset_begin(b.os), 0);
        ck_assert_int_lt(orset_batch_apply(b.os, 1, out.data, n, &r), 0);
        orset_rollback(b.os);
    }
    orset_buf_free(&out);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_a_state_knows_what_its_vector_covers)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    uint64_t epoch = orset_origin_get(a.os, orset_self(a.os)).epoch;
    uint64_t last = orset_vector_get(a.os, orset_self(a.os));
    ck_assert(orset_knows(a.os, 1, epoch, last) && !orset_knows(a.os, 1, epoch, last + 1));
    ck_assert(!orset_knows(b.os, 1, epoch, 1));
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert(orset_knows(b.os, 1, epoch, last) && !orset_knows(b.os, 1, epoch, last + 1));
    ck_assert(!orset_knows(b.os, 1, epoch + 1, 1) && !orset_knows(b.os, 3, epoch, 1));
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_a_uidvalidity_of_the_far_future_is_refused)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_uid_validity(a.os, ORSET_INBOX, 3000000000U, 2999999999), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    orset_bound_uid_validity(b.os, 2000000000);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), ORSET_E_MALFORMED);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_an_error_calls_a_folder_by_its_name)
{
    struct replica a;
    uint32_t folder;
    open_replica(&a, 1);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_create(a.os, "\0Work\0Old", 9, 5, (const uint8_t[16]){1}, &folder),
                     0);
    ck_assert_int_eq(orset_local_uid_validity(a.os, folder, 7, 1), 0);
    ck_assert_int_eq(orset_local_uid_validity(a.os, folder, 3000000000U, 5), ORSET_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(orset_error_text(a.os), " of Work/Old:"));
    ck_assert_int_eq(orset_local_uid_validity(a.os, ORSET_INBOX, 3000000000U, 5), ORSET_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(orset_error_text(a.os), " of INBOX:"));
    ck_assert_int_eq(orset_commit(a.os), 0);
    close_replica(&a);
}
END_TEST

START_TEST(test_a_uid_that_another_site_gave_is_known_when_its_mail_is_gone)
{
    struct replica a, b;
    struct orset_folder f;
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 7, 1, 0);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_expunge(a.os, ORSET_INBOX, 7), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_folder_get(b.os, ORSET_INBOX, &f), 0);
    ck_assert_uint_eq(f.uid_given, 1);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    ck_assert_int_eq(orset_folder_get(b.os, ORSET_INBOX, &f), 0);
    ck_assert_uint_eq(f.uid_given, 8);
    ck_assert_uint_eq(f.given_site, 1);
    ck_assert_uint_eq(f.uid_next, 1);
    ck_assert_int_eq(orset_folder_get(a.os, ORSET_INBOX, &f), 0);
    ck_assert_uint_eq(f.uid_given, 1);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_an_old_copy_of_a_state_is_noticed_and_two_ops_under_one_number_too)
{
    struct replica a, b, old;
    struct orset_store s;
    struct orset_origin me = {1, 101};
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    old.mem = orset_memstore_copy(a.mem);
    append(&a, ORSET_INBOX, 2, 2, 0);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    append(&b, ORSET_INBOX, 3, 3, 0);
    orset_memstore_interface(old.mem, &s);
    ck_assert_int_eq(orset_open(&old.os, &HEAP, &s, &me, NULL), 0);
    ck_assert_int_eq(send_to(&b, &old, 2, 1), ORSET_E_ROLLED_BACK);
    /* It did not ask and gave the numbers again: the chain tells. */
    append(&old, ORSET_INBOX, 5, 9, 0);
    append(&old, ORSET_INBOX, 6, 8, 0);
    ck_assert_int_eq(send_to(&old, &b, 1, 5), ORSET_E_FORKED);
    close_replica(&a);
    close_replica(&b);
    close_replica(&old);
}
END_TEST

START_TEST(test_no_memory_at_any_point_changes_nothing)
{
    struct replica a, b;
    struct orset_buf out = {.alloc = &HEAP};
    struct orset_batch_result r;
    uint64_t next;
    uint8_t before[16], now[16];
    open_replica(&a, 1);
    open_replica(&b, 2);
    create(&a, "\0F", 2);
    append(&a, ORSET_INBOX, 1, 1, ORSET_SEEN);
    append(&a, ORSET_INBOX, 2, 1, 0);
    ck_assert_int_eq(orset_batch_make(a.os, 1, 100000, NULL, 0, &out, &next), 0);
    orset_digest(b.os, before);
    int e = -1;
    for (long n = 0; e < 0 && n < 2000; n++) {
        fail_after = n;
        e = orset_begin(b.os);
        if (e == 0)
            e = orset_batch_apply(b.os, 1, out.data, out.len, &r);
        if (e == 0)
            e = orset_commit(b.os);
        fail_after = -1;
        if (e < 0) {
            ck_assert_int_eq(e, ORSET_E_MEMORY - (e == ORSET_E_STORAGE));
            orset_rollback(b.os);
            orset_digest(b.os, now);
            ck_assert_mem_eq(before, now, 16);
        }
    }
    ck_assert_int_eq(e, 0);
    orset_digest(a.os, before);
    orset_digest(b.os, now);
    ck_assert_mem_eq(before, now, 16);
    orset_buf_free(&out);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_the_sqlite_state_survives_and_refuses_newer_schemas)
{
    char path[] = "/tmp/orset-state-XXXXXX", *error = NULL;
    struct state_sqlite *s;
    struct orset_store store;
    struct orset_origin me = {1, 101};
    struct replica a = {.mem = NULL};
    uint8_t before[16], now[16];
    bool created;
    close(mkstemp(path));
    ck_assert_int_eq(state_sqlite_open(&s, path, &error), 0);
    state_sqlite_interface(s, &store);
    ck_assert_int_eq(orset_open(&a.os, &HEAP, &store, &me, &created), 0);
    ck_assert(created);
    create(&a, "\0F", 2);
    for (uint32_t i = 1; i < 200; i++)
        append(&a, ORSET_INBOX, i, (uint8_t)i, ORSET_SEEN);
    orset_digest(a.os, before);
    /* A transaction that is not committed leaves nothing. */
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_expunge(a.os, ORSET_INBOX, 5), 0);
    orset_close(a.os);
    state_sqlite_close(s);
    ck_assert_int_eq(state_sqlite_open(&s, path, &error), 0);
    state_sqlite_interface(s, &store);
    ck_assert_int_eq(orset_open(&a.os, &HEAP, &store, &me, &created), 0);
    ck_assert(!created);
    orset_digest(a.os, now);
    ck_assert_mem_eq(before, now, 16);
    ck_assert_int_eq(state_sqlite_rows(s, ORSET_T_MESSAGE), 199);
    orset_close(a.os);
    state_sqlite_close(s);
    char command[200];
    snprintf(command, sizeof command, "sqlite3 %s 'PRAGMA user_version = 99' 2>/dev/null", path);
    if (system(command) == 0) {
        ck_assert_int_eq(state_sqlite_open(&s, path, &error), -1);
        ck_assert_ptr_nonnull(strstr(error, "version 99"));
        free(error);
    }
    unlink(path);
}
END_TEST

START_TEST(test_the_reserve_tells_a_state_that_lost_numbers)
{
    char path[] = "/tmp/orset-reserve-XXXXXX";
    struct reserve *r;
    uint8_t key[16] = {1}, other[16] = {2};
    close(mkstemp(path));
    ck_assert_int_eq(reserve_open(&r, path, 7), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 0), RESERVE_GO_ON);
    ck_assert_int_eq(reserve_raise(r, key, 50, 1), 0);
    ck_assert_int_eq(reserve_note(r, key, 120), 0);
    reserve_close(r);
    /* The process died, the host did not: the state must have what was noted. */
    ck_assert_int_eq(reserve_open(&r, path, 7), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 120), RESERVE_GO_ON);
    ck_assert_int_eq(reserve_check(r, key, 50, 119), RESERVE_NEW_EPOCH);
    reserve_close(r);
    ck_assert_int_eq(reserve_open(&r, path, 8), 0);
    /* Power was lost: what was committed last may be gone. */
    ck_assert_int_eq(reserve_check(r, key, 50, 120), RESERVE_NEW_EPOCH);
    ck_assert_int_eq(reserve_clean(r, key, 51, 10), 0);
    /* A state that has given numbers, of which this file knows nothing: restored from a backup
     * without it. */
    ck_assert_int_eq(reserve_check(r, other, 60, 3), RESERVE_NEW_EPOCH);
    /* it died before it had one */
    ck_assert_int_eq(reserve_check(r, other, 60, 3), RESERVE_NEW_EPOCH);
    ck_assert_int_eq(reserve_raise(r, other, 61, 1), 0);
    ck_assert_int_eq(reserve_note(r, other, 1), 0);
    ck_assert_int_eq(reserve_check(r, other, 61, 1), RESERVE_GO_ON);
    reserve_close(r);
    ck_assert_int_eq(reserve_open(&r, path, 9), 0);
    ck_assert_int_eq(reserve_check(r, key, 51, 10), RESERVE_GO_ON);
    ck_assert_int_eq(reserve_clean(r, key, 51, 10), 0);
    ck_assert_int_eq(reserve_check(r, key, 51, 9), RESERVE_NEW_EPOCH);
    /* Who is made again under the name of one who was forgotten begins with the first number. */
    ck_assert_int_eq(reserve_forget(r, (uint8_t[16]){3}), 0);
    ck_assert_uint_eq(reserve_epoch(r, (uint8_t[16]){3}), 0);
    ck_assert_uint_eq(reserve_epoch(r, other), 61);
    ck_assert_int_eq(reserve_forget(r, other), 0);
    ck_assert_uint_eq(reserve_epoch(r, other), 0);
    reserve_close(r);
    ck_assert_int_eq(reserve_open(&r, path, 9), 0);
    ck_assert_int_eq(reserve_check(r, other, 62, 0), RESERVE_GO_ON);
    reserve_close(r);
    unlink(path);
}
END_TEST

static struct timespec changed_at(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return st.st_mtim;
}

START_TEST(test_a_state_that_gives_no_number_writes_no_reserve)
{
    char path[] = "/tmp/orset-reserve-XXXXXX";
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct reserve *r;
    uint8_t key[16] = {1};
    close(mkstemp(path));
    ck_assert_int_eq(reserve_open(&r, path, 7), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 0), RESERVE_GO_ON);
    ck_assert_int_eq(reserve_raise(r, key, 50, 5), 0);
    ck_assert_int_eq(reserve_note(r, key, 5), 0);
    ck_assert_int_eq(reserve_clean(r, key, 50, 5), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    /* A sweep, and one that is cut off before its end. */
    ck_assert_int_eq(reserve_check(r, key, 50, 5), RESERVE_GO_ON);
    ck_assert_int_eq(reserve_clean(r, key, 50, 5), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 5), RESERVE_GO_ON);
    reserve_close(r);
    ck_assert_int_eq(reserve_open(&r, path, 8), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 5), RESERVE_GO_ON);
    ck_assert_int_eq(changed_at(path).tv_sec, 1000);
    /* The first number, in a later boot than the one in which it was stopped: from here on it is
     * in use. */
    ck_assert_int_eq(reserve_raise(r, key, 50, 6), 0);
    ck_assert_int_gt(changed_at(path).tv_sec, 1000);
    reserve_close(r);
    ck_assert_int_eq(reserve_open(&r, path, 8), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 5), RESERVE_GO_ON); /* it died before its commit */
    reserve_close(r);
    ck_assert_int_eq(reserve_open(&r, path, 9), 0);
    ck_assert_int_eq(reserve_check(r, key, 50, 6), RESERVE_NEW_EPOCH); /* power was lost */
    reserve_close(r);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("orset");
    TCase *t = tcase_create("rules");
    tcase_add_test(t, test_a_second_scan_makes_no_op);
    tcase_add_test(t, test_what_a_client_saved_meanwhile_is_not_removed_with_the_peers);
    tcase_add_test(t, test_deleted_set_and_cleared_again_wins_over_a_setting_elsewhere);
    tcase_add_test(t, test_a_keyword_the_mailbox_cannot_hold_is_not_read_back_as_removed);
    tcase_add_test(t, test_missing_is_not_removed);
    tcase_add_test(t, test_a_source_is_removed_after_what_is_copied_from_it);
    tcase_add_test(t, test_cyclic_renames_lose_nothing_and_show_parents);
    tcase_add_test(t, test_a_rename_that_had_not_seen_the_deletion_outlives_it);
    tcase_add_test(t, test_two_ids_with_one_name_are_one_mailbox_until_one_is_renamed);
    tcase_add_test(t, test_a_deleted_folder_that_lives_on_is_to_be_made_again);
    tcase_add_test(t, test_a_peer_may_not_speak_for_another_nor_name_numbers_never_given);
    tcase_add_test(t, test_a_state_knows_what_its_vector_covers);
    tcase_add_test(t, test_a_uidvalidity_of_the_far_future_is_refused);
    tcase_add_test(t, test_an_error_calls_a_folder_by_its_name);
    tcase_add_test(t, test_a_uid_that_another_site_gave_is_known_when_its_mail_is_gone);
    tcase_add_test(t, test_an_old_copy_of_a_state_is_noticed_and_two_ops_under_one_number_too);
    tcase_add_test(t, test_no_memory_at_any_point_changes_nothing);
    tcase_add_test(t, test_the_sqlite_state_survives_and_refuses_newer_schemas);
    tcase_add_test(t, test_the_reserve_tells_a_state_that_lost_numbers);
    tcase_add_test(t, test_a_state_that_gives_no_number_writes_no_reserve);
    suite_add_tcase(s, t);
    suite_add_tcase(s, exchange_cases());
    suite_add_tcase(s, epoch_cases());
    suite_add_tcase(s, join_cases());
    suite_add_tcase(s, left_cases());
    suite_add_tcase(s, bounds_cases());
    suite_add_tcase(s, hostile_cases());
    suite_add_tcase(s, meanwhile_cases());
    suite_add_tcase(s, uid_cases());
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
