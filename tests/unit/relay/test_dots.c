#include <string.h>

#include "lib/mail/smtp_dots.h"
#include "tests/unit/relay/tests.h"

/* What a server reads back: the message behind the first lone dot is lost, so nothing but the
 * end may look like one. */
static void unstuff(const char *p, size_t len, struct buf *out)
{
    const char *end = p + len;
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        ck_assert_ptr_nonnull(lf);
        ck_assert(lf > p && lf[-1] == '\r');
        if (lf - p == 2 && *p == '.') {
            ck_assert_ptr_eq(lf + 1, end);
            return;
        }
        if (*p == '.')
            p++;
        buf_add(out, p, (size_t)(lf + 1 - p));
        p = lf + 1;
    }
    ck_abort_msg("no final dot");
}

static void expect(const char *message, const char *want)
{
    struct buf out = {0};
    struct smtp_dots d;
    smtp_dots_begin(&d);
    smtp_dots_add(&d, message, strlen(message), &out);
    smtp_dots_end(&d, &out);
    ck_assert_str_eq(out.data, want);
    buf_free(&out);
}

START_TEST(test_leading_dots_are_doubled)
{
    expect("a\r\n.b\r\n", "a\r\n..b\r\n.\r\n");
    expect(".\r\n", "..\r\n.\r\n");
    expect("..\r\n.\r\n", "...\r\n..\r\n.\r\n");
    expect("a.b\r\n", "a.b\r\n.\r\n");
    expect("", ".\r\n");
}
END_TEST

START_TEST(test_line_ends_become_crlf)
{
    expect("a\n.\nb\n", "a\r\n..\r\nb\r\n.\r\n");
    expect("a\n.\r\nQUIT\r\n", "a\r\n..\r\nQUIT\r\n.\r\n");
    expect("\n\n", "\r\n\r\n.\r\n");
    expect("a\rb\r\n", "a\rb\r\n.\r\n");
}
END_TEST

START_TEST(test_an_open_last_line_is_closed)
{
    expect("a", "a\r\n.\r\n");
    expect("a\r\n.", "a\r\n..\r\n.\r\n");
    expect("a\r", "a\r\r\n.\r\n");
}
END_TEST

START_TEST(test_clean_means_that_nothing_changes)
{
    const char *clean[] = {"", "a", "a\r\n", "a\r\nb.\r\n", "a.\r\n\r\n", "a\rb"};
    const char *dirty[] = {".",  ".a\r\n", "a\r\n.\r\n",    "a\n",
                           "\n", "\r\n\n", "a\r\n\n.x\r\n", "a\r\n..b"};
    for (size_t i = 0; i < sizeof clean / sizeof *clean; i++) {
        struct buf want = {0};
        ck_assert_msg(smtp_dots_clean(clean[i], strlen(clean[i])), "%zu", i);
        buf_adds(&want, clean[i]);
        buf_adds(&want, smtp_dots_terminator(clean[i], strlen(clean[i])));
        expect(clean[i], want.data);
        buf_free(&want);
    }
    for (size_t i = 0; i < sizeof dirty / sizeof *dirty; i++)
        ck_assert_msg(!smtp_dots_clean(dirty[i], strlen(dirty[i])), "%zu", i);
}
END_TEST

/* Every message of up to six of these bytes, cut at every place in two, and byte by byte: the
 * same bytes come out, and a server reads back the message with CRLF line ends. */
START_TEST(test_every_cut_of_every_short_message)
{
    static const char byte[] = {'\r', '\n', '.', 'x'};
    for (unsigned n = 0; n <= 6; n++)
        for (unsigned code = 0; code < 1u << (2 * n); code++) {
            char m[6];
            for (unsigned i = 0; i < n; i++)
                m[i] = byte[code >> (2 * i) & 3];
            struct buf whole = {0}, cut = {0}, back = {0};
            struct smtp_dots d;
            smtp_dots_begin(&d);
            smtp_dots_add(&d, m, n, &whole);
            smtp_dots_end(&d, &whole);
            unstuff(whole.data, whole.len, &back);
            for (unsigned at = 0; at <= n + 1; at++) {
                cut.len = 0;
                smtp_dots_begin(&d);
                if (at <= n) {
                    smtp_dots_add(&d, m, at, &cut);
                    smtp_dots_add(&d, m + at, n - at, &cut);
                } else {
                    for (unsigned i = 0; i < n; i++)
                        smtp_dots_add(&d, m + i, 1, &cut);
                }
                smtp_dots_end(&d, &cut);
                ck_assert_uint_eq(cut.len, whole.len);
                ck_assert_mem_eq(cut.data, whole.data, whole.len);
            }
            if (smtp_dots_clean(m, n)) {
                ck_assert_mem_eq(whole.data, m, n);
                ck_assert_str_eq(whole.data + n, smtp_dots_terminator(m, n));
            }
            buf_free(&whole);
            buf_free(&cut);
            buf_free(&back);
        }
}
END_TEST

TCase *dots_tests(void)
{
    TCase *t = tcase_create("dots");
    tcase_add_test(t, test_leading_dots_are_doubled);
    tcase_add_test(t, test_line_ends_become_crlf);
    tcase_add_test(t, test_an_open_last_line_is_closed);
    tcase_add_test(t, test_clean_means_that_nothing_changes);
    tcase_add_test(t, test_every_cut_of_every_short_message);
    return t;
}
