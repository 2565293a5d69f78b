/* dovelane qshape - how old the recipients in the lanes are, by domain: the table that Postfix's
 * qshape(1) prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/clock.h"
#include "ctl/mailq.h"
#include "ctl/out.h"
#include "ctl/match_options.h"
#include "ctl/row.h"

#define BUCKETS 10 /* below 5, 10, 20 ... 1280 minutes, and beyond */
#define FIRST 5
#define DOMAIN 30 /* columns for a domain */

struct row {
    char *domain;
    unsigned long total, bucket[BUCKETS];
};

struct table {
    struct row all, *row;
    size_t n;
};

static struct row *row_of(struct table *t, const char *domain)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcasecmp(t->row[i].domain, domain))
            return &t->row[i];
    t->row = mem_grow(t->row, (t->n + 1) * sizeof *t->row);
    t->row[t->n] = (struct row){.domain = mem_strdup(domain)};
    return &t->row[t->n++];
}

static void count(struct table *t, const char *address, int bucket)
{
    const char *at = strrchr(address, '@');
    struct row *r = row_of(t, at ? at + 1 : *address ? address : "MAILER-DAEMON");
    r->total++;
    r->bucket[bucket]++;
    t->all.total++;
    t->all.bucket[bucket]++;
}

static int bucket_of(int64_t arrived)
{
    double minutes = (double)(clock_wall() - arrived) / 60e6;
    int b = 0;
    for (double most = FIRST; b < BUCKETS - 1 && minutes >= most; most *= 2)
        b++;
    return b;
}

static int by_total(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->total != y->total ? (x->total < y->total ? 1 : -1) : strcasecmp(x->domain, y->domain);
}

/* ---- text ---- */

static int width[BUCKETS + 1]; /* of the columns, by the sums in the first row */

static int digits(long long n)
{
    char text[24];
    return snprintf(text, sizeof text, "%lld", n);
}

static void show_row(const json_t *row)
{
    out("%*s %*lld", DOMAIN, row_get_text(row, "domain"), width[0], row_get_number(row, "total"));
    for (size_t b = 0; b < BUCKETS; b++)
        out(" %*lld", width[b + 1], (long long)json_integer_value(row_item(row, "by_age", b)));
    out("\n");
}

static void show_sums(const json_t *facts)
{
    char title[BUCKETS + 1][16] = {"T"};
    const json_t *all = json_object_get(facts, "all");
    int minutes = FIRST;
    for (int b = 0; b < BUCKETS; b++, minutes *= b < BUCKETS - 1 ? 2 : 1)
        snprintf(title[b + 1], sizeof title[0], "%d%s", minutes, b == BUCKETS - 1 ? "+" : "");
    width[0] = digits(row_get_number(all, "total"));
    for (size_t b = 0; b < BUCKETS; b++) {
        int n = digits((long long)json_integer_value(row_item(all, "by_age", b))),
            m = (int)strlen(title[b + 1]);
        width[b + 1] = n > m ? n : m;
    }
    out("%*s", DOMAIN, "");
    for (int b = 0; b <= BUCKETS; b++)
        out(" %*s", width[b], title[b]);
    out("\n");
    show_row(all);
}

static const struct out_kind domains = {"domains", show_row};

/* ---- rows ---- */

static json_t *row_json(const struct row *r, const char *domain)
{
    json_t *row = row_new(), *by_age = json_array();
    row_add_text(row, "domain", domain);
    row_add_number(row, "total", (long long)r->total);
    for (int b = 0; b < BUCKETS; b++)
        json_array_append_new(by_age, json_integer((json_int_t)r->bucket[b]));
    row_add(row, "by_age", by_age);
    return row;
}

static void print_table(struct table *t, bool senders)
{
    json_t *facts = row_new(), *bounds = json_array();
    row_add_text(facts, "of", senders ? "senders" : "recipients");
    for (int b = 0, minutes = FIRST; b < BUCKETS - 1; b++, minutes *= 2)
        json_array_append_new(bounds, json_integer(minutes));
    row_add(facts, "bounds_minutes", bounds);
    row_add(facts, "all", row_json(&t->all, "TOTAL"));
    out_facts(show_sums, facts);
    if (t->n)
        qsort(t->row, t->n, sizeof *t->row, by_total);
    for (size_t i = 0; i < t->n; i++)
        out_row(&domains, row_json(&t->row[i], t->row[i].domain));
}

const struct option qshape_options[] = {
    {"senders", no_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, MATCH_LONG_OPTIONS, {0}};

void qshape_command(struct ctl *ctl, int argc, char **argv)
{
    struct match pick = {0};
    struct queue q;
    struct table t = {0};
    bool senders = false;
    int o;
    while ((o = getopt_long(argc, argv, "sjh", qshape_options, NULL)) != -1) {
        if (o >= MATCH_OPTION)
            match_options_add(&pick, o, optarg);
        else if (o == 's')
            senders = true;
        else if (o == 'j')
            out_choose_json(true);
        else if (o == 'h') {
            puts("usage: dovelane qshape [-s] [which mails | ID...]\n"
                 "Recipients in the lanes by domain (rows) and age in minutes (columns), as "
                 "Postfix's qshape(1).\n"
                 "  -s  mails by their sender's domain instead\n");
            match_options_print_help();
            exit(STATUS_DONE);
        } else
            ctl_usage("see `dovelane qshape --help`");
    }
    match_options_ids(&pick, argc, argv);
    static const char *const lists[] = {"domains", NULL};
    out_begin("qshape/1", lists);
    ctl_connect(ctl);
    queue_load(ctl, &q);
    match_options_filter(&pick, &q);
    for (size_t i = 0; i < q.n; i++) {
        const struct envelope *e = &q.item[i].envelope;
        int bucket = bucket_of(e->arrived);
        if (senders && !q.item[i].wrong)
            count(&t, e->sender, bucket);
        for (size_t k = 0; !senders && k < e->nrecipients; k++)
            if (recipient_open(&e->recipient[k]))
                count(&t, e->recipient[k].address, bucket);
    }
    print_table(&t, senders);
    for (size_t i = 0; i < t.n; i++)
        free(t.row[i].domain);
    free(t.row);
    queue_free(&q);
    match_free(&pick);
}
