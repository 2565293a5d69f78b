#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/entryid.h"
#include "lib/mail/envelope.h"
#include "lib/mail/lanename.h"
#include "tests/unit/lib/tests.h"

static void sample(struct envelope *e)
{
    *e = (struct envelope){0};
    e->arrived = 1790000000123456;
    e->size = 1234;
    e->queue_id = mem_strdup("4jWhSH0G8Sz1SS5l");
    e->sender = mem_strdup("\"quoted user\"@example.org");
    e->sender_args = mem_strdup("SIZE=1000 BODY=8BITMIME ENVID=abc+2B SMTPUTF8");
    e->client_addr = mem_strdup("2001:db8::1");
    e->nrecipients = 2;
    e->recipient = mem_zero(2 * sizeof *e->recipient);
    e->recipient[0].address = mem_strdup("a@example.net");
    e->recipient[0].args = mem_strdup("NOTIFY=FAILURE");
    e->recipient[1].address = mem_strdup("b@example.net");
    e->recipient[1].state = RECIPIENT_FAILED;
    e->recipient[1].attempts = 300;
    e->recipient[1].code = 550;
    e->recipient[1].text = mem_strdup("5.1.1 unknown");
    e->recipient[1].last_attempt = 1790000001000000;
}

START_TEST(test_what_is_encoded_comes_back)
{
    struct envelope e, d;
    struct buf b = {0};
    sample(&e);
    envelope_encode(&e, &b);
    ck_assert_ptr_null(envelope_decode(b.data, b.len, &d));
    ck_assert_int_eq(d.arrived, e.arrived);
    ck_assert_uint_eq(d.size, 1234);
    ck_assert_str_eq(d.sender, e.sender);
    ck_assert_str_eq(d.sender_args, e.sender_args);
    ck_assert_ptr_null(d.login);
    ck_assert_uint_eq(d.nrecipients, 2);
    ck_assert_str_eq(d.recipient[0].args, "NOTIFY=FAILURE");
    ck_assert_int_eq(d.recipient[1].state, RECIPIENT_FAILED);
    ck_assert_uint_eq(d.recipient[1].attempts, 300);
    ck_assert_int_eq(d.recipient[1].last_attempt, 1790000001000000);
    struct buf again = {0};
    envelope_encode(&d, &again);
    ck_assert_uint_eq(again.len, b.len);
    ck_assert_mem_eq(again.data, b.data, b.len);
    envelope_free(&d);
    envelope_free(&e);
    buf_free(&b);
    buf_free(&again);
}
END_TEST

START_TEST(test_marks_make_another_version_and_unknown_ones_are_refused)
{
    struct envelope e, d;
    struct buf plain = {0}, b = {0};
    sample(&e);
    envelope_encode(&e, &plain);
    e.marks = ENVELOPE_HELD | ENVELOPE_REQUEUE;
    envelope_encode(&e, &b);
    ck_assert_uint_eq(b.len, plain.len + 1);
    ck_assert_int_eq(b.data[0], ENVELOPE_VERSION_MARKED);
    ck_assert_ptr_null(envelope_decode(b.data, b.len, &d));
    ck_assert_uint_eq(d.marks, ENVELOPE_HELD | ENVELOPE_REQUEUE);
    envelope_free(&d);
    b.data[b.len - 1] = ENVELOPE_ASIDE;
    ck_assert_ptr_null(envelope_decode(b.data, b.len, &d));
    ck_assert_uint_eq(d.marks, ENVELOPE_ASIDE);
    envelope_free(&d);
    b.data[b.len - 1] = 16;
    ck_assert_str_eq(envelope_decode(b.data, b.len, &d), "unknown marks");
    b.data[b.len - 1] = 0;
    ck_assert_str_eq(envelope_decode(b.data, b.len, &d), "unknown marks");
    ck_assert_str_eq(envelope_decode(b.data, b.len - 1, &d), "truncated number");
    b.data[0] = ENVELOPE_VERSION;
    ck_assert_str_eq(envelope_decode(b.data, b.len, &d), "bytes behind the last field");
    ck_assert_ptr_null(envelope_decode(plain.data, plain.len, &d));
    ck_assert_uint_eq(d.marks, 0);
    envelope_free(&d);
    envelope_free(&e);
    buf_free(&plain);
    buf_free(&b);
}
END_TEST

START_TEST(test_a_retained_recipient_names_its_site)
{
    struct envelope e, d;
    struct buf b = {0};
    sample(&e);
    for (size_t i = 0; i < e.nrecipients; i++)
        e.recipient[i].state = RECIPIENT_SENT;
    ck_assert(!envelope_is_retained(&e));
    e.recipient[1].state = RECIPIENT_RETAINED;
    e.recipient[1].site = 300;
    ck_assert(envelope_is_retained(&e));
    envelope_encode(&e, &b);
    ck_assert_int_eq(b.data[0], ENVELOPE_VERSION_RETAINED);
    ck_assert_ptr_null(envelope_decode(b.data, b.len, &d));
    ck_assert_int_eq(d.recipient[1].state, RECIPIENT_RETAINED);
    ck_assert_uint_eq(d.recipient[1].site, 300);
    ck_assert_int_eq(d.recipient[0].state, RECIPIENT_SENT);
    ck_assert_uint_eq(d.marks, 0);
    envelope_free(&d);
    for (size_t n = 0; n < b.len; n++)
        ck_assert_ptr_nonnull(envelope_decode(b.data, n, &d));
    /* Programs of before know neither the version nor the state. */
    b.data[0] = ENVELOPE_VERSION_MARKED;
    ck_assert_str_eq(envelope_decode(b.data, b.len, &d), "unknown recipient state");
    buf_consume(&b, b.len);
    e.marks = ENVELOPE_DELETED;
    envelope_encode(&e, &b);
    ck_assert_ptr_null(envelope_decode(b.data, b.len, &d));
    ck_assert_uint_eq(d.marks, ENVELOPE_DELETED);
    envelope_free(&d);
    e.recipient[0].state = RECIPIENT_WAITING;
    ck_assert(!envelope_is_retained(&e));
    envelope_free(&e);
    buf_free(&b);
}
END_TEST

START_TEST(test_every_truncation_is_refused)
{
    struct envelope e, d;
    struct buf b = {0};
    sample(&e);
    envelope_encode(&e, &b);
    for (size_t n = 0; n < b.len; n++) {
        char *exact = mem_dup(b.data, n); /* so that a sanitizer sees a read behind the end */
        ck_assert_ptr_nonnull(envelope_decode(exact, n, &d));
        free(exact);
    }
    buf_addc(&b, 'x');
    ck_assert_str_eq(envelope_decode(b.data, b.len, &d), "bytes behind the last field");
    envelope_free(&e);
    buf_free(&b);
}
END_TEST

START_TEST(test_every_flipped_bit_is_refused_or_decodes_safely)
{
    struct envelope e, d;
    struct buf b = {0};
    sample(&e);
    envelope_encode(&e, &b);
    unsigned refused = 0;
    for (size_t bit = 0; bit < 8 * b.len; bit++) {
        b.data[bit / 8] ^= (char)(1 << bit % 8);
        if (envelope_decode(b.data, b.len, &d))
            refused++;
        else
            envelope_free(&d);
        b.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    ck_assert_uint_gt(refused, 0);
    envelope_free(&e);
    buf_free(&b);
}
END_TEST

START_TEST(test_huge_counts_cost_no_memory)
{
    struct envelope d;
    unsigned char claim[64] = {ENVELOPE_VERSION};
    /* 18 empty texts, then 9,999 recipients of which nothing is there */
    claim[21] = 0x8f;
    claim[22] = 0x4e;
    ck_assert_str_eq(envelope_decode(claim, 23, &d), "truncated recipients");
    claim[21] = 0xff;
    claim[22] = 0xff;
    claim[23] = 0x7f;
    ck_assert_str_eq(envelope_decode(claim, 24, &d), "too many recipients");
    claim[0] = ENVELOPE_VERSION_RETAINED + 1;
    ck_assert_str_eq(envelope_decode(claim, 24, &d), "unknown version");
}
END_TEST

START_TEST(test_esmtp_arguments_are_found)
{
    char *v = envelope_arg("SIZE=1 notify=SUCCESS,DELAY SMTPUTF8", "NOTIFY");
    ck_assert_str_eq(v, "SUCCESS,DELAY");
    free(v);
    v = envelope_arg("SIZE=1 SMTPUTF8", "SMTPUTF8");
    ck_assert_str_eq(v, "");
    free(v);
    ck_assert_ptr_null(envelope_arg("XNOTIFY=NEVER", "NOTIFY"));
    ck_assert_ptr_null(envelope_arg("NOTIFYX=NEVER", "NOTIFY"));
    ck_assert_ptr_null(envelope_arg(NULL, "NOTIFY"));
}
END_TEST

START_TEST(test_lane_names_come_back)
{
    const char *const owner[] = {"mx1", "mx2", "mx-3.example"};
    char *name = lanename_make("lmtp:unix:/run/a b|c>d%", owner, 3, NULL, 0, NULL);
    ck_assert_str_eq(name, "dovelane:lmtp:unix:/run/a%20b%7Cc%3Ed%25|mx1>mx2>mx-3.example");
    struct lanename n;
    ck_assert(lanename_parse(name, strlen(name), &n));
    ck_assert_str_eq(n.destination, "lmtp:unix:/run/a b|c>d%");
    ck_assert_uint_eq(n.nowners, 3);
    ck_assert_str_eq(n.owner[2], "mx-3.example");
    ck_assert_ptr_null(n.origin);
    ck_assert_uint_eq(n.generation, 0);
    lanename_free(&n);
    free(name);
}
END_TEST

START_TEST(test_names_of_ordered_lanes_come_back)
{
    const char *const owner[] = {"a", "b"};
    struct lanename n, other;
    char *name = lanename_make("smtp:[h]:25", owner, 2, "mx|1.example", 1763766000123u, NULL);
    ck_assert_str_eq(name, "dovelane:smtp:[h]:25|a>b|mx%7C1.example.1763766000123");
    ck_assert(lanename_parse(name, strlen(name), &n));
    ck_assert_str_eq(n.origin, "mx|1.example");
    ck_assert_uint_eq(n.generation, 1763766000123u);
    ck_assert_uint_eq(n.nowners, 2);
    const char *later = "dovelane:smtp:[h]:25|c|mx%7C1.example.1763766000124",
               *stranger = "dovelane:smtp:[h]:25|a>b|b.7", *spread = "dovelane:smtp:[h]:25|a>b";
    ck_assert(lanename_parse(later, strlen(later), &other));
    ck_assert(lanename_same_series(&n, &other));
    lanename_free(&other);
    ck_assert(lanename_parse(stranger, strlen(stranger), &other));
    ck_assert(!lanename_same_series(&n, &other));
    lanename_free(&other);
    ck_assert(lanename_parse(spread, strlen(spread), &other));
    ck_assert(!lanename_same_series(&other, &other));
    lanename_free(&other);
    lanename_free(&n);
    free(name);
}
END_TEST

START_TEST(test_names_of_lanes_of_a_class_come_back)
{
    const char *const owner[] = {"a", "b"};
    struct lanename n;
    char *name = lanename_make("smtp:[h]:25", owner, 2, NULL, 0, "bulk-2");
    ck_assert_str_eq(name, "dovelane:smtp:[h]:25|a>b|+bulk-2");
    ck_assert(lanename_parse(name, strlen(name), &n));
    ck_assert_str_eq(n.class, "bulk-2");
    ck_assert_str_eq(n.destination, "smtp:[h]:25");
    ck_assert_uint_eq(n.nowners, 2);
    ck_assert_str_eq(n.owner[1], "b");
    ck_assert_ptr_null(n.origin);
    lanename_free(&n);
    free(name);
    name = lanename_make("smtp:[h]:25", owner, 2, "mx1", 7, "bulk");
    ck_assert(lanename_parse(name, strlen(name), &n));
    ck_assert_str_eq(n.class, "bulk");
    ck_assert_str_eq(n.origin, "mx1");
    ck_assert_uint_eq(n.generation, 7);
    lanename_free(&n);
    free(name);
}
END_TEST

START_TEST(test_names_of_classes)
{
    ck_assert(lanename_class_ok("bulk"));
    ck_assert(lanename_class_ok("0123456789-abcd"));
    static const char *const wrong[] = {"", "0123456789-abcde", "Bulk", "a.b", "a b", "a|b", "+a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!lanename_class_ok(wrong[i]), "taken for a class: %s", wrong[i]);
}
END_TEST

START_TEST(test_other_names_are_no_lanes)
{
    static const char *const other[] = {"",
                                        "dovelane:",
                                        "dovelane:x",
                                        "dovelane:x|",
                                        "dovelane:|a",
                                        "dovelane:x|a>",
                                        "dovelane:x|>a",
                                        "other:x|a",
                                        "dovelane:x%2|a",
                                        "dovelane:x%zz|a",
                                        "dovelane:x%00|a",
                                        "dovelane:x|a|",
                                        "dovelane:x|a|b|c",
                                        "dovelane:x|a|b.1|c",
                                        "dovelane:x|a|b",
                                        "dovelane:x|a|b.",
                                        "dovelane:x|a|.1",
                                        "dovelane:x|a|b.0",
                                        "dovelane:x|a|b.1x",
                                        "dovelane:x|a|b.-1",
                                        "dovelane:x|a|b.12345678901234567890",
                                        "dovelane:x|a|+",
                                        "dovelane:x|a|+A",
                                        "dovelane:x|a|+0123456789abcdef",
                                        "dovelane:x|a|+b|b.1",
                                        "dovelane:x|a|+b|+c",
                                        "dovelane:x|1>2>3>4>5>6>7>8>9"};
    struct lanename n;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        ck_assert_msg(!lanename_parse(other[i], strlen(other[i]), &n), "taken for a lane: %s",
                      other[i]);
}
END_TEST

START_TEST(test_ids_differ_and_their_fractions_spread)
{
    unsigned char a[ENTRYID_LEN], b[ENTRYID_LEN];
    double sum = 0;
    for (int i = 0; i < 1000; i++) {
        entryid_make(a);
        entryid_make(b);
        ck_assert(memcmp(a, b, ENTRYID_LEN));
        double f = entryid_fraction(a, 3);
        ck_assert(f >= 0 && f < 1);
        ck_assert(f == entryid_fraction(a, 3));
        sum += f;
    }
    ck_assert(sum > 400 && sum < 600);
    char hex[ENTRYID_HEX];
    entryid_hex(a, hex);
    ck_assert_uint_eq(strlen(hex), 32);
}
END_TEST

TCase *envelope_tests(void)
{
    TCase *t = tcase_create("envelope");
    tcase_add_test(t, test_what_is_encoded_comes_back);
    tcase_add_test(t, test_marks_make_another_version_and_unknown_ones_are_refused);
    tcase_add_test(t, test_a_retained_recipient_names_its_site);
    tcase_add_test(t, test_every_truncation_is_refused);
    tcase_add_test(t, test_every_flipped_bit_is_refused_or_decodes_safely);
    tcase_add_test(t, test_huge_counts_cost_no_memory);
    tcase_add_test(t, test_esmtp_arguments_are_found);
    tcase_add_test(t, test_lane_names_come_back);
    tcase_add_test(t, test_names_of_ordered_lanes_come_back);
    tcase_add_test(t, test_names_of_lanes_of_a_class_come_back);
    tcase_add_test(t, test_names_of_classes);
    tcase_add_test(t, test_other_names_are_no_lanes);
    tcase_add_test(t, test_ids_differ_and_their_fractions_spread);
    return t;
}
