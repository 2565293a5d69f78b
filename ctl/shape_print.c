/* Rules of shapes, and what follows from them, as rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/out.h"
#include "ctl/row.h"
#include "ctl/shape.h"
#include "lib/base/clock.h"
#include "lib/redis/control_keys.h"

/* " by root (uid 0), 2026-12-01 12:00:00", or " by dovelane.conf". */
static void show_source(const json_t *row)
{
    char when[40] = "";
    time_t at = (time_t)(row_get_time(row, "said_at") / 1000000);
    struct tm tm;
    if (at && localtime_r(&at, &tm))
        strftime(when, sizeof when, ", %Y-%m-%d %H:%M:%S", &tm);
    if (row_has(row, "by"))
        out("  (%s%s)\n", row_get_text(row, "by"), when);
    else
        out("  (dovelane.conf)\n");
}

static void show_pattern(const json_t *row)
{
    out("%s", row_get_text(row, "pattern"));
    if (row_has(row, "class"))
        out(", class %s", row_get_text(row, "class"));
}

static void show_word(const char *word, const char *value)
{
    bool blank = strchr(value, ' ') != NULL;
    out("%s=%s%s%s", word, blank ? "\"" : "", value, blank ? "\"" : "");
}

static void show_rule(const json_t *row)
{
    show_pattern(row);
    show_source(row);
    out("   ");
    for (size_t i = 0; i < row_size(row, "words"); i++) {
        const json_t *word = row_item(row, "words", i);
        out(" ");
        show_word(row_get_text(word, "word"), row_get_text(word, "value"));
    }
    out("\n");
}

/* Whose rule it is. */
static void add_rule(json_t *row, const struct shape_rule *r, bool said)
{
    row_add_text(row, "pattern", r->pattern);
    row_add_text(row, "class", *r->class ? r->class : NULL);
    row_add_text(row, "from", said ? "said" : "file");
    row_add_text(row, "by", said ? r->by : NULL);
    if (said)
        row_add_time(row, "said_at", r->at);
}

void shape_print(const struct shape_rules *all, bool said)
{
    static const struct out_kind rules = {"rules", show_rule};
    for (size_t i = 0; i < all->n; i++) {
        const struct shape_rule *r = &all->rule[i];
        json_t *row = row_new(), *words = json_array();
        add_rule(row, r, said);
        for (size_t k = 0; k < r->n; k++) {
            json_t *word = row_new();
            row_add_text(word, "word", r->setting[k].word);
            row_add_text(word, "value", r->setting[k].value);
            json_array_append_new(words, word);
        }
        row_add(row, "words", words);
        out_row(&rules, row);
    }
}

/* ---- one next hop ---- */

static void show_explained(const json_t *row)
{
    out("  ");
    show_word(row_get_text(row, "word"), row_get_text(row, "value"));
    out("  by ");
    show_pattern(row);
    show_source(row);
}

static void explain_word(void *arg, const char *word, const struct shape_rule *r, bool said)
{
    static const struct out_kind words = {"words", show_explained};
    json_t *row = row_new();
    size_t *n = arg;
    row_add_text(row, "word", word);
    row_add_text(row, "value", shape_rule_value(r, word));
    add_rule(row, r, said);
    out_row(&words, row);
    ++*n;
}

/* What its replies asked for, and the relays obey: "rate", "connections" or "suspend". */
static void show_asked(const json_t *row)
{
    char until[SHAPE_TIME_TEXT], number[32];
    const char *what = row_get_text(row, "what");
    double value = row_get_real(row, "value");
    snprintf(number, sizeof number, "%.6g", value);
    shape_time_text(row_get_time(row, "until_at"), until);
    out("its replies asked for less (backoff), until %s: ", until);
    if (!strcmp(what, "suspend"))
        out("nothing is sent\n");
    else if (value < 1.)
        out("%s times %s\n", what, number);
    else
        out("%s=%s\n", what, number);
}

static void add_asked(const struct conn *c, const char *what, const char *text)
{
    static const struct out_kind asked = {"asked", show_asked};
    double value;
    long long until, most, now = clock_wall() / 1000;
    if (sscanf(text, "%20lf %20lld %20lld", &value, &until, &most) != 3 || until <= now)
        return;
    if (until - now > most) /* the node's clock was set back */
        until = now + most;
    json_t *row = row_new();
    row_add_text(row, "what", what);
    row_add_real(row, "value", value);
    row_add_time(row, "until_at", until * 1000);
    row_add_text(row, "node", c->name);
    out_row(&asked, row);
}

/* Of each node: the one that counts for the group changes when it is lost. */
static void explain_asked(struct ctl *ctl, const char *next_hop)
{
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *c = &ctl->conn[i];
        redisReply *r =
            conn_up(c)
                ? conn_call(c, "HGETALL " CONTROL_BUCKET "%s" CONTROL_BUCKET_BACKOFF, next_hop)
                : NULL;
        for (size_t k = 0; r && r->type == REDIS_REPLY_ARRAY && k + 1 < r->elements; k += 2)
            if (r->element[k]->str && r->element[k + 1]->str)
                add_asked(c, r->element[k]->str, r->element[k + 1]->str);
        if (r)
            freeReplyObject(r);
    }
}

/* In the unit in which it is at least 1: a warm-up's 50 a day are no readable part of a second. */
static void show_rate(double a_second, const char *burst)
{
    static const struct {
        const char *name;
        double seconds;
    } unit[] = {{"a second", 1}, {"a minute", 60}, {"an hour", 3600}, {"a day", 86400}};
    size_t i = 0;
    char rate[32];
    while (i + 1 < sizeof unit / sizeof *unit && a_second * unit[i].seconds < 1.)
        i++;
    snprintf(rate, sizeof rate, "%.6g", a_second * unit[i].seconds);
    out("now at most %s mails %s, %s at once\n", rate, unit[i].name, burst);
}

static void show_state(const json_t *row)
{
    if (!row_get_number(row, "words_count"))
        out("  no rule is for it: the general settings count\n");
    if (row_get_is(row, "suspended"))
        out("nothing is sent to it: %s\n", row_get_text(row, "suspended_why"));
    if (row_has(row, "suspended_until_at")) {
        char until[SHAPE_TIME_TEXT];
        shape_time_text(row_get_time(row, "suspended_until_at"), until);
        out("that ends by itself at %s\n", until);
    }
    if (row_has(row, "rate_per_second")) {
        char burst[32];
        snprintf(burst, sizeof burst, "%.6g", row_get_real(row, "burst"));
        show_rate(row_get_real(row, "rate_per_second"), burst);
    }
}

void shape_print_explained(struct ctl *ctl, const struct shape_known *k, const char *next_hop,
                           const char *class)
{
    struct shapes *shapes = shape_known_shapes(ctl, k);
    struct shape s;
    double burst;
    size_t n = 0;
    out("%s%s%s\n", next_hop, class ? ", class " : "", class ? class : "");
    shape_explain(shapes, next_hop, class, explain_word, &n);
    shape_of(shapes, next_hop, class, &s);
    if (s.backoff)
        explain_asked(ctl, next_hop);
    bool suspended = shape_suspended_at(&s, clock_wall());
    double rate = shape_rate_at(&s, clock_wall(), &burst);
    json_t *row = row_new();
    row_add_text(row, "next_hop", next_hop);
    row_add_text(row, "class", class);
    row_add_number(row, "words_count", (long long)n);
    row_add_is(row, "suspended", suspended);
    row_add_text(row, "suspended_why", suspended ? s.suspended_why : NULL);
    if (suspended)
        row_add_time(row, "suspended_until_at", s.suspended_until);
    if (rate > 0) {
        row_add_real(row, "rate_per_second", rate);
        row_add_real(row, "burst", burst);
    }
    out_facts(show_state, row);
    shapes_free(shapes);
}
