#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/base/queue.h"
#include "tests/unit/lib/tests.h"

#define ITEMS 12
#define ROUNDS 2000

struct item {
    LIST_ENTRY(item) list;
    STAILQ_ENTRY(item) stailq;
    TAILQ_ENTRY(item) tailq;
    bool in;
};

LIST_HEAD(items, item);
STAILQ_HEAD(line, item);
TAILQ_HEAD(row, item);

/* What a list must be: the same elements in an array. */
struct model {
    struct item *at[ITEMS];
    int n;
};

static void put(struct model *m, int at, struct item *item)
{
    for (int i = m->n++; i > at; i--)
        m->at[i] = m->at[i - 1];
    m->at[at] = item;
    item->in = true;
}

static int take(struct model *m, struct item *item)
{
    int at = 0;
    while (m->at[at] != item)
        at++;
    m->n--;
    for (int i = at; i < m->n; i++)
        m->at[i] = m->at[i + 1];
    item->in = false;
    return at;
}

START_TEST(test_list)
{
    struct item item[ITEMS] = {0}, *each;
    struct model m = {0};
    struct items head;
    LIST_INIT(&head);
    for (int round = 0; round < ROUNDS; round++) {
        struct item *one = &item[rand() % ITEMS];
        if (one->in) {
            LIST_REMOVE(one, list);
            take(&m, one);
        } else {
            LIST_INSERT_HEAD(&head, one, list);
            put(&m, 0, one);
        }
        int n = 0;
        LIST_FOREACH (each, &head, list)
            ck_assert_ptr_eq(each, m.at[n++]);
        ck_assert_int_eq(n, m.n);
        ck_assert_int_eq(LIST_EMPTY(&head), !n);
    }
}
END_TEST

START_TEST(test_stailq)
{
    struct item item[ITEMS] = {0};
    struct model m = {0};
    static struct line head = STAILQ_HEAD_INITIALIZER(head);
    for (int round = 0; round < ROUNDS; round++) {
        struct item *one = &item[rand() % ITEMS];
        if (!one->in) {
            STAILQ_INSERT_TAIL(&head, one, stailq);
            put(&m, m.n, one);
        } else if (rand() % 2) {
            STAILQ_REMOVE(&head, one, item, stailq);
            take(&m, one);
        } else {
            one = STAILQ_FIRST(&head);
            STAILQ_REMOVE_HEAD(&head, stailq);
            take(&m, one);
        }
        int n = 0;
        for (one = STAILQ_FIRST(&head); one; one = one->stailq.stqe_next)
            ck_assert_ptr_eq(one, m.at[n++]);
        ck_assert_int_eq(n, m.n);
        ck_assert_int_eq(STAILQ_EMPTY(&head), !n);
    }
}
END_TEST

static void same(struct row *head, struct model *m)
{
    struct item *each;
    int n = 0;
    TAILQ_FOREACH (each, head, tailq)
        ck_assert_ptr_eq(each, m->at[n++]);
    ck_assert_int_eq(n, m->n);
    ck_assert_int_eq(TAILQ_EMPTY(head), !n);
    for (each = TAILQ_LAST(head, row); each; each = TAILQ_PREV(each, row, tailq))
        ck_assert_ptr_eq(each, m->at[--n]);
    ck_assert_int_eq(n, 0);
}

static void add(struct row *head, struct model *m, struct item *one)
{
    int at = m->n ? rand() % m->n : 0, where = rand() % 3;
    if (where == 0) {
        TAILQ_INSERT_HEAD(head, one, tailq);
        put(m, 0, one);
    } else if (where == 1 || !m->n) {
        TAILQ_INSERT_TAIL(head, one, tailq);
        put(m, m->n, one);
    } else {
        TAILQ_INSERT_AFTER(head, m->at[at], one, tailq);
        put(m, at + 1, one);
    }
}

START_TEST(test_tailq)
{
    struct item item[ITEMS] = {0};
    struct model m[2] = {0};
    struct row head[2];
    TAILQ_INIT(&head[0]);
    TAILQ_INIT(&head[1]);
    for (int round = 0; round < ROUNDS; round++) {
        int number = rand() % ITEMS, half = number % 2;
        if (item[number].in) {
            /* after a CONCAT it may be in the other one */
            for (int i = 0; i < m[1 - half].n; i++)
                if (m[1 - half].at[i] == &item[number]) {
                    half = 1 - half;
                    break;
                }
            TAILQ_REMOVE(&head[half], &item[number], tailq);
            take(&m[half], &item[number]);
        } else {
            add(&head[half], &m[half], &item[number]);
        }
        if (rand() % 20 == 0) {
            TAILQ_CONCAT(&head[half], &head[1 - half], tailq);
            while (m[1 - half].n) {
                struct item *first = m[1 - half].at[0];
                take(&m[1 - half], first);
                put(&m[half], m[half].n, first);
            }
        }
        same(&head[0], &m[0]);
        same(&head[1], &m[1]);
    }
}
END_TEST

TCase *queue_tests(void)
{
    TCase *tc = tcase_create("queue");
    tcase_add_test(tc, test_list);
    tcase_add_test(tc, test_stailq);
    tcase_add_test(tc, test_tailq);
    return tc;
}
