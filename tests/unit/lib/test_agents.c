/* Which of a next hop's addresses are used, and in which order. */
#include "tests/unit/lib/tests.h"

#include <arpa/inet.h>
#include <string.h>

#include "lib/postfix/agents.h"

/* "4a6b" makes four addresses of these families, told apart by the letters. */
static void make(struct addresses *list, const char *text)
{
    list->n = 0;
    for (; *text; text += 2) {
        struct socket_address *a = &list->v[list->n++];
        memset(a, 0, sizeof *a);
        a->sa.ss_family = *text == '4' ? AF_INET : *text == '6' ? AF_INET6 : AF_UNIX;
        a->text[0] = text[1];
    }
}

static void becomes(bool v4, bool v6, sa_family_t first, const char *given, const char *expected)
{
    const struct agent a = {.v4 = v4, .v6 = v6, .first = first};
    struct addresses list;
    char got[ADDRESSES_MAX + 1] = "";
    make(&list, given);
    agent_sort(&a, &list);
    for (size_t i = 0; i < list.n; i++)
        got[i] = list.v[i].text[0];
    ck_assert_str_eq(got, expected);
}

START_TEST(test_order)
{
    becomes(true, true, AF_UNSPEC, "6a4b6c", "abc");
    becomes(true, true, AF_INET, "6a4b6c4d", "bdac");
    becomes(true, true, AF_INET6, "4a4b6c4d", "cabd");
    becomes(true, false, AF_UNSPEC, "6a4b6c", "b");
    becomes(true, false, AF_INET6, "6a4b6c", "b");
    becomes(false, true, AF_INET, "6a4b6c", "ac");
    becomes(false, true, AF_UNSPEC, "4a", "");
    becomes(false, true, AF_INET, "Ua", "a");
    becomes(true, true, AF_UNSPEC, "4a4b4c4d4e4f4g4h", "abcdefgh");
}
END_TEST

TCase *agents_tests(void)
{
    TCase *c = tcase_create("agents");
    tcase_add_test(c, test_order);
    return c;
}
