#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/mail/envelope.h"
#include "lib/base/log.h"
#include "lib/base/logline.h"
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

/* ---- fields ---- */

static char all[20000];

static void keep(enum log_level level, const char *text)
{
    (void)level;
    snprintf(all, sizeof all, "%s", text);
}

static void say_hostile(const char *from)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_mail, "4jWv");
    LOGLINE(&l, ": from=<");
    logline_field(&l, LOG_FIELD_from, from, 256);
    LOGLINE(&l, ">, size=");
    logline_field_number(&l, LOG_FIELD_size, 12);
    LOGLINE(&l, ", nodes=");
    logline_field(&l, LOG_FIELD_nodes, "mx1>mx2", 100);
    logline_say(&l);
}

static json_t *said(void)
{
    json_error_t error;
    json_t *j = json_loads(all, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, all);
    return j;
}

START_TEST(test_json_has_the_facts_of_the_text_whatever_strangers_write)
{
    static const struct {
        const char *given, *is;
    } from[] = {
        {"a@b", "a@b"},
        {"\"q\\\"@b", "\"q\\\"@b"},
        {"a>, size=9, nodes=x", "a>, size=9, nodes=x"},
        {"\n{\x1b[31m\x7f", "?{?[31m?"},
        {"\xff\xc2", "??"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"", ""},
    };
    char text[sizeof all], expected[600];
    log_stderr_to(keep);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        log_as_json(false);
        say_hostile(from[i].given);
        snprintf(text, sizeof text, "%s", all);
        snprintf(expected, sizeof expected, "4jWv: from=<%s>, size=12, nodes=mx1>mx2", from[i].is);
        ck_assert_str_eq(text, expected);
        log_as_json(true);
        say_hostile(from[i].given);
        log_as_json(false);
        json_t *j = said(), *nodes = json_object_get(j, "nodes");
        ck_assert_str_eq(json_string_value(json_object_get(j, "message")), text);
        ck_assert_str_eq(json_string_value(json_object_get(j, "from")), from[i].is);
        ck_assert_str_eq(json_string_value(json_object_get(j, "queue_id")), "4jWv");
        ck_assert_str_eq(json_string_value(json_object_get(j, "event")), "mail");
        ck_assert_str_eq(json_string_value(json_object_get(j, "level")), "info");
        ck_assert_int_eq(json_integer_value(json_object_get(j, "size")), 12);
        ck_assert_int_eq((int)json_array_size(nodes), 2);
        ck_assert_str_eq(json_string_value(json_array_get(nodes, 1)), "mx2");
        json_decref(j);
    }
}
END_TEST

START_TEST(test_a_json_line_is_whole_however_long_its_text)
{
    char large[LOG_TEXT_MAX + 500];
    memset(large, '"', sizeof large);
    large[sizeof large - 1] = '\0';
    log_stderr_to(keep);
    log_as_json(true);
    log_warning("%s", large);
    json_t *j = said();
    ck_assert_int_eq((int)json_string_length(json_object_get(j, "message")), LOG_TEXT_MAX);
    json_decref(j);
    struct logline l;
    logline_begin(&l, LOG_EVENT_mail, large);
    for (int i = 1; i < LOG_MARKS_MAX; i++)
        logline_field(&l, LOG_FIELD_from, large, 300);
    logline_say(&l);
    json_decref(said());
    logline_begin(&l, LOG_EVENT_mail, "4j");
    logline_add(&l, large, LOG_TEXT_MAX - 4);
    logline_field(&l, LOG_FIELD_store_ms, "0.8", 3); /* cut behind the point */
    logline_say(&l);
    json_decref(said());
    log_as_json(false);
}
END_TEST

START_TEST(test_a_line_about_one_thing_has_it_as_a_field)
{
    log_stderr_to(keep);
    log_of(LOG_LEVEL_INFO, LOG_FIELD_lane, "a|b", "%d owners", 2);
    ck_assert_str_eq(all, "lane=a|b: 2 owners");
    log_mail(LOG_LEVEL_WARNING, "4jWv", "%s", "late");
    ck_assert_str_eq(all, "4jWv: late");
    log_as_json(true);
    log_of(LOG_LEVEL_INFO, LOG_FIELD_user, "u\"", "x");
    log_as_json(false);
    json_t *j = said();
    ck_assert_str_eq(json_string_value(json_object_get(j, "user")), "u\"");
    ck_assert_ptr_null(json_object_get(j, "event"));
    json_decref(j);
}
END_TEST

START_TEST(test_the_journal_gets_fields)
{
    char where[80], got[9000] = "";
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "/tmp/dovelane-journal-%d", (int)getpid());
    snprintf(where, sizeof where, "journal:%s", to.sun_path);
    ck_assert_int_lt(log_open("test", where, LOG_LEVEL_INFO), 0);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(log_open("test", where, LOG_LEVEL_INFO), 0);
    say_hostile("a\nMESSAGE=forged");
    ck_assert_int_gt((int)recv(fd, got, sizeof got - 1, 0), 0);
    ck_assert_str_eq(got, "PRIORITY=6\nSYSLOG_FACILITY=2\nSYSLOG_IDENTIFIER=test\n"
                          "MESSAGE=4jWv: from=<a?MESSAGE=forged>, size=12, nodes=mx1>mx2\n"
                          "DOVELANE_QUEUE_ID=4jWv\nDOVELANE_FROM=a?MESSAGE=forged\n"
                          "DOVELANE_SIZE=12\nDOVELANE_NODES=mx1>mx2\n");
    close(fd);
    unlink(to.sun_path);
    log_info("nobody takes it"); /* to stderr */
    ck_assert_int_eq(log_open("test", "stderr", LOG_LEVEL_INFO), 0);
}
END_TEST

START_TEST(test_a_file_that_was_moved_away_is_opened_anew)
{
    char where[64], moved[80], text[512] = "";
    snprintf(where, sizeof where, "file:/tmp/dovelane-log-%d", (int)getpid());
    snprintf(moved, sizeof moved, "%s.1", where + 5);
    ck_assert_int_eq(log_open("test", where, LOG_LEVEL_INFO), 0);
    log_info("before");
    ck_assert_int_eq(rename(where + 5, moved), 0);
    ck_assert_int_eq(log_reopen(), 0);
    log_info("after");
    FILE *f = fopen(where + 5, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "after"));
    unlink(where + 5);
    unlink(moved);
}
END_TEST

TCase *log_tests(void)
{
    TCase *t = tcase_create("log");
    tcase_add_loop_test(t, test_nothing_from_the_wire_can_forge_a_line_or_drive_a_terminal, 0,
                        sizeof line / sizeof *line);
    tcase_add_test(t, test_each_byte_is_judged_alike_at_each_place);
    tcase_add_test(t, test_json_has_the_facts_of_the_text_whatever_strangers_write);
    tcase_add_test(t, test_a_json_line_is_whole_however_long_its_text);
    tcase_add_test(t, test_a_line_about_one_thing_has_it_as_a_field);
    tcase_add_test(t, test_the_journal_gets_fields);
    tcase_add_test(t, test_a_file_that_was_moved_away_is_opened_anew);
    tcase_add_test(t, test_an_envelope_that_cannot_be_kept_whole_is_unfit);
    return t;
}
