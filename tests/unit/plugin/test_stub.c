/* A stub's line, and the two streams over it. */
#include "dovecot-plugin/compat.h"

#include "tests/unit/plugin/tests.h"

#include "dovecot-plugin/stub/format.h"
#include "dovecot-plugin/stub/streams.h"

#include <buffer.h>
#include <istream.h>
#include <ostream.h>

#include <string.h>

#define HEAD "Subject: x\r\nX-Mail: y\r\n\r\n"

static const struct stub_key key = {.bytes = {1, 2, 3}}, other = {.bytes = {1, 2, 4}};

static struct stub made_up(void)
{
    struct stub s = {.size = 0x0123456789abcdefULL, .stored = 77};

    for (unsigned i = 0; i < sizeof(s.sha256); i++)
        s.sha256[i] = (uint8_t)(i * 8 + 7);
    return s;
}

START_TEST(test_a_line_says_what_was_written)
{
    struct stub s = made_up(), is;
    char line[STUB_LINE];

    stub_write(line, &s, &key, HEAD, strlen(HEAD));
    ck_assert_mem_eq(line, "X-Dovelane-Stub: 1 070f17", 25);
    ck_assert(stub_read(line, sizeof(line), &is));
    ck_assert_mem_eq(is.sha256, s.sha256, sizeof(s.sha256));
    ck_assert_uint_eq(is.size, s.size);
    ck_assert_uint_eq(is.stored, s.stored);
    ck_assert(stub_is_true(line, &key, HEAD, strlen(HEAD)));
    ck_assert(!stub_is_true(line, &other, HEAD, strlen(HEAD)));
    ck_assert(!stub_read(line, sizeof(line) - 1, &is));
}
END_TEST

/* Each byte counts: of the line, and of the head. */
START_TEST(test_what_was_changed_is_not_true)
{
    struct stub s = made_up(), is;
    char line[STUB_LINE], head[] = HEAD;

    stub_write(line, &s, &key, head, strlen(head));
    for (size_t i = 0; i < sizeof(line); i++) {
        for (int bit = 0; bit < 8; bit++) {
            line[i] ^= (char)(1 << bit);
            ck_assert(!stub_read(line, sizeof(line), &is) ||
                      !stub_is_true(line, &key, head, strlen(head)));
            line[i] ^= (char)(1 << bit);
        }
    }
    for (size_t i = 0; i < strlen(HEAD); i++) {
        head[i] ^= 1;
        ck_assert(!stub_is_true(line, &key, head, strlen(HEAD)));
        head[i] ^= 1;
    }
    ck_assert(!stub_is_true(line, &key, head, strlen(HEAD) - 1));
    ck_assert(stub_is_true(line, &key, head, strlen(HEAD)));
}
END_TEST

START_TEST(test_a_header_ends_with_an_empty_line)
{
    static const struct {
        const char *text;
        size_t size;
    } is[] = {{"a: b\n\nc", 6}, {"a: b\r\n\r\nc", 8}, {"a: b\n\r\n", 7}, {"\nx", 1},
              {"\r\nx", 2},     {"a: b\n", 0},        {"a: b\r\n\r", 0}, {"", 0},
              {"a: b\n \n", 0}};

    for (size_t i = 0; i < N_ELEMENTS(is); i++)
        ck_assert_uint_eq(stub_header_size(is[i].text, strlen(is[i].text)), is[i].size);
}
END_TEST

START_TEST(test_a_key_is_a_line_of_digits)
{
    struct stub_key is;
    char text[STUB_KEY_TEXT];

    stub_key_write_text(text, &key);
    ck_assert_mem_eq(text, "0102030000", 10);
    ck_assert(stub_key_read_text(text, sizeof(text), &is));
    ck_assert_mem_eq(is.bytes, key.bytes, sizeof(is.bytes));
    ck_assert(!stub_key_read_text(text, sizeof(text) - 1, &is));
    text[3] = 'G';
    ck_assert(!stub_key_read_text(text, sizeof(text), &is));
}
END_TEST

/* --- streams ---------------------------------------------------------------------------------- */

/* A mail of n lines; with CRs, or without. */
static buffer_t *long_mail(unsigned n, bool crlf)
{
    buffer_t *text = buffer_create_dynamic(default_pool, 65536);
    const char *end = crlf ? "\r\n" : "\n";

    buffer_append(text, "Subject: x", 10);
    buffer_append(text, end, strlen(end));
    buffer_append(text, end, strlen(end));
    for (unsigned i = 0; i < n; i++) {
        char line[32];
        (void)i_snprintf(line, sizeof(line), "line %u%s", i, end);
        buffer_append(text, line, strlen(line));
    }
    return text;
}

/* What lies on the disk of it; at most `chunk` bytes are written at a time. */
static buffer_t *stub_of(const buffer_t *text, size_t chunk, int *result_r)
{
    buffer_t *disk = buffer_create_dynamic(default_pool, 4096);
    struct ostream *below = o_stream_create_buffer(disk), *out;
    struct stub s = made_up();

    out = stub_ostream_create(below, &s, &key);
    *result_r = 0;
    for (size_t at = 0; at < text->used && *result_r == 0; at += chunk) {
        size_t n = I_MIN(chunk, text->used - at);
        if (o_stream_send(out, CONST_PTR_OFFSET(text->data, at), n) != (ssize_t)n)
            *result_r = -1;
    }
    if (*result_r == 0)
        *result_r = o_stream_finish(out) < 0 ? -1 : 0;
    o_stream_ignore_last_errors(out);
    o_stream_unref(&out);
    o_stream_unref(&below);
    return disk;
}

struct site {
    const buffer_t *whole;
    unsigned asked;
};

static struct istream *fetch(void *context, const struct stub *stub, const char **error_r)
{
    struct site *site = context;

    ck_assert_uint_eq(stub->size, made_up().size);
    site->asked++;
    *error_r = "nobody answers";
    return site->whole == NULL ? NULL : i_stream_create_from_buffer(site->whole);
}

static struct istream *opened(const buffer_t *disk, struct site *site)
{
    struct stub s;
    size_t n = disk->used - STUB_LINE;
    const void *head = CONST_PTR_OFFSET(disk->data, STUB_LINE);

    ck_assert(stub_read(disk->data, disk->used, &s));
    ck_assert(stub_is_true(disk->data, &key, head, n));
    return stub_istream_create(&s, head, n, fetch, site);
}

static bool reads(struct istream *in, const buffer_t *text, size_t at, size_t n)
{
    const unsigned char *data;
    size_t got;

    i_stream_seek(in, at);
    while (n > 0 && i_stream_read_more(in, &data, &got) > 0) {
        got = I_MIN(got, n);
        if (memcmp(data, CONST_PTR_OFFSET(text->data, at), got) != 0)
            return FALSE;
        i_stream_skip(in, got);
        at += got;
        n -= got;
    }
    return n == 0;
}

START_TEST(test_streams_give_the_mail_back)
{
    buffer_t *wire = long_mail(5000, TRUE);

    for (size_t chunk = 1; chunk < 100000; chunk = chunk * 7 + 1) {
        for (int crlf = 0; crlf < 2; crlf++) {
            buffer_t *text = long_mail(5000, crlf != 0), *disk;
            struct site site = {.whole = wire};
            struct istream *in;
            uoff_t size;
            int r;

            disk = stub_of(text, chunk, &r);
            ck_assert_int_eq(r, 0);
            ck_assert_uint_lt(disk->used, STUB_LINE + 40 + STUB_BEHIND);
            in = opened(disk, &site);
            ck_assert_int_eq(i_stream_get_size(in, TRUE, &size), 1);
            ck_assert_uint_eq(size, text->used);
            ck_assert(reads(in, text, 0, 20));
            ck_assert_uint_eq(site.asked, 0);
            ck_assert(reads(in, text, 0, text->used));
            ck_assert(reads(in, text, 30000, 10));
            ck_assert(reads(in, text, 100, 20000));
            ck_assert(reads(in, text, text->used - 1, 1));
            ck_assert_int_eq(i_stream_read(in), -1);
            ck_assert(in->eof && in->stream_errno == 0);
            ck_assert_uint_eq(site.asked, 1);
            i_stream_unref(&in);
            buffer_free(&disk);
            buffer_free(&text);
        }
    }
    buffer_free(&wire);
}
END_TEST

/* Never a shorter mail: an error. */
START_TEST(test_a_text_that_does_not_come_is_an_error)
{
    buffer_t *text = long_mail(5000, TRUE), *shorter = long_mail(4999, TRUE), *disk;
    struct site nobody = {.whole = NULL}, liar = {.whole = shorter};
    const char *error;
    struct istream *in;
    int r;

    disk = stub_of(text, 4096, &r);
    in = opened(disk, &nobody);
    ck_assert(reads(in, text, 0, 20));
    ck_assert_int_eq(stub_istream_fetch(in, &error), -1);
    ck_assert_str_eq(error, "nobody answers");
    ck_assert(!reads(in, text, 0, text->used));
    ck_assert_int_ne(in->stream_errno, 0);
    i_stream_unref(&in);
    in = opened(disk, &liar);
    ck_assert(!reads(in, text, 0, text->used));
    ck_assert_int_ne(in->stream_errno, 0);
    i_stream_unref(&in);
    buffer_free(&disk);
    buffer_free(&shorter);
    buffer_free(&text);
}
END_TEST

START_TEST(test_a_header_without_end_is_not_stored)
{
    buffer_t *text = buffer_create_dynamic(default_pool, 4096), *disk;
    int r;

    buffer_append(text, "Subject: x\r\n", 12);
    disk = stub_of(text, 5, &r);
    ck_assert_int_eq(r, -1);
    ck_assert_uint_eq(disk->used, 0);
    buffer_free(&disk);
    while (text->used <= STUB_HEADER_MAX)
        buffer_append(text, "X-Long: header\r\n", 16);
    buffer_append(text, "\r\nbody", 6);
    disk = stub_of(text, 4096, &r);
    ck_assert_int_eq(r, -1);
    ck_assert_uint_eq(disk->used, 0);
    buffer_free(&disk);
    buffer_free(&text);
}
END_TEST

TCase *stub_tests(void)
{
    TCase *tc = tcase_create("stub");

    tcase_add_test(tc, test_a_line_says_what_was_written);
    tcase_add_test(tc, test_what_was_changed_is_not_true);
    tcase_add_test(tc, test_a_header_ends_with_an_empty_line);
    tcase_add_test(tc, test_a_key_is_a_line_of_digits);
    tcase_add_test(tc, test_streams_give_the_mail_back);
    tcase_add_test(tc, test_a_text_that_does_not_come_is_an_error);
    tcase_add_test(tc, test_a_header_without_end_is_not_stored);
    return tc;
}
