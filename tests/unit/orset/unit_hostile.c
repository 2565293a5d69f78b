/* unit_hostile - a peer cannot fill the tables that all share, nor use numbers it was not given
 * (F43). */
#include "tests/unit/orset/unit.h"

/* A hello of site 2, epoch 102, whose vector names n more origins, each up to a number. */
static int hello_upto(struct replica *to, unsigned first, unsigned n, uint64_t upto,
                      struct orset_batch_result *r)
{
    struct orset_buf b = {.alloc = &HEAP};
    orset_buf_u8(&b, ORSET_WIRE_VERSION);
    orset_buf_num(&b, n + 1);
    for (unsigned i = 0; i <= n; i++) {
        orset_buf_u64(&b, i == 0 ? 2 : 1000 + first + i);
        orset_buf_u64(&b, 102);
        orset_buf_num(&b, i == 0 ? 0 : upto);
        orset_buf_u64(&b, 0);
    }
    orset_buf_num(&b, 0); /* the sender's index */
    orset_buf_num(&b, 0); /* modseqs */
    orset_buf_num(&b, 1);
    orset_buf_u64(&b, 0);
    orset_buf_num(&b, 0);
    ck_assert_int_eq(orset_begin(to->os), 0);
    int e = orset_batch_apply(to->os, 2, b.data, b.len, r);
    if (e < 0)
        orset_rollback(to->os);
    else
        ck_assert_int_eq(orset_commit(to->os), 0);
    orset_buf_free(&b);
    return e;
}

static int hello_naming(struct replica *to, unsigned first, unsigned n)
{
    struct orset_batch_result r;
    return hello_upto(to, first, n, 0, &r);
}

START_TEST(test_what_a_peer_has_of_others_is_named_up_to_a_bound)
{
    struct replica a;
    struct orset_batch_result r;
    open_replica(&a, 1);
    ck_assert_int_eq(hello_naming(&a, 0, 2), 0);
    for (unsigned n = 0; n <= ORSET_LACKS_MAX + 1; n++) {
        ck_assert_int_eq(hello_upto(&a, 0, n, n + 7, &r), 0);
        ck_assert_uint_eq(r.behind, n > 0);
        ck_assert_uint_eq(r.nlacks, n < ORSET_LACKS_MAX ? n : ORSET_LACKS_MAX);
        for (unsigned i = 0; i < r.nlacks; i++) {
            ck_assert_uint_eq(orset_origin_get(a.os, r.lacks[i].origin).site, 1000 + i + 1);
            ck_assert_uint_eq(r.lacks[i].counter, n + 7);
        }
    }
    close_replica(&a);
}
END_TEST

START_TEST(test_a_peer_s_share_of_the_origins)
{
    struct replica a, c;
    open_replica(&a, 1);
    open_replica(&c, 3);
    ck_assert_int_eq(hello_naming(&a, 0, 1000), 0);
    ck_assert_int_eq(hello_naming(&a, 0, 1000), 0); /* the same again costs nothing */
    ck_assert_int_eq(hello_naming(&a, 2000, 100), ORSET_E_LIMIT);
    ck_assert_uint_le(orset_origins(a.os), 2 + ORSET_PEER_ORIGINS_MAX);
    append(&c, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&c, &a, 3, 1), 0); /* others go on */
    close_replica(&a);
    close_replica(&c);
}
END_TEST

static int mail_with_new_keywords(struct replica *from, struct replica *to, uint64_t site,
                                  unsigned n)
{
    struct orset_facts f = facts_of((uint8_t)n, 0);
    struct orset_flags flags = {.nkeywords = 100};
    f.guid[1] = (uint8_t)(n >> 8);
    uint64_t first = orset_vector_get(from->os, orset_self(from->os)) + 1;
    ck_assert_int_eq(orset_begin(from->os), 0);
    for (unsigned i = 0; i < 100; i++) {
        char name[40];
        int len = snprintf(name, sizeof name, "k%u-%u-%u", (unsigned)site, n, i);
        flags.keyword[i] = (uint16_t)orset_keyword(from->os, name, (size_t)len);
    }
    ck_assert_int_eq(orset_local_add(from->os, ORSET_INBOX, n, &f, &flags, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(from->os), 0);
    return send_to(from, to, site, first);
}

static void open_epoch(struct replica *r, uint64_t site, uint64_t epoch)
{
    struct orset_store s;
    struct orset_origin me = {site, epoch};
    r->mem = orset_memstore_new(&HEAP);
    orset_memstore_interface(r->mem, &s);
    ck_assert_int_eq(orset_open(&r->os, &HEAP, &s, &me, NULL), 0);
}

/* As many as a site makes, under one epoch after the other: a new epoch is no new share. */
START_TEST(test_a_peer_s_share_of_the_keywords)
{
    struct replica a, c, b;
    const unsigned mails = ORSET_MAKE_KEYWORDS_MAX / 100;
    open_replica(&a, 1);
    open_replica(&c, 3);
    for (unsigned epoch = 0; epoch <= ORSET_PEER_KEYWORDS_MAX / ORSET_MAKE_KEYWORDS_MAX; epoch++) {
        bool over = epoch == ORSET_PEER_KEYWORDS_MAX / ORSET_MAKE_KEYWORDS_MAX;
        open_epoch(&b, 2, 100 + epoch);
        for (unsigned i = 1; i <= (over ? 1 : mails); i++)
            ck_assert_int_eq(mail_with_new_keywords(&b, &a, 2, epoch * mails + i),
                             over ? ORSET_E_LIMIT : 0);
        close_replica(&b);
    }
    /* another one's is not used up by it */
    ck_assert_int_eq(mail_with_new_keywords(&c, &a, 3, 1), 0);
    close_replica(&a);
    close_replica(&c);
}
END_TEST

/* A number of another origin that was never given counts for nothing in a batch, and is an alarm
 * at that origin. */
START_TEST(test_numbers_of_others_in_a_batch_s_vector_count_for_nothing)
{
    struct replica a, b, c, liar;
    open_replica(&a, 1);
    open_replica(&b, 2);
    open_replica(&c, 3);
    open_replica(&liar, 1); /* gives site 1's numbers a future */
    append(&liar, ORSET_INBOX, 1, 9, 0);
    append(&liar, ORSET_INBOX, 2, 8, 0);
    ck_assert_int_eq(send_to(&liar, &b, 1, 1), 0); /* so b names them in its vector */
    append(&b, ORSET_INBOX, 9, 7, 0);
    ck_assert_int_eq(send_to(&b, &c, 2, 1), 0);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(send_to(&a, &c, 1, 1), 0); /* c takes the true ones */
    ck_assert_uint_eq(count(&c, ORSET_INBOX, 1), 1);
    ck_assert_int_eq(send_to(&b, &a, 2, 1), ORSET_E_FORGED);
    close_replica(&a);
    close_replica(&b);
    close_replica(&c);
    close_replica(&liar);
}
END_TEST

/* Puts other bytes in place of a text in a message under way. */
static void forge(struct orset_buf *b, const char *text, const char *with)
{
    size_t n = strlen(text), i = 0;
    while (i + n <= b->len && memcmp(b->data + i, text, n) != 0)
        i++;
    ck_assert_uint_le(i + n, b->len);
    memcpy(b->data + i, with, n);
}

/* A Maildir makes a file name of it. */
START_TEST(test_a_guid_that_is_a_path_is_refused)
{
    static const char *const bad[] = {"../../../.ssh", "a/cur/../../x", ".hidden-file.",
                                      "line\nand-line", "word and word"};
    struct replica a, b;
    struct orset_facts f = facts_of(1, 0);
    struct orset_flags none = {0};
    struct orset_batch_result result;
    uint64_t next;
    open_replica(&a, 1);
    open_replica(&b, 2);
    f.guid_text = "1733.M1P2.host";
    f.guid_text_len = 13;
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 1, &f, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct orset_buf batch = {.alloc = &HEAP}, q = {.alloc = &HEAP}, answer = {.alloc = &HEAP};
        struct orset_exchange *x;
        ck_assert_int_eq(orset_batch_make(a.os, 1, 1000, NULL, 0, &batch, &next), 0);
        forge(&batch, "1733.M1P2.hos", bad[i]);
        ck_assert_int_eq(orset_begin(b.os), 0);
        ck_assert_int_eq(orset_batch_apply(b.os, 1, batch.data, batch.len, &result),
                         ORSET_E_MALFORMED);
        orset_rollback(b.os);
        ck_assert_int_eq(orset_ask_hello(b.os, 1, &x, &q), 0);
        int e = ORSET_OK;
        while (e == ORSET_OK) {
            answer.len = 0;
            ck_assert_int_eq(orset_begin(a.os), 0);
            ck_assert_int_eq(orset_answer(a.os, 2, q.data, q.len, &answer), 0);
            ck_assert_int_eq(orset_commit(a.os), 0);
            if (answer.data[1] == 3)
                forge(&answer, "1733.M1P2.hos", bad[i]);
            q.len = 0;
            ck_assert_int_eq(orset_begin(b.os), 0);
            e = orset_take(b.os, x, answer.data, answer.len, &q);
            if (e < 0)
                orset_rollback(b.os);
            else
                ck_assert_int_eq(orset_commit(b.os), 0);
        }
        ck_assert_int_eq(e, ORSET_E_MALFORMED);
        orset_exchange_free(b.os, x);
        orset_buf_free(&batch);
        orset_buf_free(&q);
        orset_buf_free(&answer);
    }
    /* What a mailbox here has of that kind travels without its text. */
    struct orset_message m;
    f.guid[0] = 2;
    f.guid_text = "a mail's name";
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_add(a.os, ORSET_INBOX, 2, &f, &none, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(orset_message_by_uid(a.os, ORSET_INBOX, 2, &m), 1);
    ck_assert_uint_eq(m.facts.guid_text_len, 0);
    close_replica(&a);
    close_replica(&b);
}
END_TEST

/* Site 2 removes n numbers of a dead site's, beginning with first; its epoch tells its handles
 * apart. */
static int remove_unknown(struct replica *to, uint64_t epoch, uint64_t first, unsigned ops)
{
    struct orset_buf b = {.alloc = &HEAP}, op = {.alloc = &HEAP};
    struct orset_batch_result r;
    orset_buf_u8(&b, ORSET_WIRE_VERSION);
    orset_buf_num(&b, 2);
    for (unsigned i = 0; i < 2; i++) {
        orset_buf_u64(&b, i == 0 ? 2 : 9);
        orset_buf_u64(&b, i == 0 ? epoch : 109);
        orset_buf_num(&b, i == 0 ? ops : 1ULL << 40);
        orset_buf_u64(&b, 0);
    }
    orset_buf_num(&b, 0);
    orset_buf_num(&b, 0);
    orset_buf_num(&b, 1);
    orset_buf_u64(&b, 0);
    orset_buf_num(&b, ops);
    for (unsigned i = 0; i < ops; i++) {
        op.len = 0;
        orset_buf_u8(&op, 2);
        orset_buf_num(&op, 0);
        orset_buf_num(&op, ORSET_OP_DOTS_MAX);
        for (unsigned j = 0; j < ORSET_OP_DOTS_MAX; j++) {
            orset_buf_num(&op, 1);
            orset_buf_num(&op, first + i * ORSET_OP_DOTS_MAX + j);
        }
        orset_buf_text(&b, op.data, op.len);
    }
    ck_assert_int_eq(orset_begin(to->os), 0);
    int e = orset_batch_apply(to->os, 2, b.data, b.len, &r);
    ck_assert_int_eq(orset_commit(to->os), 0);
    orset_buf_free(&b);
    orset_buf_free(&op);
    return e;
}

/* A site that remembers too much cannot answer a hello: a peer would end the exchanges of all
 * others. */
START_TEST(test_a_peer_s_share_of_what_is_remembered)
{
    struct replica a, c;
    open_replica(&a, 1);
    open_replica(&c, 3);
    ck_assert_int_eq(remove_unknown(&a, 102, 1, 10), 0);
    for (uint64_t epoch = 103; epoch < 110; epoch++) /* a new epoch is no new share */
        ck_assert_int_eq(remove_unknown(&a, epoch, epoch << 20, 10), ORSET_E_EXCHANGE);
    ck_assert_uint_le(orset_remembered(a.os), ORSET_PENDING_MAX);
    append(&a, ORSET_INBOX, 1, 1, 0);
    ck_assert_int_eq(take_over(&c, 3, &a, 1), ORSET_KNOWN);
    assert_equal(&a, &c);
    close_replica(&a);
    close_replica(&c);
}
END_TEST

/* n keywords of site's on a's mail, in sets of at most 100 that do not know of each other. */
static int mark(struct replica *to, struct orset_dot target, unsigned n)
{
    int e = 0;
    struct orset_buf b = {.alloc = &HEAP}, op = {.alloc = &HEAP};
    struct orset_batch_result r;
    for (unsigned done = 0; done < n && e == 0; done += 100) {
        b.len = op.len = 0;
        orset_buf_u8(&op, 3);
        orset_buf_num(&op, 0);
        orset_buf_num(&op, 1);
        orset_buf_num(&op, 1);
        orset_buf_num(&op, target.counter);
        orset_buf_num(&op, 100);
        for (unsigned i = 0; i < 100; i++) {
            char name[20];
            int len = snprintf(name, sizeof name, "m%u", done + i);
            orset_buf_u8(&op, 5);
            orset_buf_text(&op, name, (size_t)len);
            orset_buf_u8(&op, 1);
            orset_buf_num(&op, 0);
        }
        orset_buf_u8(&b, ORSET_WIRE_VERSION);
        orset_buf_num(&b, 2);
        for (unsigned i = 0; i < 2; i++) {
            orset_buf_u64(&b, i == 0 ? 2 : 1);
            orset_buf_u64(&b, i == 0 ? 102 : 101);
            orset_buf_num(&b, i == 0 ? done + 100 : 0);
            orset_buf_u64(&b, 0);
        }
        orset_buf_num(&b, 0);
        orset_buf_num(&b, 0);
        orset_buf_num(&b, done + 1);
        orset_buf_u64(&b, 0);
        orset_buf_num(&b, 1);
        orset_buf_text(&b, op.data, op.len);
        ck_assert_int_eq(orset_begin(to->os), 0);
        e = orset_batch_apply(to->os, 2, b.data, b.len, &r);
        ck_assert_int_eq(orset_commit(to->os), 0);
    }
    orset_buf_free(&b);
    orset_buf_free(&op);
    return e;
}

/* Before the bound, 2,000 of one site's keywords on a mail ended the streams of all others that
 * flagged it. */
static void others_still_flag(bool mail_first)
{
    struct replica a, c;
    struct orset_flags flagged = {.system = ORSET_FLAGGED};
    open_replica(&a, 1);
    open_replica(&c, 3);
    struct orset_dot d = append(&a, ORSET_INBOX, 1, 1, 0);
    if (mail_first)
        ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    ck_assert_int_eq(mark(&c, d, 3000), ORSET_E_EXCHANGE);
    if (!mail_first)
        ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    ck_assert_int_eq(orset_begin(a.os), 0);
    ck_assert_int_eq(orset_local_flags(a.os, ORSET_INBOX, 1, &flagged, NULL), ORSET_OK);
    ck_assert_int_eq(orset_commit(a.os), 0);
    ck_assert_int_eq(send_to(&a, &c, 1, 1), 0);
    close_replica(&a);
    close_replica(&c);
}

START_TEST(test_a_peer_s_keywords_leave_others_room_on_a_mail)
{
    others_still_flag(true);
    others_still_flag(false);
}
END_TEST

TCase *hostile_cases(void)
{
    TCase *t = tcase_create("hostile");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_a_peer_s_share_of_the_origins);
    tcase_add_test(t, test_what_a_peer_has_of_others_is_named_up_to_a_bound);
    tcase_add_test(t, test_a_peer_s_share_of_the_keywords);
    tcase_add_test(t, test_a_guid_that_is_a_path_is_refused);
    tcase_add_test(t, test_a_peer_s_share_of_what_is_remembered);
    tcase_add_test(t, test_a_peer_s_keywords_leave_others_room_on_a_mail);
    tcase_add_test(t, test_numbers_of_others_in_a_batch_s_vector_count_for_nothing);
    return t;
}
