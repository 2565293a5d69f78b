/* Parcels: meta and bodies. */
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/protocol/parcel.h"
#include "tests/unit/replicator/tests.h"

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

static const struct orset_alloc HEAP = {NULL, resize};

#define TEXT(s) ((struct text){(const uint8_t *)(s), strlen(s)})

static struct text all(const struct orset_buf *b)
{
    return (struct text){b->data, b->len};
}

START_TEST(meta_comes_through_and_nothing_shorter_or_longer_does)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct parcel p = {.version = PARCEL_VERSION,
                       .group = {1, 2, 3},
                       .user = TEXT("a@example.net"),
                       .kind = PARCEL_WANT,
                       .from = 1,
                       .to = 1000},
                  q;
    ck_assert_int_eq(parcel_encode(&b, &p), 0);
    for (size_t n = 0; n < b.len; n++)
        ck_assert_int_eq(parcel_decode(&q, b.data, n), -1);
    ck_assert_int_eq(parcel_decode(&q, b.data, b.len), 0);
    ck_assert_mem_eq(q.group, p.group, 16);
    ck_assert_uint_eq(q.user.n, 13);
    ck_assert(q.kind == PARCEL_WANT && q.from == 1 && q.to == 1000);
    orset_buf_u8(&b, 0);
    ck_assert_int_eq(parcel_decode(&q, b.data, b.len), -1);
    orset_buf_free(&b);
}
END_TEST

START_TEST(another_version_tells_its_number)
{
    struct parcel q;
    const uint8_t meta[40] = {PARCEL_VERSION + 1, 7};
    ck_assert_int_eq(parcel_decode(&q, meta, sizeof meta), 0);
    ck_assert_uint_eq(q.version, PARCEL_VERSION + 1);
    ck_assert_uint_eq(q.group[0], 7);
    ck_assert_int_eq(parcel_decode(&q, meta, 1), 0);
    ck_assert_int_eq(parcel_decode(&q, meta, 0), -1);
}
END_TEST

START_TEST(a_user_that_no_user_can_have_is_malformed)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct parcel p = {
        .version = PARCEL_VERSION, .user = TEXT("../x"), .kind = 1, .from = 1, .to = 2};
    ck_assert_int_eq(parcel_encode(&b, &p), -1);
    ck_assert_uint_eq(b.len, 0);
    p.user = TEXT("x");
    ck_assert_int_eq(parcel_encode(&b, &p), 0);
    orset_buf_free(&b);
}
END_TEST

START_TEST(group_digest_knows_sites_and_namespaces_but_no_order)
{
    const uint64_t a[] = {1, 2, 3}, b[] = {3, 1, 2}, c[] = {1, 2};
    const struct text in[] = {TEXT("inbox"), TEXT("shared")},
                      out[] = {TEXT("shared"), TEXT("inbox")};
    uint8_t x[16], y[16];
    parcel_group(a, 3, in, 2, x);
    parcel_group(b, 3, out, 2, y);
    ck_assert_mem_eq(x, y, 16);
    parcel_group(c, 2, in, 2, y);
    ck_assert_mem_ne(x, y, 16);
    parcel_group(a, 3, in, 1, y);
    ck_assert_mem_ne(x, y, 16);
    parcel_group(a, 3, NULL, 0, y);
    ck_assert_mem_ne(x, y, 16);
}
END_TEST

START_TEST(a_batch_carries_its_mails)
{
    struct orset_buf b = {.alloc = &HEAP};
    uint8_t sha[2][32] = {{1}, {2}};
    struct text batch;
    struct orset_reader mails;
    struct parcel_mail m;
    size_t n;
    parcel_put_batch(&b, TEXT("the batch"), 2);
    parcel_put_mail(&b, sha[0], TEXT("From: a\r\n\r\n"));
    parcel_put_mail(&b, sha[1], TEXT(""));
    for (size_t len = 0; len < b.len; len++)
        ck_assert_int_eq(parcel_batch((struct text){b.data, len}, &batch, &n, &mails), -1);
    ck_assert_int_eq(parcel_batch(all(&b), &batch, &n, &mails), 0);
    ck_assert_uint_eq(batch.n, 9);
    ck_assert_uint_eq(n, 2);
    ck_assert(parcel_next_mail(&mails, &m));
    ck_assert(m.sha256[0] == 1 && m.mail.n == 11);
    ck_assert(parcel_next_mail(&mails, &m));
    ck_assert(m.sha256[0] == 2 && m.mail.n == 0);
    ck_assert(!parcel_next_mail(&mails, &m));
    b.len = 0;
    parcel_put_bodies(&b, 1);
    parcel_put_mail(&b, sha[0], TEXT("From: b\r\n\r\n"));
    for (size_t len = 0; len < b.len; len++)
        ck_assert_int_eq(parcel_bodies((struct text){b.data, len}, &n, &mails), -1);
    ck_assert_int_eq(parcel_bodies(all(&b), &n, &mails), 0);
    ck_assert(n == 1 && parcel_next_mail(&mails, &m) && m.sha256[0] == 1 && m.mail.n == 11);
    ck_assert(!parcel_next_mail(&mails, &m));
    orset_buf_free(&b);
}
END_TEST

static void put_batch(struct orset_buf *b, uint64_t first, uint64_t nops)
{
    struct orset_buf batch = {.alloc = &HEAP};
    orset_buf_u8(&batch, 1);
    orset_buf_num(&batch, 2); /* vector */
    for (uint64_t i = 0; i < 2; i++) {
        orset_buf_u64(&batch, i + 1);
        orset_buf_u64(&batch, 77);
        orset_buf_num(&batch, 1000);
        orset_buf_u64(&batch, 5);
    }
    orset_buf_num(&batch, 0);
    orset_buf_num(&batch, 2); /* modseqs, of the INBOX and of a folder */
    orset_buf_num(&batch, 0);
    orset_buf_num(&batch, 900);
    orset_buf_num(&batch, 2);
    orset_buf_num(&batch, 33);
    orset_buf_num(&batch, 900);
    orset_buf_num(&batch, first);
    orset_buf_u64(&batch, 6);
    orset_buf_num(&batch, nops);
    b->len = 0;
    parcel_put_batch(b, all(&batch), 0);
    orset_buf_free(&batch);
}

START_TEST(a_batch_tells_where_it_begins)
{
    struct orset_buf b = {.alloc = &HEAP};
    put_batch(&b, 4711, 3);
    ck_assert_uint_eq(parcel_batch_first(all(&b)), 4711);
    for (size_t len = 0; len + 1 < b.len; len++)
        ck_assert_uint_eq(parcel_batch_first((struct text){b.data, len}), 0);
    put_batch(&b, 4711, 0); /* a hello */
    ck_assert_uint_eq(parcel_batch_first(all(&b)), 0);
    orset_buf_free(&b);
}
END_TEST

struct vector_entry {
    uint64_t site, epoch, counter;
};

static void put_hello(struct orset_buf *b, const struct vector_entry *v, size_t n,
                      uint64_t nmodseqs, uint64_t nops)
{
    struct orset_buf batch = {.alloc = &HEAP};
    orset_buf_u8(&batch, 1);
    orset_buf_num(&batch, n);
    for (size_t i = 0; i < n; i++) {
        orset_buf_u64(&batch, v[i].site);
        orset_buf_u64(&batch, v[i].epoch);
        orset_buf_num(&batch, v[i].counter);
        orset_buf_u64(&batch, 5);
    }
    orset_buf_num(&batch, 0);
    orset_buf_num(&batch, nmodseqs);
    for (uint64_t i = 0; i < nmodseqs; i++) {
        orset_buf_num(&batch, 0);
        orset_buf_num(&batch, 900);
    }
    orset_buf_num(&batch, nops ? 4711 : 0);
    orset_buf_u64(&batch, 6);
    orset_buf_num(&batch, nops);
    b->len = 0;
    parcel_put_batch(b, all(&batch), 0);
    orset_buf_free(&batch);
}

START_TEST(a_vector_confirms_what_it_has_of_a_site)
{
    static const struct vector_entry vector[] = {
        {2, 77, 40}, {1, 76, 900}, {1, 77, 1000}, {3, 77, 1000}};
    struct orset_buf b = {.alloc = &HEAP};
    put_hello(&b, vector, 4, 0, 0);
    ck_assert(parcel_confirms(all(&b), 1, 77, 1000));
    for (size_t len = 0; len + 1 < b.len; len++) /* the last byte: it has no mails */
        ck_assert(!parcel_confirms((struct text){b.data, len}, 1, 77, 1000));
    ck_assert(!parcel_confirms(all(&b), 1, 77, 1001)); /* one lacks */
    /* more than were given: this state is an old copy */
    ck_assert(!parcel_confirms(all(&b), 1, 77, 999));
    ck_assert(!parcel_confirms(all(&b), 1, 76, 1000));
    ck_assert(!parcel_confirms(all(&b), 1, 78, 1000));
    ck_assert(!parcel_confirms(all(&b), 4, 77, 1000));
    ck_assert(!parcel_confirms(all(&b), 0, 0, 0)); /* nothing is known of this site's numbers */
    put_hello(&b, vector, 4, 0, 1);
    ck_assert(!parcel_confirms(all(&b), 1, 77, 1000));
    put_hello(&b, vector, 4, 1, 0);
    ck_assert(!parcel_confirms(all(&b), 1, 77, 1000));
    put_hello(&b, vector, 1, 0, 0);
    ck_assert(!parcel_confirms(all(&b), 1, 77, 1000));
    ck_assert(!parcel_confirms(all(&b), 1, 77, 0));
    orset_buf_free(&b);
}
END_TEST

START_TEST(a_vector_names_whom_it_speaks_of)
{
    static const struct vector_entry vector[] = {{2, 77, 0}, {1, 76, 900}};
    struct orset_buf b = {.alloc = &HEAP}, origins = {.alloc = &HEAP}, q = {.alloc = &HEAP};
    size_t n;
    frame_put_origin(&origins, (struct frame_origin){1, 77});
    put_hello(&b, vector, 2, 0, 0);
    ck_assert(!parcel_names(PARCEL_BATCH, all(&b), all(&origins)));
    frame_put_origin(&origins, (struct frame_origin){2, 77}); /* which has given nothing yet */
    ck_assert(parcel_names(PARCEL_BATCH, all(&b), all(&origins)));
    ck_assert(!parcel_names(PARCEL_UID_DIRTY, all(&b), all(&origins)));
    ck_assert(!parcel_names(PARCEL_BATCH, (struct text){b.data, 12}, all(&origins)));
    orset_buf_u8(&q, 1);
    orset_buf_u8(&q, 1);
    orset_buf_num(&q, 1);
    orset_buf_u64(&q, 2);
    orset_buf_u64(&q, 77);
    orset_buf_num(&q, 5);
    orset_buf_u64(&q, 0);
    ck_assert(parcel_names(PARCEL_QUESTION, all(&q), all(&origins)));
    ck_assert(parcel_names(PARCEL_ANSWER_READING, all(&q), all(&origins)));
    ck_assert_int_eq(parcel_origins(all(&origins), &n), 0);
    ck_assert_uint_eq(n, 2);
    origins.len--;
    ck_assert_int_eq(parcel_origins(all(&origins), &n), -1);
    origins.len = 0;
    ck_assert_int_eq(parcel_origins(all(&origins), &n), -1);
    orset_buf_free(&b);
    orset_buf_free(&q);
    orset_buf_free(&origins);
}
END_TEST

START_TEST(mails_beyond_the_bounds_are_malformed)
{
    uint8_t sha[32] = {0}, *bytes = calloc(1, PARCEL_MAIL_MAX + 1);
    struct orset_reader mails;
    struct text batch;
    size_t n;
    struct orset_buf b = {.alloc = &HEAP};
    parcel_put_batch(&b, TEXT(""), 1);
    parcel_put_mail(&b, sha, (struct text){bytes, PARCEL_MAIL_MAX + 1});
    ck_assert_int_eq(parcel_batch(all(&b), &batch, &n, &mails), -1);
    b.len = 0;
    parcel_put_batch(&b, TEXT(""), 3);
    parcel_put_mail(&b, sha, (struct text){bytes, PARCEL_MAIL_MAX});
    parcel_put_mail(&b, sha, (struct text){bytes, PARCEL_MAIL_MAX});
    parcel_put_mail(&b, sha, (struct text){bytes, 1});
    ck_assert_int_eq(parcel_batch(all(&b), &batch, &n, &mails), -1);
    b.data[1] = 2;
    b.len -= 32 + 2;
    ck_assert_int_eq(parcel_batch(all(&b), &batch, &n, &mails), 0);
    b.len = 0;
    parcel_put_bodies(&b, 3);
    parcel_put_mail(&b, sha, (struct text){bytes, PARCEL_MAIL_MAX});
    parcel_put_mail(&b, sha, (struct text){bytes, PARCEL_MAIL_MAX});
    parcel_put_mail(&b, sha, (struct text){bytes, 1});
    ck_assert_int_eq(parcel_bodies(all(&b), &n, &mails), -1);
    orset_buf_free(&b);
    free(bytes);
}
END_TEST

START_TEST(wants_and_bodies_come_through)
{
    struct orset_buf b = {.alloc = &HEAP};
    uint8_t sha[32] = {9};
    struct parcel_want w = {1, UINT64_MAX, 77, sha, 1 << 20}, v;
    struct parcel_body p = {sha, 10, 4, TEXT("456789")}, q;
    struct orset_reader wants;
    size_t n;
    parcel_put_wants(&b, 1);
    parcel_put_want(&b, &w);
    ck_assert_int_eq(parcel_wants(all(&b), &n, &wants), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert(parcel_next_want(&wants, &v));
    ck_assert(v.site == 1 && v.epoch == UINT64_MAX && v.number == 77 && v.offset == 1 << 20 &&
              v.sha256[0] == 9);
    ck_assert(!parcel_next_want(&wants, &v));
    for (size_t len = 0; len < b.len; len++)
        ck_assert_int_eq(parcel_wants((struct text){b.data, len}, &n, &wants), -1);
    b.len = 0;
    parcel_put_body(&b, &p);
    ck_assert_int_eq(parcel_body(all(&b), &q), 0);
    ck_assert(q.size == 10 && q.offset == 4 && q.part.n == 6 && !memcmp(q.part.p, "456789", 6));
    for (size_t len = 0; len < b.len; len++)
        ck_assert_int_eq(parcel_body((struct text){b.data, len}, &q), -1);
    b.len = 0;
    p.size = 9; /* the part would reach beyond the mail's end */
    parcel_put_body(&b, &p);
    ck_assert_int_eq(parcel_body(all(&b), &q), -1);
    orset_buf_free(&b);
}
END_TEST

START_TEST(questions_for_the_disk_come_through)
{
    struct orset_buf b = {.alloc = &HEAP};
    uint8_t guids[(PARCEL_GUIDS_MAX + 1) * PARCEL_GUID] = {1, [PARCEL_GUID] = 2};
    struct parcel_guids g = {.asked = UINT64_MAX, .epoch = 5, .n = 2, .guid = guids}, h;
    parcel_put_guids(&b, PARCEL_ASK_DISK, &g);
    ck_assert_int_eq(parcel_guids(PARCEL_ASK_DISK, all(&b), &h), 0);
    ck_assert(h.asked == UINT64_MAX && h.epoch == 0 && h.n == 2 && h.guid[PARCEL_GUID] == 2);
    for (size_t len = 0; len < b.len; len++)
        ck_assert_int_eq(parcel_guids(PARCEL_ASK_DISK, (struct text){b.data, len}, &h),
                         len == 8 + PARCEL_GUID ? 0 : -1);
    b.len = 0;
    parcel_put_guids(&b, PARCEL_ON_DISK, &g);
    ck_assert_int_eq(parcel_guids(PARCEL_ON_DISK, all(&b), &h), 0);
    ck_assert(h.asked == UINT64_MAX && h.epoch == 5 && h.n == 2 && h.guid[0] == 1);
    for (size_t n = PARCEL_GUIDS_MAX; n <= PARCEL_GUIDS_MAX + 1; n++) {
        b.len = 0;
        g.n = n;
        parcel_put_guids(&b, PARCEL_ON_DISK, &g);
        ck_assert_int_eq(parcel_guids(PARCEL_ON_DISK, all(&b), &h), n == PARCEL_GUIDS_MAX ? 0 : -1);
    }
    orset_buf_free(&b);
}
END_TEST

/* The second of its vector's origins is the batch's own: 0 says the first one. */
START_TEST(a_vector_tells_whose_it_is)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct frame_origin o;
    put_batch(&b, 4711, 0);
    ck_assert(parcel_sender(PARCEL_BATCH, all(&b), &o));
    ck_assert(o.site == 1 && o.epoch == 77);
    ck_assert(!parcel_sender(PARCEL_WANT, all(&b), &o));
    for (size_t len = 0; len < b.len; len++)
        (void)parcel_sender(PARCEL_BATCH, (struct text){b.data, len}, &o);
    uint8_t question[2 + 1 + 2 * 25 + 1] = {1, 1, 2}; /* each: site, epoch, number, hash */
    question[3] = 9;
    question[3 + 25] = 8;
    question[3 + 25 + 8] = 66;
    question[sizeof question - 1] = 1;
    ck_assert(parcel_sender(PARCEL_QUESTION, (struct text){question, sizeof question}, &o));
    ck_assert(o.site == 8 && o.epoch == 66);
    question[sizeof question - 1] = 2; /* there is no third one */
    ck_assert(!parcel_sender(PARCEL_QUESTION, (struct text){question, sizeof question}, &o));
    orset_buf_free(&b);
}
END_TEST

TCase *parcel_tests(void)
{
    TCase *t = tcase_create("parcel");
    tcase_add_test(t, meta_comes_through_and_nothing_shorter_or_longer_does);
    tcase_add_test(t, another_version_tells_its_number);
    tcase_add_test(t, a_user_that_no_user_can_have_is_malformed);
    tcase_add_test(t, group_digest_knows_sites_and_namespaces_but_no_order);
    tcase_add_test(t, a_batch_carries_its_mails);
    tcase_add_test(t, a_batch_tells_where_it_begins);
    tcase_add_test(t, a_vector_confirms_what_it_has_of_a_site);
    tcase_add_test(t, a_vector_names_whom_it_speaks_of);
    tcase_add_test(t, mails_beyond_the_bounds_are_malformed);
    tcase_add_test(t, wants_and_bodies_come_through);
    tcase_add_test(t, questions_for_the_disk_come_through);
    tcase_add_test(t, a_vector_tells_whose_it_is);
    return t;
}
