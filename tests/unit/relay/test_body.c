#include <stdlib.h>
#include <string.h>

#include "relay/smtp/smtp_body.h"
#include "tests/unit/relay/tests.h"

/* All of it, in steps of at most n bytes. */
static void drain(struct smtp_body *b, size_t n, struct buf *out)
{
    struct iovec part[SMTP_BODY_PARTS];
    int parts;
    buf_consume(out, out->len);
    while ((parts = smtp_body_next(b, part))) {
        size_t took = 0;
        ck_assert(!smtp_body_over(b) && parts <= SMTP_BODY_PARTS);
        for (int i = 0; i < parts && took < n; i++) {
            size_t some = part[i].iov_len < n - took ? part[i].iov_len : n - took;
            buf_add(out, part[i].iov_base, some);
            took += some;
        }
        smtp_body_sent(b, took);
    }
    ck_assert(smtp_body_over(b));
    buf_addc(out, '\0');
}

static void expect(const char *head, const char *message, const char *data, const char *chunk)
{
    struct buf out = {0};
    for (size_t n = 1; n < 30; n += 7) {
        struct smtp_body b = {0};
        ck_assert(!smtp_body_over(&b));
        smtp_body_data(&b, head, strlen(head), message, strlen(message));
        drain(&b, n, &out);
        ck_assert_str_eq(out.data, data);
        ck_assert_uint_eq(smtp_body_chunk(&b, head, strlen(head), message, strlen(message)),
                          strlen(chunk));
        drain(&b, n, &out);
        ck_assert_str_eq(out.data, chunk);
        smtp_body_clear(&b);
    }
    buf_free(&out);
}

START_TEST(test_a_message_as_data_and_as_bdat_want_it)
{
    expect("", "", ".\r\n", "");
    expect("H: h\r\n", "", "H: h\r\n.\r\n", "H: h\r\n");
    expect("", "a\r\n", "a\r\n.\r\n", "a\r\n");
    expect("H: h\r\n", "S: x\r\n\r\nb", "H: h\r\nS: x\r\n\r\nb\r\n.\r\n",
           "H: h\r\nS: x\r\n\r\nb\r\n");
    expect("H: h\r\n", ".a\r\n.\r\n", "H: h\r\n..a\r\n..\r\n.\r\n", "H: h\r\n.a\r\n.\r\n");
    expect("H: h\r\n", "a\n.b\nc", "H: h\r\na\r\n..b\r\nc\r\n.\r\n", "H: h\r\na\r\n.b\r\nc\r\n");
    expect("", "\n", "\r\n.\r\n", "\r\n");
    expect("", "a\rb\r\n", "a\rb\r\n.\r\n", "a\rb\r\n");
}
END_TEST

START_TEST(test_a_large_message_is_changed_piece_by_piece)
{
    struct buf message = {0}, want = {0}, out = {0};
    struct smtp_body b = {0};
    for (int i = 0; i < 40000; i++) {
        buf_printf(&message, ".%d\r\n", i);
        buf_printf(&want, "..%d\r\n", i);
    }
    buf_add(&want, ".\r\n", 4);
    smtp_body_data(&b, NULL, 0, message.data, message.len);
    drain(&b, 100000, &out);
    ck_assert_str_eq(out.data, want.data);
    ck_assert_uint_lt(b.changed.size, 300000);
    smtp_body_clear(&b);
    buf_free(&message);
    buf_free(&want);
    buf_free(&out);
}
END_TEST

TCase *body_tests(void)
{
    TCase *t = tcase_create("body");
    tcase_add_test(t, test_a_message_as_data_and_as_bdat_want_it);
    tcase_add_test(t, test_a_large_message_is_changed_piece_by_piece);
    return t;
}
