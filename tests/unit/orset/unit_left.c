/* unit_left - mails that a mailbox showed by a name, and that leave it for another mailbox of that
 * name: a client who deletes what he saw deletes them, too (orset_local_delete_left), and what he
 * did to one of them in the mailbox that it leaves is said of that one. */
#include "tests/unit/orset/unit.h"

static const char NAME[] = "\0F";
#define NAME_LEN 2
#define OTHER "\0G"

/* Site 2 made the folder and put mails 7 and 8 into it. Site 1 made one of that name, in whose
 * mailbox both are shown at site 2 by now: the mails wait to be placed there. */
struct pair {
    struct replica a, b;
    uint32_t theirs, own; /* folders, at site 2 */
};

static uint32_t folder_of_site(struct replica *r, uint64_t site)
{
    struct orset_folder f;
    for (uint32_t i = 1; orset_folder_get(r->os, i, &f) == 0; i++)
        if (f.id_origin.site == site)
            return i;
    ck_abort_msg("site %llu has made no folder", (unsigned long long)site);
}

static bool is_live(struct replica *r, uint32_t folder)
{
    struct orset_folder f;
    ck_assert_int_eq(orset_folder_get(r->os, folder, &f), 0);
    return f.live;
}

/* called: what site 2's folder is called first; it gets the name when the other one is known. */
static void open_pair(struct pair *p, const char *called)
{
    struct orset_folder f;
    open_replica(&p->a, 1);
    open_replica(&p->b, 2);
    create(&p->a, NAME, NAME_LEN);
    uint32_t own = create(&p->b, called, NAME_LEN);
    append(&p->b, own, 1, 7, 0);
    append(&p->b, own, 2, 8, ORSET_SEEN);
    ck_assert_int_eq(send_to(&p->a, &p->b, 1, 1), 0);
    p->own = folder_of_site(&p->b, 2);
    p->theirs = folder_of_site(&p->b, 1);
    if (memcmp(called, NAME, NAME_LEN) != 0) {
        ck_assert_int_eq(orset_begin(p->b.os), 0);
        ck_assert_int_eq(orset_local_rename(p->b.os, p->own, NAME, NAME_LEN), ORSET_OK);
        ck_assert_int_eq(orset_homes(p->b.os), 0);
        ck_assert_int_eq(orset_commit(p->b.os), 0);
    }
    ck_assert_int_eq(orset_folder_get(p->b.os, p->own, &f), 0);
    ck_assert_uint_eq(f.home, p->theirs);
}

static void close_pair(struct pair *p)
{
    close_replica(&p->a);
    close_replica(&p->b);
}

static bool shown(void *arg, uint32_t folder)
{
    const uint32_t *those = arg;
    return folder == *those;
}

static int delete_left(struct replica *r, const char *name, uint32_t shown_folder)
{
    ck_assert_int_eq(orset_begin(r->os), 0);
    int e = orset_local_delete_left(r->os, name, NAME_LEN, shown, &shown_folder);
    if (e < 0)
        orset_rollback(r->os);
    else
        ck_assert_int_eq(orset_commit(r->os), 0);
    return e;
}

static void both_hear(struct pair *p)
{
    ck_assert_int_eq(send_to(&p->b, &p->a, 2, 1), 0);
    ck_assert_int_eq(send_to(&p->a, &p->b, 1, 1), 0);
    follow(&p->a);
    follow(&p->b);
    assert_equal(&p->a, &p->b);
}

START_TEST(mails_that_wait_go_with_the_name_and_their_folder_with_them)
{
    struct pair p;
    uint64_t number;
    open_pair(&p, NAME);
    number = orset_vector_get(p.b.os, orset_self(p.b.os));
    ck_assert_int_eq(delete_left(&p.b, OTHER, p.theirs), ORSET_KNOWN);
    ck_assert_uint_eq(orset_vector_get(p.b.os, orset_self(p.b.os)), number);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 2);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_OK);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 0);
    ck_assert(!is_live(&p.b, p.own));
    ck_assert(is_live(&p.b, p.theirs)); /* of it he has seen nothing */
    number = orset_vector_get(p.b.os, orset_self(p.b.os));
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_KNOWN);
    ck_assert_uint_eq(orset_vector_get(p.b.os, orset_self(p.b.os)), number);
    both_hear(&p);
    ck_assert_uint_eq(count(&p.a, folder_of_site(&p.a, 2), 7), 0);
    ck_assert(!is_live(&p.a, folder_of_site(&p.a, 2)));
    close_pair(&p);
}
END_TEST

START_TEST(a_folder_that_has_a_mailbox_stays)
{
    struct pair p;
    open_pair(&p, NAME);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.own), ORSET_OK);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 0);
    ck_assert(is_live(&p.b, p.own));
    both_hear(&p);
    close_pair(&p);
}
END_TEST

/* What was placed in the other mailbox is seen there; what was not placed goes. */
START_TEST(a_mail_that_was_placed_stays)
{
    struct pair p;
    struct orset_task t = {.at_len = 0};
    struct orset_flags none = {0};
    open_pair(&p, NAME);
    ck_assert_int_eq(orset_begin(p.b.os), 0);
    while (orset_task_next(p.b.os, &t) > 0 &&
           (t.kind != ORSET_TASK_PLACE || t.message.facts.guid[0] != 7))
        ;
    ck_assert_int_eq(t.kind, ORSET_TASK_PLACE);
    ck_assert_uint_eq(t.message.facts.guid[0], 7);
    ck_assert_int_eq(orset_done_place(p.b.os, t.message.folder, t.message.dot, 1, &none), 0);
    ck_assert_int_eq(orset_commit(p.b.os), 0);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_OK);
    ck_assert_uint_eq(count(&p.b, p.own, 7), 1);
    ck_assert_uint_eq(count(&p.b, p.own, 8), 0);
    both_hear(&p);
    close_pair(&p);
}
END_TEST

START_TEST(a_mail_that_went_already_is_not_told_again)
{
    struct pair p;
    open_pair(&p, NAME);
    follow(&p.b);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_KNOWN);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 2);
    both_hear(&p);
    close_pair(&p);
}
END_TEST

/* A user saw these mails by the folder's former name, in a mailbox of its own. */
START_TEST(a_folder_that_got_the_name_just_now_was_not_shown_by_it)
{
    struct pair p;
    open_pair(&p, OTHER);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_KNOWN);
    ck_assert_int_eq(delete_left(&p.b, OTHER, p.theirs), ORSET_KNOWN);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 2);
    both_hear(&p);
    close_pair(&p);
}
END_TEST

/* And one that has lost it since is not deleted by it. */
START_TEST(a_folder_that_lost_the_name_since_stays)
{
    struct pair p;
    struct replica c;
    open_pair(&p, NAME);
    open_replica(&c, 3); /* which knows of no other folder of that name */
    ck_assert_int_eq(send_to(&p.b, &c, 2, 1), 0);
    ck_assert_int_eq(orset_begin(c.os), 0);
    ck_assert_int_eq(orset_local_rename(c.os, folder_of_site(&c, 2), OTHER, NAME_LEN), ORSET_OK);
    ck_assert_int_eq(orset_commit(c.os), 0);
    ck_assert_int_eq(send_to(&c, &p.b, 3, 1), 0);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_KNOWN);
    ck_assert_int_eq(delete_left(&p.b, OTHER, p.theirs), ORSET_KNOWN);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 2);
    ck_assert_int_eq(send_to(&c, &p.a, 3, 1), ORSET_OK);
    both_hear(&p);
    close_replica(&c);
    close_pair(&p);
}
END_TEST

START_TEST(it_needs_a_transaction)
{
    struct pair p;
    uint32_t none = 0;
    open_pair(&p, NAME);
    ck_assert_int_lt(orset_local_delete_left(p.b.os, NAME, NAME_LEN, shown, &none), 0);
    ck_assert_uint_eq(count(&p.b, p.own, 7) + count(&p.b, p.own, 8), 2);
    close_pair(&p);
}
END_TEST

/* --- what a client did in the mailbox that the mails leave -------------------------------------- */

/* As open_pair(), and the mail 7 is there twice: as UID 1, and as UID 3 with a flag. */
static void open_pair_of_copies(struct pair *p)
{
    open_replica(&p->a, 1);
    open_replica(&p->b, 2);
    create(&p->a, NAME, NAME_LEN);
    p->own = create(&p->b, NAME, NAME_LEN);
    append(&p->b, p->own, 1, 7, 0);
    append(&p->b, p->own, 2, 8, ORSET_SEEN);
    append(&p->b, p->own, 3, 7, ORSET_FLAGGED);
    ck_assert_int_eq(send_to(&p->b, &p->a, 2, 1), 0);
    follow(&p->a);
    ck_assert_int_eq(send_to(&p->a, &p->b, 1, 1), 0);
    p->theirs = folder_of_site(&p->b, 1);
    ck_assert_uint_eq(count(&p->b, p->own, 7), 2);
}

struct flags_of_copies {
    unsigned n, flagged, answered;
    uint32_t plain; /* UID of the one without a flag */
};

static int note_flags(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct flags_of_copies *f = arg;
    if (m->facts.guid[0] == 7) {
        f->n++;
        f->flagged += (own->system & ORSET_FLAGGED) != 0;
        f->answered += own->system == ORSET_ANSWERED;
        f->plain = own->system == 0 ? m->uid : f->plain;
    }
    return 0;
}

static struct flags_of_copies copies_of(struct replica *r, uint32_t folder)
{
    struct flags_of_copies f = {0};
    ck_assert_int_eq(orset_each_message(r->os, folder, note_flags, &f), 0);
    return f;
}

static int expunge_moved(struct replica *r, uint32_t folder, uint32_t uid)
{
    ck_assert_int_eq(orset_begin(r->os), 0);
    int e = orset_local_expunge_moved(r->os, folder, uid);
    ck_assert_int_eq(orset_commit(r->os), 0);
    return e;
}

/* Of two copies, the one that had this UID goes, in whatever order. */
START_TEST(the_copy_that_had_the_uid_goes)
{
    for (uint32_t uid = 1; uid <= 3; uid += 2) {
        struct pair p;
        open_pair_of_copies(&p);
        ck_assert_int_eq(expunge_moved(&p.b, p.own, uid), ORSET_OK);
        struct flags_of_copies left = copies_of(&p.b, p.own);
        ck_assert_uint_eq(left.n, 1);
        ck_assert_uint_eq(left.flagged, uid == 1);
        both_hear(&p);
        close_pair(&p);
    }
}
END_TEST

START_TEST(the_copy_that_had_the_uid_gets_the_flag)
{
    struct pair p;
    const struct orset_flags set = {.system = ORSET_ANSWERED}, none = {0};
    for (uint32_t uid = 1; uid <= 3; uid += 2) {
        open_pair_of_copies(&p);
        ck_assert_int_eq(orset_begin(p.b.os), 0);
        ck_assert_int_eq(orset_local_flags_moved(p.b.os, p.own, uid, &set, &none), ORSET_OK);
        ck_assert_int_eq(orset_commit(p.b.os), 0);
        struct flags_of_copies now = copies_of(&p.b, p.own);
        ck_assert_uint_eq(now.flagged, 1);
        ck_assert_uint_eq(now.answered, uid == 1);
        both_hear(&p);
        close_pair(&p);
    }
}
END_TEST

/* Site 1 has removed the copy, too: the other one was meant by nobody. */
START_TEST(a_copy_that_is_gone_takes_no_other_one_along)
{
    struct pair p;
    open_pair_of_copies(&p);
    struct flags_of_copies there = copies_of(&p.a, folder_of_site(&p.a, 2));
    ck_assert_uint_ne(there.plain, 0);
    expunge(&p.a, folder_of_site(&p.a, 1), there.plain);
    ck_assert_int_eq(send_to(&p.a, &p.b, 1, 1), 0);
    ck_assert_uint_eq(count(&p.b, p.own, 7), 1);
    ck_assert_int_eq(expunge_moved(&p.b, p.own, 1), ORSET_KNOWN);
    ck_assert_uint_eq(count(&p.b, p.own, 7), 1);
    both_hear(&p);
    close_pair(&p);
}
END_TEST

/* --- the rows --------------------------------------------------------------------------------- */

struct found_row {
    uint8_t key[64], value[256];
    size_t key_len, len;
    unsigned n;
};

static int find_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value, size_t len)
{
    struct found_row *f = arg;
    ck_assert_uint_le(key_len, sizeof f->key);
    ck_assert_uint_le(len, sizeof f->value);
    memcpy(f->key, key, f->key_len = key_len);
    memcpy(f->value, value, f->len = len);
    f->n++;
    return 0;
}

/* The last mail that is to leave. */
static void last_removal(struct replica *r, struct orset_store *s, struct found_row *f)
{
    const uint8_t kind = ORSET_TASK_REMOVE;
    memset(f, 0, sizeof *f);
    orset_memstore_interface(r->mem, s);
    ck_assert_int_eq(s->each(s->ctx, ORSET_T_TASK, &kind, 1, 1, find_row, f), 0);
}

/* With that row; nothing of it stays. */
static int delete_with_row(struct replica *r, const struct orset_store *s,
                           const struct found_row *f, const uint8_t *value, size_t len)
{
    uint32_t none = 0;
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(s->put(s->ctx, ORSET_T_TASK, f->key, f->key_len, value, len), 0);
    int e = orset_local_delete_left(r->os, NAME, NAME_LEN, shown, &none);
    orset_rollback(r->os);
    return e;
}

START_TEST(what_left_is_known_to_who_opens_the_state_again)
{
    struct pair p;
    struct replica again;
    struct orset_store s;
    struct found_row row;
    open_pair(&p, NAME);
    last_removal(&p.b, &s, &row);
    ck_assert_uint_eq(row.n, 2);
    ck_assert_uint_gt(row.len, 16);
    open_copy(&again, p.b.mem, 2);
    ck_assert_int_eq(delete_left(&again, NAME, p.theirs), ORSET_OK);
    ck_assert_uint_eq(count(&again, p.own, 7) + count(&again, p.own, 8), 0);
    close_replica(&again);
    close_pair(&p);
}
END_TEST

/* It ends with the GUID, as one that a removal by another site left: it left no folder's name. */
START_TEST(a_row_with_a_guid_only_says_nothing_of_a_name)
{
    struct pair p;
    struct orset_store s;
    struct found_row row;
    open_pair(&p, NAME);
    last_removal(&p.b, &s, &row);
    /* the other mail's row still says so */
    ck_assert_int_eq(delete_with_row(&p.b, &s, &row, row.value, 16), ORSET_OK);
    ck_assert_int_eq(orset_begin(p.b.os), 0);
    ck_assert_int_eq(s.put(s.ctx, ORSET_T_TASK, row.key, row.key_len, row.value, 16), 0);
    ck_assert_int_eq(orset_commit(p.b.os), 0);
    ck_assert_int_eq(delete_left(&p.b, NAME, p.theirs), ORSET_OK);
    ck_assert_uint_eq(count(&p.b, p.own, 7), 0);
    ck_assert_uint_eq(count(&p.b, p.own, 8), 1);
    close_pair(&p);
}
END_TEST

START_TEST(a_row_that_is_cut_or_has_more_is_known_as_spoilt)
{
    struct pair p;
    struct orset_store s;
    struct found_row row;
    open_pair(&p, NAME);
    last_removal(&p.b, &s, &row);
    for (size_t len = 17; len < row.len; len++)
        ck_assert_int_eq(delete_with_row(&p.b, &s, &row, row.value, len), ORSET_E_STORAGE);
    ck_assert_int_eq(delete_with_row(&p.b, &s, &row, row.value, row.len), ORSET_OK);
    ck_assert_int_eq(delete_with_row(&p.b, &s, &row, row.value, row.len + 1), ORSET_E_STORAGE);
    /* a folder that there is not; so are most others of these bits */
    row.value[16] = 0x7f;
    ck_assert_int_eq(delete_with_row(&p.b, &s, &row, row.value, row.len), ORSET_E_STORAGE);
    close_pair(&p);
}
END_TEST

/* Some of them name another folder, message or name, of which nothing left: no other one's mails
 * go by that. */
START_TEST(no_flipped_bit_of_a_row_deletes_anything_else)
{
    struct pair p;
    struct orset_store s;
    struct found_row row;
    uint32_t none = 0;
    open_pair(&p, NAME);
    append(&p.b, ORSET_INBOX, 1, 9, 0);
    last_removal(&p.b, &s, &row);
    for (size_t bit = 0; bit < 8 * row.len; bit++) {
        uint8_t value[sizeof row.value];
        memcpy(value, row.value, row.len);
        value[bit / 8] ^= (uint8_t)(1U << bit % 8);
        ck_assert_int_eq(orset_begin(p.b.os), 0);
        ck_assert_int_eq(s.put(s.ctx, ORSET_T_TASK, row.key, row.key_len, value, row.len), 0);
        int e = orset_local_delete_left(p.b.os, NAME, NAME_LEN, shown, &none);
        ck_assert_msg(e == ORSET_OK || e == ORSET_E_STORAGE, "bit %zu: %d", bit, e);
        if (e == ORSET_OK)
            ck_assert_uint_eq(count(&p.b, ORSET_INBOX, 9), 1);
        orset_rollback(p.b.os);
    }
    close_pair(&p);
}
END_TEST

TCase *left_cases(void)
{
    TCase *t = tcase_create("left");
    tcase_add_test(t, mails_that_wait_go_with_the_name_and_their_folder_with_them);
    tcase_add_test(t, a_folder_that_has_a_mailbox_stays);
    tcase_add_test(t, a_mail_that_was_placed_stays);
    tcase_add_test(t, a_mail_that_went_already_is_not_told_again);
    tcase_add_test(t, a_folder_that_got_the_name_just_now_was_not_shown_by_it);
    tcase_add_test(t, a_folder_that_lost_the_name_since_stays);
    tcase_add_test(t, it_needs_a_transaction);
    tcase_add_test(t, the_copy_that_had_the_uid_goes);
    tcase_add_test(t, the_copy_that_had_the_uid_gets_the_flag);
    tcase_add_test(t, a_copy_that_is_gone_takes_no_other_one_along);
    tcase_add_test(t, what_left_is_known_to_who_opens_the_state_again);
    tcase_add_test(t, a_row_with_a_guid_only_says_nothing_of_a_name);
    tcase_add_test(t, a_row_that_is_cut_or_has_more_is_known_as_spoilt);
    tcase_add_test(t, no_flipped_bit_of_a_row_deletes_anything_else);
    return t;
}
