#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/shape/backoff.h"
#include "tests/unit/lib/tests.h"

static char *write_file(const char *text)
{
    char name[] = "/tmp/backoff.XXXXXX";
    int fd = mkstemp(name);
    ck_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return mem_strdup(name);
}

static struct backoff_rules *rules_of(const char *text)
{
    char *file = write_file(text), *error = NULL;
    struct backoff_rules *all = backoff_rules_read(file, &error);
    ck_assert_msg(all, "%s", error);
    unlink(file);
    free(file);
    return all;
}

static const struct backoff_rule *find(const struct backoff_rules *all, int code, const char *dsn,
                                       const char *text)
{
    return backoff_rules_find(all, "smtp:[mx.example.net]:25", code, dsn, text);
}

/* ---- the file that is installed: a reply for each of its lines, in their order ---- */

static const struct {
    const char *destination; /* NULL: any */
    int code;
    const char *dsn, *text;
} example[] = {
    {NULL, 450, "4.2.1",
     "4.2.1 The user you are trying to contact is receiving\n4.2.1 mail at a rate that prevents"},
    {".icloud.com", 421, "4.7.1",
     "4.7.1 Messages to a@icloud.com deferred due to excessive volume. Try again later"},
    {NULL, 450, "4.2.0", "4.2.0 <a@b>: Recipient address rejected: Greylisted"},
    {NULL, 421, "4.7.28",
     "4.7.28 Gmail has detected an unusual rate of\n4.7.28 unsolicited mail originating from your "
     "IP address"},
    {NULL, 421, "4.7.28", "4.7.28 Our system has detected something; please slow down"},
    {NULL, 421, "4.7.0",
     "4.7.0 [192.0.2.1 15] Our system has detected an unusual rate of unsolicited mail"},
    {NULL, 421, "4.7.0", "4.7.0 suspicious due to the very low reputation of the sending IP"},
    {NULL, 421, "4.7.26",
     "4.7.26 Your email has been rate limited because it is unauthenticated. Gmail requires"},
    {NULL, 450, "4.2.1", "4.2.1 Peak SMTP relay limit exceeded for customer."},
    {"smtp:[gmail-smtp-in.l.google.com]:25", 421, "4.7.0",
     "4.7.0 Try again later, closing connection. (EHLO)"},
    {NULL, 421, "",
     "RP-001 (SNT004-MC1F17) Unfortunately, some messages from 192.0.2.1 weren't "
     "sent. Please try again."},
    {NULL, 421, "", "RP-003 The mail server IP connecting to Outlook.com has exceeded"},
    {NULL, 451, "4.7.652", "4.7.652 The mail server [192.0.2.1] has exceeded the maximum number"},
    {NULL, 451, "4.7.650",
     "4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation. "
     "(S775)"},
    {NULL, 451, "4.7.500",
     "4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77719)"},
    {NULL, 451, "4.7.700", "4.7.700 Access denied, please try again later (S3115)"},
    {NULL, 432, "4.3.2", "4.3.2 Concurrent connections limit exceeded. Visit https://aka.ms"},
    {NULL, 421, "4.7.1", "4.7.1 [TS03] All messages from 192.0.2.1 will be permanently deferred"},
    {NULL, 421, "4.7.0",
     "4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user "
     "complaints - 4.16.55.1; see https://postmaster.yahooinc.com/error-codes"},
    {NULL, 451, "", "Messages from 192.0.2.1 temporarily deferred due to user complaints"},
    {NULL, 421, "", "Message from (192.0.2.1) temporarily deferred - 4.16.50. Please refer to"},
    {NULL, 451, "", "Resources temporarily unavailable. Please try again later [#4.16.2]."},
    {"smtp:[mx01.mail.icloud.com]:25", 451, "4.7.1", "4.7.1 Service unavailable - try again later"},
    {"smtp:[mx01.mail.icloud.com]:25", 421, "4.7.0", "4.7.0 me.com Error: too many errors"},
    {NULL, 421, "",
     "web.de (mxweb113) Nemesis ESMTP Service not available\nService unavailable\nReject due to "
     "policy restrictions\nToo many messages have been received in a short period of time."},
    {NULL, 421, "", "gmx.net (mxgmx104) Nemesis ESMTP Service not available\nService unavailable"},
    {"smtp:[mx00.t-online.de]:25", 450, "4.7.0", "4.7.0 Too many parallel sessions from you"},
    {NULL, 421, "",
     "mwinf5c04 ME Trop de connexions, veuillez verifier votre configuration. Too many "
     "connections, slow down. OFR004_104 [104]"},
    {NULL, 421, "", "mwinf5c04 ME Service refuse. Veuillez essayer plus tard. OFR_999 [999]"},
    {NULL, 421, "", "Too many errors from your ip (192.0.2.1), please visit postmaster.free.fr"},
    {NULL, 421, "", "imta01.comcast.net comcast Too many sessions opened"},
    {NULL, 421, "4.2.0", "4.2.0 192.0.2.1 : RL000003 : Try again later"},
    {NULL, 421, "4.1.0", "4.1.0 192.0.2.1 Throttled - try again later"},
    {NULL, 421, "", "cox.net: too many in parallel (CXCNCT)"},
    {NULL, 452, "", "cox.net 192.0.2.1 - Message threshold exceeded. CXTHRT"},
    {"smtp:[eu-smtp-inbound-1.mimecast.com]:25", 421, "",
     "Unable to process connection at this time - https://community.mimecast.com/docs/DOC-1369"},
    {"smtp:[eu-smtp-inbound-1.mimecast.com]:25", 451, "", "IP temporarily blacklisted"},
    {NULL, 421, "", "Deferred - see https://ipcheck.proofpoint.com/?ip=192.0.2.1"},
    {NULL, 454, "", "Throttling failure: Daily message quota exceeded."},
    {NULL, 454, "", "Throttling failure: Maximum sending rate exceeded."},
    {NULL, 421, "4.7.0", "4.7.0 mx.example.net Error: too many connections from 192.0.2.1"},
    {NULL, 421, "4.3.2", "4.3.2 Connection rate limit exceeded."},
    {NULL, 451, "4.7.3", "The maximum number of concurrent connections is reached (4)"},
    {NULL, 450, "4.7.1", "4.7.1 Error: unusual rate of logins, rate-limited"},
    {NULL, 450, "4.7.1", "4.7.1 Error: too much mail from 192.0.2.1"},
    {NULL, 451, "4.3.0", "4.3.0 Please slow down"},
    {NULL, 450, "4.7.1", "4.7.1 Client temporarily blocked"},
    {NULL, 421, "4.7.5", "4.7.5 Come back later"},
};
#define EXAMPLES (sizeof example / sizeof *example)

/* The file, with a short suspension where it says "nothing", so that such a line is found, too. */
static struct backoff_rules *all_to_be_found(void)
{
    struct buf b = {0};
    char line[1000], *at;
    FILE *in = fopen(BACKOFF_RULES, "re");
    ck_assert_ptr_nonnull(in);
    while (fgets(line, sizeof line, in)) {
        at = *line == '#' ? NULL : strstr(line, " nothing\n");
        buf_printf(&b, "%.*s%s", at ? (int)(at - line) : (int)strlen(line), line,
                   at ? " suspend 1s\n" : "");
    }
    fclose(in);
    struct backoff_rules *all = rules_of(b.data);
    buf_free(&b);
    return all;
}

START_TEST(test_each_line_of_the_file_has_a_reply_that_no_line_before_it_fits)
{
    struct backoff_rules *all = all_to_be_found();
    for (size_t i = 0; i < EXAMPLES && i < backoff_rules_count(all); i++) {
        const char *d = example[i].destination;
        const struct backoff_rule *r = backoff_rules_find(
            all, d ? d : "smtp:[192.0.2.25]:25", example[i].code, example[i].dsn, example[i].text);
        ck_assert_msg(r == backoff_rules_at(all, i), "%d %s: %s, and not %s", example[i].code,
                      example[i].text, r ? r->name : "no line", backoff_rules_at(all, i)->name);
    }
    ck_assert_uint_eq(backoff_rules_count(all), EXAMPLES);
    backoff_rules_free(all);
}
END_TEST

START_TEST(test_the_file_lets_pass_what_is_about_one_recipient_or_none_of_its_business)
{
    char *error = NULL;
    struct backoff_rules *all = backoff_rules_read(BACKOFF_RULES, &error);
    ck_assert_msg(all, "%s", error);
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_null(find(all, example[i].code, example[i].dsn, example[i].text));
    ck_assert_ptr_null(find(all, 452, "4.2.2", "4.2.2 The recipient's inbox is out of storage"));
    ck_assert_ptr_null(find(all, 450, "4.1.2", "4.1.2 Domain not found"));
    ck_assert_ptr_null(find(all, 550, "5.1.1", "5.1.1 too many connections"));
    ck_assert_ptr_nonnull(find(all, 421, "4.7.0", NULL));
    ck_assert_ptr_null(find(all, 250, "2.0.0", "2.0.0 rate limit"));
    backoff_rules_free(all);
}
END_TEST

/* ---- the format ---- */

START_TEST(test_actions_are_read_and_the_first_line_that_fits_counts)
{
    struct backoff_rules *all = rules_of("# a comment\n\n"
                                         "  .example.net 421 4.7.* \"a \\\"b\\\"\" suspend 15m\n"
                                         "4xx * \"^b\" nothing\n"
                                         "45x *\t* rate 0.25 2h\r\n"
                                         "4xx * \"b\" connections 0.5 1min\n"
                                         "4xx * \"c\" connections 3 1min");
    const struct backoff_rule *r = find(all, 421, "4.7.9", "4.7.9 A\n4.7.9 \"B\"!");
    ck_assert(r && r->kind == BACKOFF_SUSPEND && r->ms == 900000 && r->line == 3);
    ck_assert(!strncmp(r->name, "backoff.", 8) && strstr(r->name, ":3 (suspend 15m)"));
    ck_assert_ptr_null(
        backoff_rules_find(all, "smtp:[mx.example.org]:25", 421, "4.7.9", "4.7.9 a \"d\""));
    ck_assert_ptr_null(find(all, 451, "4.0.0", "b"));
    r = find(all, 451, "4.0.0", "");
    ck_assert(r && r->kind == BACKOFF_RATE && r->value == 0.25 && r->ms == 7200000);
    r = find(all, 421, "", "ab");
    ck_assert(r && r->kind == BACKOFF_CONNECTIONS && r->value == 0.5);
    r = find(all, 421, NULL, "c");
    ck_assert(r && r->value == 3 && r->ms == 60000 && strstr(r->name, "(connections 3 1min)"));
    ck_assert_ptr_null(find(all, 421, NULL, "d"));
    ck_assert_ptr_null(find(all, 4210, NULL, "c"));
    backoff_rules_free(all);
}
END_TEST

START_TEST(test_a_line_that_cannot_be_read_is_named)
{
    static const struct {
        const char *line, *wrong;
    } table[] = {
        {"421", ":2: nothing is no enhanced code"},
        {"250 * * suspend 1m", "\"250\" is no next hop"},
        {".example.net 2xx * * suspend 1m", "2xx is no code of a refusal: 421, 45x"},
        {"421 4.7.x * suspend 1m", "4.7.x is no enhanced code: 4.7.28"},
        {"421 * too many suspend 1m", "the \"text\" in quotes, or * for any"},
        {"421 * \"too many suspend 1m", "the quote behind the text is missing"},
        {"421 * \"(\" suspend 1m", "\"(\": "},
        {"421 * \"(a)\\1\" suspend 1m", "no \\1 to \\9"},
        {"421 * * stop 1m", "stop is no action: suspend 15m"},
        {"421 * *", "behind the enhanced code comes the"},
        {"421 * * ", "nothing is no action"},
        {"421 * * suspend", "nothing is no time from 1s to 7d"},
        {"421 * * suspend 30", "30 is no time"},
        {"421 * * suspend 8d", "8d is no time"},
        {"421 * * suspend 1m now", "now is too much"},
        {"421 * * rate 1 1m", "rate 1: write a factor above 0 and below 1"},
        {"421 * * rate 1m", "rate 1m: write a factor"},
        {"421 * * connections 1.5 1m", "connections 1.5: write how many"},
        {"421 * * connections 0 1m", "connections 0: write how many"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *text = mem_printf("#\n%s\n", table[i].line), *file = write_file(text), *error = NULL;
        ck_assert_ptr_null(backoff_rules_read(file, &error));
        ck_assert_msg(strstr(error, table[i].wrong) && !strncmp(error, file, strlen(file)),
                      "%s: %s", table[i].line, error);
        unlink(file);
        free(file);
        free(text);
        free(error);
    }
    char *error = NULL;
    ck_assert_ptr_null(backoff_rules_read("/nonexistent/rules", &error));
    ck_assert_str_eq(error, "/nonexistent/rules: No such file or directory");
    free(error);
}
END_TEST

TCase *backoff_tests(void)
{
    TCase *t = tcase_create("backoff");
    tcase_add_test(t, test_each_line_of_the_file_has_a_reply_that_no_line_before_it_fits);
    tcase_add_test(t, test_the_file_lets_pass_what_is_about_one_recipient_or_none_of_its_business);
    tcase_add_test(t, test_actions_are_read_and_the_first_line_that_fits_counts);
    tcase_add_test(t, test_a_line_that_cannot_be_read_is_named);
    return t;
}
