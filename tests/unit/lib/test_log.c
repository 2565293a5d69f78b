#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/mail/envelope.h"
#include "lib/base/log.h"
#include "tests/unit/lib/tests.h"

static const struct {
    const char *given, *logged;
} line[] = {
    {"plain", "plain"},
    {"gr\xc3\xbc\xc3\x9f"
     "e",
     "gr\xc3\xbc\xc3\x9f"
     "e"},
    {"two\nlines\r\t\x7f", "two?lines???"},
    {"\x9b"
     "31m",
     "?31m"}, /* a C1 control as one byte */
    {"\xc2\x9b"
     "31m",
     "??31m"}, /* and as UTF-8 */
    {"cut \xe2\x82", "cut ??"},
    {"overlong \xc0\xaf \xe0\x80\xaf", "overlong ?? ???"},
    {"\xf0\x9f\x95\x8a", "\xf0\x9f\x95\x8a"},
};

START_TEST(test_nothing_from_the_wire_can_forge_a_line_or_drive_a_terminal)
{
    char where[64], text[512] = "";
    snprintf(where, sizeof where, "file:/tmp/dovelane-log-%d-%d", (int)getpid(), _i);
    ck_assert_int_eq(log_open("test", where, LOG_LEVEL_INFO), 0);
    log_info("%s|", line[_i].given);
    FILE *f = fopen(where + 5, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    fclose(f);
    unlink(where + 5);
    char expected[128];
    snprintf(expected, sizeof expected, "]: %s|\n", line[_i].logged);
    ck_assert_msg(strstr(text, expected) != NULL, "logged: %s", text);
}
END_TEST

static char seen[64];

static void see(enum log_level level, const char *text)
{
    (void)level;
    snprintf(seen, sizeof seen, "%s", text);
}

/* Lines are looked at in pieces: no byte may slip through because of where it stands, or what
 * stands beside it. */
START_TEST(test_each_byte_is_judged_alike_at_each_place)
{
    log_stderr_to(see);
    for (size_t at = 0; at < 20; at++)
        for (int c = 1; c < 256; c++)
            for (int beside = ' '; beside < 0x7f; beside += '~' - ' ') {
                char given[21], expected[21];
                memset(given, beside, 20);
                given[20] = '\0';
                memcpy(expected, given, sizeof given);
                given[at] = (char)c;
                expected[at] = c >= ' ' && c < 0x7f ? (char)c : '?';
                log_info("%s", given);
                ck_assert_str_eq(seen, expected);
            }
}
END_TEST

START_TEST(test_an_envelope_that_cannot_be_kept_whole_is_unfit)
{
    char large[ENVELOPE_TEXT_MAX + 2];
    struct recipient r = {.address = (char *)"a@b"};
    struct envelope e = {.sender = (char *)"", .nrecipients = 1, .recipient = &r};
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = '\0';
    ck_assert_ptr_null(envelope_unfit(&e));
    e.sender = large;
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    e.sender = (char *)"\"a\tb\"@c";
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    e.sender = (char *)"s@x";
    r.address = large;
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    r.address = (char *)"";
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    r.address = (char *)"a@b";
    e.nrecipients = 0;
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    e.nrecipients = ENVELOPE_RECIPIENTS_MAX + 1;
    ck_assert_ptr_nonnull(envelope_unfit(&e));
}
END_TEST

TCase *log_tests(void)
{
    TCase *t = tcase_create("log");
    tcase_add_loop_test(t, test_nothing_from_the_wire_can_forge_a_line_or_drive_a_terminal, 0,
                        sizeof line / sizeof *line);
    tcase_add_test(t, test_each_byte_is_judged_alike_at_each_place);
    tcase_add_test(t, test_an_envelope_that_cannot_be_kept_whole_is_unfit);
    return t;
}
