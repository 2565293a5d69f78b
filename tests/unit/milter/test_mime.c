/* Which messages say that they are 8-bit. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/mime.h"

static bool says(const char *message)
{
    return mime_says_8bit(message, strlen(message));
}

START_TEST(test_the_header_says_it)
{
    ck_assert(says("Content-Transfer-Encoding: 8bit\r\n\r\nx\r\n"));
    ck_assert(says("Subject: x\r\ncontent-transfer-encoding:BINARY\r\n\r\n"));
    ck_assert(says("Content-Transfer-Encoding:\r\n\t8bit\r\nSubject: x\r\n\r\n"));
    ck_assert(!says("Content-Transfer-Encoding: base64\r\n\r\n"));
    ck_assert(!says("Content-Transfer-Encoding: 8bit (really)\r\n\r\n"));
    ck_assert(!says("Subject: Content-Transfer-Encoding: 8bit\r\n\r\n"));
    ck_assert(!says("Subject: x\r\n\r\nContent-Transfer-Encoding: 8bit\r\n"));
    ck_assert(!says("") && !says("\r\n") && !says("\r\n\xff\r\n") && !says("a") && !says("a:") &&
              !says("Content-Transfer-Encoding:"));
}
END_TEST

START_TEST(test_a_part_says_it)
{
    ck_assert(says("Content-Type: multipart/mixed; "
                   "boundary=x\r\n\r\n--x\r\n\r\na\r\n--x\r\nContent-Transfer-Encoding: "
                   "8bit\r\n\r\nb\r\n--x--\r\n"));
    ck_assert(says("Content-Type: message/rfc822\r\n\r\nSubject: x\r\nContent-Transfer-Encoding: "
                   "8bit\r\n\r\nb\r\n"));
    ck_assert(says("Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: "
                   "message/rfc822\r\n\r\nSubject: y\r\n"
                   "Content-Transfer-Encoding: binary\r\n\r\nb\r\n--x--\r\n"));
    ck_assert(!says("Content-Type: multipart/mixed; "
                    "boundary=x\r\n\r\n--x\r\n\r\nContent-Transfer-Encoding: 8bit\r\n--x--\r\n"));
    ck_assert(
        !says("Content-Type: text/plain\r\n\r\n--x\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"));
    ck_assert(!says("Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nno "
                    "header\r\nContent-Transfer-Encoding: 8bit\r\n\r\n--x"));
}
END_TEST

/* Nothing is read behind the end: the sanitized build looks at this one. */
START_TEST(test_every_length)
{
    const char *message = "Content-Type: multipart/mixed\r\n\r\n--x\r\nContent-Type: "
                          "message/rfc822\r\n\r\nContent-Transfer-Encoding: 8bit\r\n\r\n--";
    for (size_t n = 0; n <= strlen(message); n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, message, n);
        bool eight = mime_says_8bit(copy, n);
        ck_assert_msg(eight == (n >= strlen(message) - 6), "at %zu of %zu", n, strlen(message));
        free(copy);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mime");
    TCase *c = tcase_create("mime");
    tcase_add_test(c, test_the_header_says_it);
    tcase_add_test(c, test_a_part_says_it);
    tcase_add_test(c, test_every_length);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
