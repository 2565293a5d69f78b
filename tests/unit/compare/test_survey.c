/* A survey is read as it was written, and a wrong one is refused with its line. */
#include "dovecot-plugin/compare/survey.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "dovelane-survey\t1\thost\n"
#define GUID "000102030405060708090a0b0c0d0e0f"
#define HASH GUID GUID

/* The reader of a file with this text, or NULL and why. */
static struct survey *reader(const char *text, size_t n, char **why)
{
    char path[] = "/tmp/dovelane-survey-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, n), (ssize_t)n);
    close(fd);
    struct survey *s = survey_open(path, why);
    unlink(path);
    return s;
}

START_TEST(test_written_and_read)
{
    char *text = NULL, *why, name[] = "inbox\0a/b%\n\0-";
    size_t n;
    FILE *f = open_memstream(&text, &n);
    struct survey_folder folder = {
        .name = name, .name_len = sizeof name - 1, .uid_next = 8, .uid_validity = UINT32_MAX};
    struct survey_mail mail = {.uid = 7, .guid = {1}, .sha256 = {2}};
    struct survey_user u;
    ck_assert_ptr_nonnull(f);
    survey_put_head(f, "host");
    survey_put_user(f, "100%@example.org");
    survey_put_folder(f, &folder);
    survey_put_mail(f, &mail);
    survey_put_end(f, 1);
    fclose(f);
    struct survey *s = reader(text, n, &why);
    ck_assert_msg(s != NULL, "%s", why);
    ck_assert_uint_eq(survey_users(s), 1);
    ck_assert_str_eq(survey_user_name(s, 0), "100%@example.org");
    ck_assert_int_eq(survey_read(s, 0, &u, &why), 0);
    ck_assert_uint_eq(u.n, 1);
    ck_assert_uint_eq(u.folder[0].name_len, sizeof name - 1);
    ck_assert_mem_eq(u.folder[0].name, name, sizeof name - 1);
    ck_assert_uint_eq(u.folder[0].uid_validity, UINT32_MAX);
    ck_assert_uint_eq(u.folder[0].n, 1);
    ck_assert_uint_eq(u.folder[0].mail[0].uid, 7);
    ck_assert_mem_eq(u.folder[0].mail[0].sha256, mail.sha256, sizeof mail.sha256);
    survey_user_free(&u);
    survey_close(s);
    free(text);
}
END_TEST

static const struct {
    const char *text, *says;
} refused[] = {
    {"", ":0: this is no file"},
    {"dovelane-survey\t2\thost\nend\t0\n", ":1: the survey's form is 2"},
    {"dovelane-survey\t1\th\033[2Jost\nend\t0\n", ":1: the line is cut, or is no text"},
    {HEAD "U\tbob\n", "cut short"},
    {HEAD "U\tbob\nend\t2\n", ":3: it has 1 users, and should have 2"},
    {HEAD "U\tbob\nU\tbob\nend\t2\n", ":3: bob is there twice"},
    {HEAD "U\tb%1b[2J\nend\t1\n", ":2: the user's name cannot be read"},
    {HEAD "U\tb%00\nend\t1\n", ":2: the user's name cannot be read"},
    {HEAD "U\tb%4\nend\t1\n", ":2: the user's name cannot be read"},
    {HEAD "U\tbob\nend\t1\nU\tx\n", ":4: something stands behind the end"},
    {HEAD "U\ta\tb\tc\td\te\nend\t1\n", ":2: it has too many fields"},
    {HEAD "U\tbob\nend\t1", ":3: the line is cut"},
};

START_TEST(test_a_wrong_file_is_refused)
{
    char *why;
    ck_assert_ptr_null(reader(refused[_i].text, strlen(refused[_i].text), &why));
    ck_assert_msg(why && strstr(why, refused[_i].says), "%d: %s", _i, why);
    free(why);
}
END_TEST

static const struct {
    const char *lines, *says;
} wrong_user[] = {
    {"M\t1\t" GUID "\t" HASH "\n", ":3: a mail stands before any folder"},
    {"F\t-\t" GUID "\t1\t0\n", ":3: the folder's line cannot be read"},
    {"F\t-\t" GUID "\t4294967296\t1\n", ":3: the folder's line cannot be read"},
    {"F\t-\t" GUID "0\t1\t1\n", ":3: the folder's line cannot be read"},
    {"F\t-\t" GUID "\t-1\t1\n", ":3: the folder's line cannot be read"},
    {"F\t-\t" GUID "\t1\t9\nM\t0\t" GUID "\t" HASH "\n", ":4: the mail's line cannot be read"},
    {"F\t-\t" GUID "\t1\t9\nM\t1\t" GUID "\t" GUID "\n", ":4: the mail's line cannot be read"},
    {"F\t-\t" GUID "\t1\t9\nM\t2\t" GUID "\t" HASH "\nM\t2\t" GUID "\t" HASH "\n",
     ":5: its UID is not above the one before"},
    {"Z\tx\n", ":3: a line of no known kind"},
};

START_TEST(test_a_wrong_user_is_refused)
{
    char text[1024], *why;
    struct survey_user u;
    int n = snprintf(text, sizeof text, HEAD "U\tbob\n%send\t1\n", wrong_user[_i].lines);
    struct survey *s = reader(text, (size_t)n, &why);
    ck_assert_msg(s != NULL, "%d: %s", _i, why);
    ck_assert_int_eq(survey_read(s, 0, &u, &why), -1);
    ck_assert_msg(why && strstr(why, wrong_user[_i].says), "%d: %s", _i, why);
    free(why);
    survey_close(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("survey");
    TCase *t = tcase_create("survey");
    tcase_add_test(t, test_written_and_read);
    tcase_add_loop_test(t, test_a_wrong_file_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(t, test_a_wrong_user_is_refused, 0, sizeof wrong_user / sizeof *wrong_user);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
