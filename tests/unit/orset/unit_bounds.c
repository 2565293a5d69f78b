/* unit_bounds - no site makes what its peers refuse, and what a peer's op would exceed is
 * refused before anything changes. Copies of one mail: all of them come to all sites, and a
 * change of each costs no more than of the first. */
#include "tests/unit/orset/unit.h"

/* A store that counts the rows it is asked for. */
struct counted {
    struct orset_store of;
    uint64_t rows;
    bool without_k; /* rows that find a GUID get no value */
};

static int get(void *ctx, enum orset_table t, const void *key, size_t n, const uint8_t **v,
               size_t *len)
{
    struct counted *c = ctx;
    c->rows++;
    return c->of.get(c->of.ctx, t, key, n, v, len);
}

static int put(void *ctx, enum orset_table t, const void *key, size_t n, const void *v, size_t len)
{
    struct counted *c = ctx;
    return c->of.put(c->of.ctx, t, key, n, v, c->without_k && t == ORSET_T_GUID ? 0 : len);
}

static int del(void *ctx, enum orset_table t, const void *key, size_t n)
{
    struct counted *c = ctx;
    return c->of.del(c->of.ctx, t, key, n);
}

struct row_counted {
    struct counted *c;
    orset_row_fn *fn;
    void *arg;
};

static int count_row(void *arg, const uint8_t *key, size_t n, const uint8_t *v, size_t len)
{
    struct row_counted *r = arg;
    r->c->rows++;
    return r->fn(r->arg, key, n, v, len);
}

static int each(void *ctx, enum orset_table t, const void *from, size_t n, size_t prefix,
                orset_row_fn *fn, void *arg)
{
    struct counted *c = ctx;
    struct row_counted r = {c, fn, arg};
    return c->of.each(c->of.ctx, t, from, n, prefix, count_row, &r);
}

static int begin(void *ctx)
{
    struct counted *c = ctx;
    return c->of.begin(c->of.ctx);
}

static int commit(void *ctx)
{
    struct counted *c = ctx;
    return c->of.commit(c->of.ctx);
}

static void rollback(void *ctx)
{
    struct counted *c = ctx;
    c->of.rollback(c->of.ctx);
}

static void open_counted(struct replica *r, struct counted *c, uint64_t site)
{
    struct orset_store s = {c, get, put, del, each, begin, commit, rollback, NULL};
    struct orset_origin me = {site, 100 + site};
    r->mem = orset_memstore_new(&HEAP);
    orset_memstore_interface(r->mem, &c->of);
    c->rows = 0;
    c->without_k = false;
    ck_assert_int_eq(orset_open(&r->os, &HEAP, &s, &me, NULL), 0);
}

/* UIDs first to last of INBOX are copies of one mail. */
static void copy(struct replica *r, uint32_t first, uint32_t last)
{
    struct orset_facts f = facts_of(7, 0);
    struct orset_flags none = {0};
    ck_assert_int_eq(orset_begin(r->os), 0);
    for (uint32_t uid = first; uid <= last; uid++)
        ck_assert_int_eq(orset_local_add(r->os, ORSET_INBOX, uid, &f, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

static void flag_all(struct replica *r, uint32_t last)
{
    struct orset_flags seen = {.system = ORSET_SEEN};
    ck_assert_int_eq(orset_begin(r->os), 0);
    for (uint32_t uid = 1; uid <= last; uid++)
        ck_assert_int_eq(orset_local_flags(r->os, ORSET_INBOX, uid, &seen, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

struct copies {
    bool k[ORSET_SAME_MESSAGE_MAX + 1];
    unsigned n;
};

static int each_copy(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct copies *c = arg;
    (void)own;
    if (m->facts.guid[0] == 7 && !c->k[m->k]) {
        c->k[m->k] = true;
        c->n++;
    }
    return 0;
}

static unsigned copies(struct replica *r)
{
    struct copies c = {.n = 0};
    ck_assert_int_eq(orset_each_message(r->os, ORSET_INBOX, each_copy, &c), 0);
    return c.n;
}

/* All of from's ops, in batches. */
static int send_all(struct replica *from, struct replica *to, uint64_t site)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result r;
    uint64_t next = 1;
    int e, made;
    do {
        b.len = 0;
        made = orset_batch_make(from->os, next, 100000, NULL, 0, &b, &next);
        ck_assert_int_ge(made, 0);
        ck_assert_int_eq(orset_begin(to->os), 0);
        e = orset_batch_apply(to->os, site, b.data, b.len, &r);
        ck_assert_int_eq(orset_commit(to->os), 0);
    } while (e >= 0 && made == 0);
    orset_buf_free(&b);
    return e < 0 ? e : 0;
}

/* Before, 600 copies made at each of two sites that had no connection ended both their streams
 * for ever. */
START_TEST(test_copies_made_at_two_sites_at_once_are_all_at_both)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    copy(&a, 1, 1);
    ck_assert_int_eq(send_to(&a, &b, 1, 1), 0);
    follow(&b);
    copy(&a, 2, 1000);
    copy(&b, 2, 800);
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    ck_assert_int_eq(send_all(&b, &a, 2), 0);
    ck_assert_uint_eq(copies(&a), 1000);
    ck_assert_uint_eq(copies(&b), 1000);
    assert_equal(&a, &b);
    append(&a, ORSET_INBOX, 5000, 9, 0); /* what comes later still goes over */
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    ck_assert_uint_eq(count(&b, ORSET_INBOX, 9), 1);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

START_TEST(test_a_thousand_copies_are_kept_and_one_more_is_left_out)
{
    struct replica a;
    struct orset_facts f = facts_of(7, 0);
    struct orset_flags none = {0};
    open_replica(&a, 1);
    copy(&a, 1, 1000);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 1001, &f, &none, NULL), ORSET_E_LIMIT);
    ck_assert(!orset_must_roll_back(a.os));
    ck_assert_int_eq(orset_local_expunge(a.os, ORSET_INBOX, 500), ORSET_OK);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 1001, &f, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_uint_eq(copies(&a), 1000);
    close_replica(&a);
}
END_TEST

/* Rows that the store is asked for, per mail, when n copies of one are made, marked and
 * expunged; both: at two sites, so that each is two dots. */
static uint64_t rows_per_mail(uint32_t n, bool both)
{
    struct replica a, b;
    struct counted c, other;
    open_counted(&a, &c, 1);
    open_counted(&b, &other, 2);
    if (both) {
        copy(&b, 1, n);
        copy(&a, 1, n);
        ck_assert_int_eq(send_all(&b, &a, 2), 0);
        c.rows = 0;
    } else {
        copy(&a, 1, n);
    }
    flag_all(&a, n);
    ck_assert_int_eq(orset_begin(a.os), 0);
    for (uint32_t uid = 1; uid <= n; uid++)
        ck_assert_int_eq(orset_local_expunge(a.os, ORSET_INBOX, uid), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    uint64_t rows = c.rows;
    close_replica(&a);
    close_replica(&b);
    return rows / n;
}

/* Before: of 800 copies, 15,230 rows for each. */
START_TEST(test_a_change_of_one_of_many_copies_costs_as_one_of_few)
{
    for (int both = 0; both < 2; both++) {
        uint64_t few = rows_per_mail(50, both), many = rows_per_mail(800, both);
        printf("rows per mail, %s: 50 copies %llu, 800 copies %llu\n",
               both ? "two dots each" : "one dot each", (unsigned long long)few,
               (unsigned long long)many);
        ck_assert_uint_le(many, few * 5 / 4 + 5);
    }
}
END_TEST

/* A peer applies the ops of copies, and its mailbox follows, at the same price. */
START_TEST(test_copies_of_a_peer_cost_as_many_mails)
{
    uint64_t rows[2];
    for (int i = 0; i < 2; i++) {
        struct replica a, b;
        struct counted c, other;
        uint32_t n = i ? 800 : 50;
        open_counted(&a, &c, 1);
        open_counted(&b, &other, 2);
        copy(&b, 1, n);
        flag_all(&b, n);
        ck_assert_int_eq(send_all(&b, &a, 2), 0);
        follow(&a);
        ck_assert_int_eq(orset_begin(b.os), 0);
        for (uint32_t uid = 1; uid <= n; uid++)
            ck_assert_int_eq(orset_local_expunge(b.os, ORSET_INBOX, uid), ORSET_OK);
        ck_assert_int_eq(orset_commit(b.os), 0);
        ck_assert_int_eq(send_all(&b, &a, 2), 0);
        follow(&a);
        rows[i] = c.rows / n;
        assert_equal(&a, &b);
        close_replica(&a);
        close_replica(&b);
    }
    printf("rows per mail of a peer: 50 copies %llu, 800 copies %llu\n",
           (unsigned long long)rows[0], (unsigned long long)rows[1]);
    ck_assert_uint_le(rows[1], rows[0] * 5 / 4 + 5);
}
END_TEST

/* Rows of a program from before k stood in them: they are read, and written anew as mails come. */
START_TEST(test_copies_of_an_older_program_s_state)
{
    struct replica a, b;
    struct counted c, other;
    open_counted(&a, &c, 1);
    open_counted(&b, &other, 2);
    c.without_k = true;
    copy(&a, 1, 20);
    c.without_k = false;
    ck_assert_int_eq(orset_begin(a.os), 0);
    orset_rollback(a.os); /* nothing is in memory any more */
    copy(&a, 21, 30);
    ck_assert_uint_eq(copies(&a), 30);
    flag_all(&a, 30);
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    follow(&b);
    copy(&b, 1001, 1005);
    ck_assert_int_eq(send_all(&b, &a, 2), 0);
    follow(&a);
    expunge(&a, ORSET_INBOX, 7);
    copy(&a, 31, 31);
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    assert_equal(&a, &b);
    ck_assert_uint_eq(copies(&a), 35);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* A new keyword for each mail, as a client may use them: those beyond are left out here, the
 * mails go, and the peer takes all. */
/* Mails with 99 new keywords each, until the site makes no more. Returns how many were left out. */
static unsigned fill_keywords(struct replica *r, char name_of, uint8_t guid)
{
    unsigned left_out = 0;
    for (unsigned n = 1; n <= 26; n++) {
        struct orset_facts f = facts_of((uint8_t)(guid + n), 0);
        struct orset_flags flags = {.nkeywords = 0};
        ck_assert_int_eq(orset_begin(r->os), 0);
        for (unsigned i = 0; i < 99; i++) {
            char name[40];
            int kw = orset_keyword(r->os, name,
                                   (size_t)snprintf(name, sizeof name, "%c%u-%u", name_of, n, i));
            ck_assert(kw >= 0 || kw == ORSET_E_LIMIT);
            if (kw >= 0)
                flags.keyword[flags.nkeywords++] = (uint16_t)kw;
            left_out += kw < 0;
        }
        ck_assert_int_eq(orset_local_add(r->os, ORSET_INBOX, guid + n, &f, &flags, NULL), ORSET_OK);
        ck_assert_int_eq(orset_commit(r->os), 0);
    }
    return left_out;
}

START_TEST(test_keywords_beyond_the_bound_are_left_out_and_the_mails_go)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    ck_assert_uint_eq(fill_keywords(&a, 'a', 0), 26 * 99 - ORSET_MAKE_KEYWORDS_MAX);
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    ck_assert_uint_eq(count(&b, ORSET_INBOX, 26), 1);
    assert_equal(&a, &b);
    ck_assert_uint_eq(orset_keywords(b.os), ORSET_MAKE_KEYWORDS_MAX);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* Whoever joins takes all of it from one of them. */
START_TEST(test_keywords_that_sites_made_while_apart_can_be_handed_on)
{
    struct replica r[6];
    for (unsigned i = 0; i < 6; i++)
        open_replica(&r[i], i + 1);
    for (unsigned i = 0; i < 5; i++)
        (void)fill_keywords(&r[i], (char)('a' + i), (uint8_t)(40 * i));
    for (unsigned i = 1; i < 5; i++)
        ck_assert_int_eq(send_all(&r[i], &r[0], i + 1), 0);
    ck_assert_uint_eq(orset_keywords(r[0].os), 5 * ORSET_MAKE_KEYWORDS_MAX);
    ck_assert_int_eq(take_over(&r[5], 6, &r[0], 1), ORSET_KNOWN);
    ck_assert_uint_eq(orset_keywords(r[5].os), 5 * ORSET_MAKE_KEYWORDS_MAX);
    assert_equal(&r[0], &r[5]);
    for (unsigned i = 0; i < 6; i++)
        close_replica(&r[i]);
}
END_TEST

/* A client sets and clears keywords on one mail for ever: others' keywords hide what it sets, so
 * that its site's stay. */
START_TEST(test_marks_on_one_mail_stay_what_peers_take)
{
    struct replica a, b;
    struct orset_flags set = {.nkeywords = 1};
    open_replica(&a, 1);
    open_replica(&b, 2);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(orset_begin(a.os), 0);
    for (unsigned i = 0; i < 400; i++) {
        char name[20];
        set.keyword[0] =
            (uint16_t)orset_keyword(a.os, name, (size_t)snprintf(name, sizeof name, "m%u", i));
        /* set, as the log says, and not seen in the mailbox any more */
        ck_assert_int_ge(orset_local_flags(a.os, ORSET_INBOX, 1, &(struct orset_flags){0}, &set),
                         0);
        ck_assert_int_eq(orset_done_flags(a.os, ORSET_INBOX, 1, &(struct orset_flags){0}), 0);
    }
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_uint_eq(orset_left_out(a.os), 400 - ORSET_MAKE_MARKS_MAX);
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    assert_equal(&a, &b);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

static int make_folders(struct replica *r, unsigned n)
{
    uint8_t guid[16] = {1};
    uint32_t f;
    int e = 0;
    ck_assert_int_eq(orset_begin(r->os), 0);
    for (unsigned i = 0; i < n && e == 0; i++) {
        char name[20] = "";
        int len = snprintf(name + 1, sizeof name - 1, "f%u-%u", (unsigned)orset_folders(r->os), i);
        e = orset_local_create(r->os, name, (size_t)len + 1, 7, guid, &f);
    }
    ck_assert_int_eq(orset_commit(r->os), 0);
    return e;
}

/* As many folders as one site makes go over, by ops and in an exchange whose answers a parcel (4
 * MiB) holds. */
START_TEST(test_folders_ever_made_have_a_bound_where_they_are_made)
{
    struct replica a, b;
    open_replica(&a, 1);
    open_replica(&b, 2);
    ck_assert_int_eq(make_folders(&a, ORSET_MAKE_FOLDERS_MAX + 1), ORSET_E_LIMIT);
    ck_assert_uint_eq(orset_folders(a.os), ORSET_MAKE_FOLDERS_MAX);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_all(&a, &b, 1), 0);
    assert_equal(&a, &b);
    struct orset_buf q = {.alloc = &HEAP}, answer = {.alloc = &HEAP};
    struct orset_exchange *x;
    ck_assert_int_eq(orset_ask_hello(b.os, 1, &x, &q), 0);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_answer(a.os, 2, q.data, q.len, &answer), 0);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_uint_lt(answer.len, 2 * 1024 * 1024);
    orset_exchange_free(b.os, x);
    orset_buf_free(&q);
    orset_buf_free(&answer);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* Names of 250 bytes: those beyond half a MiB are not replicated, and an exchange carries what
 * two sites made at once. */
START_TEST(test_subscriptions_have_a_bound_where_they_are_made)
{
    struct replica r[3];
    unsigned made[2];
    for (unsigned i = 0; i < 3; i++)
        open_replica(&r[i], i + 1);
    for (unsigned i = 0; i < 2; i++) {
        int e = 0;
        made[i] = 0;
        ck_assert_int_eq(orset_begin(r[i].os), 0);
        for (; e == 0; made[i]++) {
            char name[260] = "";
            int len = snprintf(name + 1, sizeof name - 1, "s%u-%0248u", i, made[i]);
            e = orset_local_subscribe(r[i].os, name, (size_t)len + 1, true);
        }
        ck_assert_int_eq(e, ORSET_E_LIMIT);
        ck_assert_int_eq(orset_commit(r[i].os), 0);
    }
    ck_assert_uint_gt(made[0], 1000);
    ck_assert_int_eq(send_all(&r[0], &r[1], 1), 0);
    ck_assert_int_eq(send_all(&r[1], &r[0], 2), 0);
    assert_equal(&r[0], &r[1]);
    ck_assert_int_eq(take_over(&r[2], 3, &r[0], 1), ORSET_KNOWN);
    assert_equal(&r[2], &r[0]);
    for (unsigned i = 0; i < 3; i++)
        close_replica(&r[i]);
}
END_TEST

/* --- a peer that does not keep to it */

static void put_vector(struct orset_buf *b, uint64_t epoch, uint64_t upto)
{
    orset_buf_u8(b, ORSET_WIRE_VERSION);
    orset_buf_num(b, 1);
    orset_buf_u64(b, 2);
    orset_buf_u64(b, epoch);
    orset_buf_num(b, upto);
    orset_buf_u64(b, 0);
    orset_buf_num(b, 0);
    orset_buf_num(b, 0);
}

/* One op of site 2 in a batch of its own. The state is as before when it is refused, and can be
 * committed. */
static int give_op(struct replica *to, uint64_t epoch, uint64_t number, uint64_t upto,
                   const struct orset_buf *op)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result r;
    uint8_t before[16], after[16];
    orset_digest(to->os, before);
    put_vector(&b, epoch, upto);
    orset_buf_num(&b, number);
    orset_buf_u64(&b, 0);
    orset_buf_num(&b, 1);
    orset_buf_text(&b, op->data, op->len);
    ck_assert_int_eq(orset_begin(to->os), 0);
    int e = orset_batch_apply(to->os, 2, b.data, b.len, &r);
    ck_assert(!orset_must_roll_back(to->os));
    ck_assert_int_eq(orset_commit(to->os), 0);
    orset_digest(to->os, after);
    if (e < 0)
        ck_assert_mem_eq(before, after, 16);
    orset_buf_free(&b);
    return e;
}

/* Its n-th dot of one message, and a presence. */
static int give_dot(struct replica *to, unsigned n)
{
    struct orset_buf op = {.alloc = &HEAP};
    struct orset_facts f = facts_of(7, 0);
    orset_buf_u8(&op, 1);
    orset_buf_num(&op, 0);
    orset_buf_put(&op, f.guid, 16);
    orset_buf_put(&op, f.sha256, 32);
    orset_buf_num(&op, 1);
    orset_buf_num(&op, 2);
    orset_buf_num(&op, 3);
    orset_buf_num(&op, 1); /* k */
    orset_buf_num(&op, n);
    orset_buf_text(&op, "", 0);
    orset_buf_num(&op, 0); /* presence */
    orset_buf_num(&op, 0); /* flags */
    int e = give_op(to, 102, 2 * n - 1, 2 * n, &op);
    orset_buf_free(&op);
    return e;
}

START_TEST(test_a_peer_s_dots_of_one_message)
{
    struct replica a;
    int e = 0;
    unsigned n;
    open_replica(&a, 1);
    for (n = 0; e == 0 && n < 2000; n++)
        e = give_dot(&a, n + 1);
    ck_assert_int_eq(e, ORSET_E_EXCHANGE);
    ck_assert_uint_eq(n, ORSET_PEER_SAME_MAX + 1);
    /* What is known is known, whatever the bound. */
    ck_assert_int_eq(give_dot(&a, n - 1), 0);
    follow(&a);
    copy(&a, 1001, 1010); /* this site goes on */
    close_replica(&a);
}
END_TEST

/* One name, subscribed under one epoch after the other. */
START_TEST(test_a_peer_s_epochs_on_one_subscription)
{
    struct replica a;
    struct orset_buf op = {.alloc = &HEAP};
    int e = 0;
    unsigned n;
    open_replica(&a, 1);
    orset_buf_u8(&op, 7);
    orset_buf_text(&op, "\0S", 2);
    orset_buf_u8(&op, 1);
    orset_buf_num(&op, 0);
    for (n = 0; e == 0 && n < 300; n++)
        e = give_op(&a, 1000 + n, 1, 1, &op);
    ck_assert_int_eq(e, ORSET_E_EXCHANGE);
    ck_assert_uint_eq(n, ORSET_PEER_SUBSCRIBED_MAX + 1);
    ck_assert_int_eq(orset_begin(a.os), 0);
    /* a row waits: it is to be subscribed here */
    ck_assert_int_eq(orset_local_subscribe(a.os, "\0S", 2, false), ORSET_KNOWN);
    ck_assert_int_eq(orset_commit(a.os), 0);
    orset_buf_free(&op);
    close_replica(&a);
}
END_TEST

/* Sites 1 and 2 copied and expunged one mail again and again while site 3 heard only the one
 * that copied: then an exchange with it is asked for, and mends it. */
START_TEST(test_dots_that_a_peer_has_not_seen_removed_are_mended_by_an_exchange)
{
    struct replica a, b, c;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 3);
    uint64_t from_a = 1, from_b = 1;
    int e = 0;
    unsigned n;
    for (n = 0; n <= ORSET_PEER_SAME_MAX && e >= 0; n++) {
        copy(&a, n + 1, n + 1);
        ck_assert_int_eq(send_to(&a, &b, 1, from_a), 0);
        e = send_to(&a, &c, 1, from_a);
        from_a = orset_vector_get(a.os, orset_self(a.os)) + 1;
        follow(&b);
        expunge(&b, ORSET_INBOX, n + 1);
        ck_assert_int_eq(send_to(&b, &a, 2, from_b), 0);
        from_b = orset_vector_get(b.os, orset_self(b.os)) + 1;
        follow(&a);
    }
    ck_assert_int_eq(e, ORSET_E_EXCHANGE);
    copy(&a, 4000, 4002);
    ck_assert_int_eq(take_over(&c, 3, &a, 1), ORSET_KNOWN);
    ck_assert_uint_eq(copies(&c), 3);
    assert_equal(&c, &a);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
}
END_TEST

TCase *bounds_cases(void)
{
    TCase *t = tcase_create("bounds");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_copies_made_at_two_sites_at_once_are_all_at_both);
    tcase_add_test(t, test_a_thousand_copies_are_kept_and_one_more_is_left_out);
    tcase_add_test(t, test_a_change_of_one_of_many_copies_costs_as_one_of_few);
    tcase_add_test(t, test_copies_of_a_peer_cost_as_many_mails);
    tcase_add_test(t, test_copies_of_an_older_program_s_state);
    tcase_add_test(t, test_keywords_beyond_the_bound_are_left_out_and_the_mails_go);
    tcase_add_test(t, test_keywords_that_sites_made_while_apart_can_be_handed_on);
    tcase_add_test(t, test_marks_on_one_mail_stay_what_peers_take);
    tcase_add_test(t, test_folders_ever_made_have_a_bound_where_they_are_made);
    tcase_add_test(t, test_subscriptions_have_a_bound_where_they_are_made);
    tcase_add_test(t, test_a_peer_s_dots_of_one_message);
    tcase_add_test(t, test_a_peer_s_epochs_on_one_subscription);
    tcase_add_test(t, test_dots_that_a_peer_has_not_seen_removed_are_mended_by_an_exchange);
    return t;
}
