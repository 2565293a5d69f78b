#include "tests/unit/lib/tests.h"

#include "lib/ingress/verdict.h"

static const struct {
    struct verdict_facts facts; /* entries, done, delivered, tempfail, revoked, queued */
    enum verdict verdict;
} row[] = {
    {{1, 1, 0, false, false, false}, VERDICT_LANES},
    {{2, 2, 1, true, true, false}, VERDICT_LANES},
    {{2, 2, 0, true, false, true}, VERDICT_LANES},
    /* policy queue */
    {{1, 0, 0, false, false, false}, VERDICT_QUEUE},
    {{2, 1, 0, false, false, false}, VERDICT_SPLIT},
    {{2, 0, 0, false, false, true}, VERDICT_QUEUE},
    /* policy tempfail */
    {{1, 0, 0, true, false, false}, VERDICT_TEMPFAIL},
    {{2, 1, 0, true, false, false}, VERDICT_REVOKE},
    {{2, 0, 0, true, true, false}, VERDICT_TEMPFAIL},
    /* a retry would deliver it twice */
    {{2, 1, 1, true, false, false}, VERDICT_SPLIT},
    {{2, 1, 1, true, true, false}, VERDICT_SPLIT},
    {{3, 2, 1, true, false, false}, VERDICT_SPLIT},
    {{2, 1, 0, true, false, true}, VERDICT_SPLIT},
    {{2, 0, 0, true, false, true}, VERDICT_QUEUE},
    /* it could not be taken back */
    {{2, 1, 0, true, true, false}, VERDICT_SPLIT},
};

START_TEST(says_what_the_table_says)
{
    ck_assert_int_eq(verdict_of(&row[_i].facts), row[_i].verdict);
}
END_TEST

/* Nothing is promised that is nowhere, nothing refused that somebody has or gets, and it comes
 * to an end. */
static void holds(const struct verdict_facts *f)
{
    enum verdict v = verdict_of(f);
    ck_assert((v == VERDICT_LANES) == (f->done == f->entries));
    if (v == VERDICT_TEMPFAIL)
        ck_assert(f->done == 0 && !f->queued && f->tempfail);
    if (v == VERDICT_REVOKE)
        ck_assert(f->done > 0 && f->delivered == 0 && !f->queued && !f->revoked && f->tempfail);
    if (v == VERDICT_QUEUE)
        ck_assert(f->done == 0);
    if (v == VERDICT_SPLIT)
        ck_assert(f->done > 0 && f->done < f->entries);
}

START_TEST(keeps_its_promises_whatever_the_facts)
{
    for (size_t entries = 1; entries <= 3; entries++)
        for (size_t done = 0; done <= entries; done++)
            for (size_t delivered = 0; delivered <= done; delivered++)
                for (unsigned flags = 0; flags < 8; flags++)
                    holds(&(struct verdict_facts){entries, done, delivered, flags & 1, flags & 2,
                                                  flags & 4});
}
END_TEST

TCase *verdict_tests(void)
{
    TCase *t = tcase_create("verdict");
    tcase_add_loop_test(t, says_what_the_table_says, 0, sizeof row / sizeof *row);
    tcase_add_test(t, keeps_its_promises_whatever_the_facts);
    return t;
}
