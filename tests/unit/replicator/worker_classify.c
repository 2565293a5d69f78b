/* What a scan concludes from what it knows of one mail: tables in which each combination of facts
 * is in exactly one row, and each row has one. */
#include <check.h>
#include <stdlib.h>

#include "dovecot-plugin/worker/ingest/classify.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* What a row says of one fact: a bit for each value that it may have. */
enum { NO = 1, YES = 2, ANY = 3 };
#define VERDICT(v) (1 << LOG_SCAN_##v)
#define ANY_VERDICT (VERDICT(UNBROKEN) | VERDICT(GAP) | VERDICT(BROKEN))
#define SAME_INDEX (VERDICT(UNBROKEN) | VERDICT(GAP))
#define LATE(l) (1 << LATE_##l)
#define ANY_LATE (LATE(NOTHING) | LATE(FLAGS) | LATE(EXPUNGE))
#define NO_FLAGS_LATE (LATE(NOTHING) | LATE(EXPUNGE))

static bool may_be(int mask, int value)
{
    return (mask & 1 << value) != 0;
}

/* --- a mail that is there --------------------------------------------------------------------- */

static const struct present_row {
    int verdict, log_is_complete, rewound, adopted, restored, nameless, late;
    enum flags_case flags;
} present[] = {
    /* keywords without a name are damage, whatever else there is */
    {ANY_VERDICT, ANY, ANY, ANY, ANY, YES, ANY_LATE, FLAGS_DAMAGED},
    /* the index is the same */
    {SAME_INDEX, ANY, ANY, ANY, ANY, NO, LATE(FLAGS), FLAGS_SAID_LATE},
    {SAME_INDEX, ANY, NO, NO, NO, NO, NO_FLAGS_LATE, FLAGS_OF_CLIENTS},
    {SAME_INDEX, ANY, YES, ANY, NO, NO, NO_FLAGS_LATE, FLAGS_REWOUND},
    {SAME_INDEX, ANY, NO, YES, NO, NO, NO_FLAGS_LATE, FLAGS_REWOUND},
    {SAME_INDEX, ANY, ANY, ANY, YES, NO, NO_FLAGS_LATE, FLAGS_OF_CLIENTS},
    /* it is another one: only a whole log tells what happened since an older state */
    {VERDICT(BROKEN), ANY, ANY, ANY, YES, NO, ANY_LATE, FLAGS_DAMAGED},
    {VERDICT(BROKEN), ANY, NO, ANY, NO, NO, ANY_LATE, FLAGS_DAMAGED},
    {VERDICT(BROKEN), NO, YES, ANY, NO, NO, ANY_LATE, FLAGS_DAMAGED},
    {VERDICT(BROKEN), YES, YES, ANY, NO, NO, LATE(FLAGS), FLAGS_SAID_LATE},
    {VERDICT(BROKEN), YES, YES, ANY, NO, NO, NO_FLAGS_LATE, FLAGS_REWOUND},
};

static bool present_fits(const struct present_row *row, const struct present_facts *f)
{
    return may_be(row->verdict, (int)f->verdict) &&
           may_be(row->log_is_complete, f->log_is_complete) && may_be(row->rewound, f->rewound) &&
           may_be(row->adopted, f->adopted) && may_be(row->restored, f->restored) &&
           may_be(row->nameless, f->nameless) && may_be(row->late, (int)f->late);
}

static struct present_facts present_facts_of(unsigned n)
{
    return (struct present_facts){
        .verdict = (enum log_verdict)(n / 32 % 3),
        .log_is_complete = n & 1,
        .rewound = n >> 1 & 1,
        .adopted = n >> 2 & 1,
        .restored = n >> 3 & 1,
        .nameless = n >> 4 & 1,
        .late = (enum late_word)(n / 96),
    };
}

START_TEST(whose_the_flags_are)
{
    unsigned used[COUNT(present)] = {0};
    for (unsigned n = 0; n < 3 * 32 * 3; n++) {
        const struct present_facts f = present_facts_of(n);
        unsigned rows = 0;
        for (size_t i = 0; i < COUNT(present); i++) {
            if (!present_fits(&present[i], &f))
                continue;
            rows++;
            used[i]++;
            ck_assert_msg(classify_flags(&f) == present[i].flags, "row %zu, facts %u: %d", i, n,
                          classify_flags(&f));
        }
        ck_assert_msg(rows == 1, "facts %u are in %u rows", n, rows);
    }
    for (size_t i = 0; i < COUNT(present); i++)
        ck_assert_msg(used[i] > 0, "no facts are in row %zu", i);
}
END_TEST

static const struct adds_row {
    int verdict, log_is_complete, rewound, restored;
    bool adds;
} adds[] = {
    {SAME_INDEX, ANY, ANY, ANY, false},     {VERDICT(BROKEN), ANY, ANY, YES, false},
    {VERDICT(BROKEN), ANY, NO, NO, true},   {VERDICT(BROKEN), NO, YES, NO, true},
    {VERDICT(BROKEN), YES, YES, NO, false},
};

START_TEST(whether_flags_of_a_bound_mail_are_set)
{
    unsigned used[COUNT(adds)] = {0};
    for (unsigned n = 0; n < 3 * 32 * 3; n++) {
        const struct present_facts f = present_facts_of(n);
        unsigned rows = 0;
        for (size_t i = 0; i < COUNT(adds); i++) {
            if (!may_be(adds[i].verdict, (int)f.verdict) ||
                !may_be(adds[i].log_is_complete, f.log_is_complete) ||
                !may_be(adds[i].rewound, f.rewound) || !may_be(adds[i].restored, f.restored))
                continue;
            rows++;
            used[i]++;
            ck_assert_msg(classify_adds_flags(&f) == adds[i].adds, "row %zu, facts %u", i, n);
        }
        ck_assert_msg(rows == 1, "facts %u are in %u rows", n, rows);
    }
    for (size_t i = 0; i < COUNT(adds); i++)
        ck_assert_msg(used[i] > 0, "no facts are in row %zu", i);
}
END_TEST

/* --- a message whose mail is not there -------------------------------------------------------- */

static const struct missing_row {
    int verdict, moving, taken, requested, quarantined, maildir, touched;
    enum missing_case what;
} missing[] = {
    {ANY_VERDICT, YES, ANY, ANY, ANY, ANY, ANY, MISSING_MOVED},
    {SAME_INDEX, NO, YES, ANY, ANY, ANY, ANY, MISSING_RESCUED},
    {SAME_INDEX, NO, NO, YES, ANY, ANY, ANY, MISSING_REMOVED},
    {VERDICT(BROKEN), NO, ANY, YES, ANY, ANY, ANY, MISSING_REMOVED},
    {VERDICT(BROKEN), NO, ANY, NO, ANY, ANY, ANY, MISSING_DAMAGED},
    {SAME_INDEX, NO, NO, NO, YES, ANY, ANY, MISSING_QUARANTINED},
    {VERDICT(GAP), NO, NO, NO, NO, ANY, ANY, MISSING_VANISHED},
    {VERDICT(UNBROKEN), NO, NO, NO, NO, YES, YES, MISSING_VANISHED},
    {VERDICT(UNBROKEN), NO, NO, NO, NO, YES, NO, MISSING_DAMAGED},
    {VERDICT(UNBROKEN), NO, NO, NO, NO, NO, ANY, MISSING_DAMAGED},
};

static bool missing_fits(const struct missing_row *row, const struct missing_facts *f)
{
    return may_be(row->verdict, (int)f->verdict) && may_be(row->moving, f->moving) &&
           may_be(row->taken, f->taken) && may_be(row->requested, f->requested) &&
           may_be(row->quarantined, f->quarantined) && may_be(row->maildir, f->maildir) &&
           may_be(row->touched, f->touched);
}

START_TEST(what_became_of_a_missing_mail)
{
    unsigned used[COUNT(missing)] = {0};
    for (unsigned n = 0; n < 3 * 64; n++) {
        const struct missing_facts f = {
            .verdict = (enum log_verdict)(n / 64),
            .moving = n & 1,
            .requested = n >> 1 & 1,
            .quarantined = n >> 2 & 1,
            .maildir = n >> 3 & 1,
            .touched = n >> 4 & 1,
            .taken = n >> 5 & 1,
        };
        unsigned rows = 0;
        for (size_t i = 0; i < COUNT(missing); i++) {
            if (!missing_fits(&missing[i], &f))
                continue;
            rows++;
            used[i]++;
            ck_assert_msg(classify_missing(&f) == missing[i].what, "row %zu, facts %u: %d", i, n,
                          classify_missing(&f));
        }
        ck_assert_msg(rows == 1, "facts %u are in %u rows", n, rows);
    }
    for (size_t i = 0; i < COUNT(missing); i++)
        ck_assert_msg(used[i] > 0, "no facts are in row %zu", i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("classify");
    TCase *c = tcase_create("tables");
    tcase_add_test(c, whose_the_flags_are);
    tcase_add_test(c, whether_flags_of_a_bound_mail_are_set);
    tcase_add_test(c, what_became_of_a_missing_mail);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
