#include "tests/unit/lib/tests.h"

#include <stdlib.h>

#include "lib/mail/address.h"

/* As RFC 5321 has them on the wire, and as Postfix keeps them inside. */
START_TEST(quotes_come_and_go_with_need)
{
    static const char *const pair[][2] = {{"a@b.example", "a@b.example"},
                                          {"a b@c", "\"a b\"@c"},
                                          {"a\"b\\@c", "\"a\\\"b\\\\\"@c"},
                                          {".a@b", "\".a\"@b"},
                                          {"a@b@c", "\"a@b\"@c"},
                                          {"", ""},
                                          {"@b", "\"\"@b"},
                                          {"a", "a"},
                                          {"gr\xc3\xbcn@b", "gr\xc3\xbcn@b"},
                                          {"a..b@c", "\"a..b\"@c"}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        char *quoted = address_quoted(pair[i][0]), *bare = address_unquoted(pair[i][1]);
        ck_assert_str_eq(quoted, pair[i][1]);
        ck_assert_str_eq(bare, pair[i][0]);
        free(quoted);
        free(bare);
    }
    char *needless = address_unquoted("\"a\"@b"), *cut = address_unquoted("\"a\\");
    ck_assert_str_eq(needless, "a@b");
    ck_assert_str_eq(cut, "a\\");
    free(needless);
    free(cut);
}
END_TEST

START_TEST(case_alone_is_no_rewriting)
{
    ck_assert(!address_rewritten("A@b.example", "a@B.example"));
    ck_assert(address_rewritten("\"a\"@b.example", "a@b.example"));
    ck_assert(address_rewritten("a@b.example", NULL));
}
END_TEST

TCase *address_tests(void)
{
    TCase *t = tcase_create("address");
    tcase_add_test(t, quotes_come_and_go_with_need);
    tcase_add_test(t, case_alone_is_no_rewriting);
    return t;
}
