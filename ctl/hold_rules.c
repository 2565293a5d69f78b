#include "ctl/hold_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "ctl/divert.h"
#include "ctl/notice.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "lib/redis/control_keys.h"

#define MOST 60000 /* bytes of all rules */
#define TRIES 100  /* against other admins */

/* The rules as match_print writes them, an empty line between two; without the first line.
 * malloc'd. */
static char *read_rules(struct ctl *ctl, unsigned long long *serial)
{
    char *text = notice_read(ctl, CONTROL_HOLDS, serial), *rules = text ? strchr(text, '\n') : NULL;
    rules = mem_strdup(rules ? rules + 1 : "");
    free(text);
    return rules;
}

/* The end of the rule at s. */
static size_t rule_length(const char *s)
{
    const char *end = strstr(s, "\n\n");
    return end ? (size_t)(end - s) + 1 : strlen(s);
}

static char *readable(const char *s, size_t len)
{
    struct match m = {0};
    char *wrong = match_parse(&m, s, len),
         *text = wrong ? mem_printf("cannot be read: %s", wrong) : match_text(&m);
    free(wrong);
    match_free(&m);
    return text;
}

static void show_rule(const json_t *row)
{
    out("%lld  %s\n", row_get_number(row, "number"), row_get_text(row, "rule"));
}

static void show_knowledge(const json_t *row)
{
    if (!row_get_is(row, "obeyed"))
        out("no milter is connected, or not every one has the rules yet; they hear them as soon "
            "as they are\n");
}

static void print_rules(const char *rules)
{
    static const struct out_kind kind = {"rules", show_rule};
    static const char *const lists[] = {"rules", NULL};
    long long n = 0;
    out_begin("hold-rules/1", lists);
    for (const char *s = rules; *s; s += *s == '\n') {
        size_t len = rule_length(s);
        char *text = readable(s, len);
        json_t *row = row_new();
        row_add_number(row, "number", ++n);
        row_add_text(row, "rule", text);
        out_row(&kind, row);
        free(text);
        s += len;
    }
    if (!n)
        out("no standing rules\n");
}

/* False when another admin was faster. */
static bool write_rules(struct ctl *ctl, unsigned long long before, const char *rules,
                        const char *what)
{
    unsigned long long serial = notice_write(ctl, CONTROL_HOLDS, before, true, rules, true);
    if (!serial)
        return false;
    char *caller = ctl_caller();
    ctl_log(ctl, "hold: standing rule %s by %s", what, caller);
    free(caller);
    print_rules(rules);
    bool obeyed = divert_rules_obeyed(ctl, DIVERT_HOLDS, serial) == DIVERT_OBEYED;
    json_t *row = row_new();
    row_add_is(row, "obeyed", obeyed);
    out_facts(show_knowledge, row);
    ctl_status(ctl, obeyed ? STATUS_DONE : STATUS_LOOK);
    return true;
}

void hold_rules_list(struct ctl *ctl)
{
    unsigned long long serial;
    char *rules = read_rules(ctl, &serial);
    print_rules(rules);
    free(rules);
}

static bool add(struct ctl *ctl, const struct match *m)
{
    unsigned long long serial;
    struct buf all = {0};
    char *rules = read_rules(ctl, &serial), *text = match_text(m),
         *what = mem_printf("added: %s", text);
    buf_adds(&all, rules);
    if (all.len)
        buf_addc(&all, '\n');
    match_print(m, &all);
    if (all.len > MOST)
        ctl_usage("hold --add: that would be more than %d bytes of rules", MOST);
    bool written = write_rules(ctl, serial, all.data, what);
    buf_free(&all);
    free(rules);
    free(text);
    free(what);
    return written;
}

void hold_rules_add(struct ctl *ctl, const struct match *m)
{
    static const enum match_kind never[] = {MATCH_ID, MATCH_AGE, MATCH_ERROR};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (match_has(m, never[i]))
            ctl_usage("hold --add: --%s is nothing that mail which comes in can have",
                      match_name(never[i]));
    for (int i = 0; !add(ctl, m); i++)
        if (i == TRIES)
            ctl_usage("hold --add: others change the rules all the time; nothing was added");
}

void hold_rules_remove(struct ctl *ctl, const char *number)
{
    unsigned long long serial;
    char *rules = read_rules(ctl, &serial), *end, *what = NULL;
    unsigned long wanted = strtoul(number, &end, 10), n = 0;
    struct buf rest = {0};
    for (const char *s = rules; *s; s += *s == '\n') {
        size_t len = rule_length(s);
        if (++n == wanted && !*end) {
            char *text = readable(s, len);
            what = mem_printf("removed: %s", text);
            free(text);
        } else {
            if (rest.len)
                buf_addc(&rest, '\n');
            buf_add(&rest, s, len);
        }
        s += len;
    }
    if (!what)
        ctl_usage("hold --remove %s: `hold --list` shows %lu rules", number, n);
    /* Their numbers are others now. */
    if (!write_rules(ctl, serial, rest.data ? rest.data : "", what))
        ctl_usage("hold --remove: somebody else changed the rules this moment; nothing was "
                  "removed, look at `hold --list` again");
    buf_free(&rest);
    free(rules);
    free(what);
}

static void show_hold(const json_t *row)
{
    out("  held       %s by rule %lld of `dovelane hold --list`: %s\n",
        row_get_is(row, "sure") ? "yes," : "perhaps,", row_get_number(row, "number"),
        row_get_text(row, "rule"));
}

static void explain(const struct match *m, size_t number)
{
    static const struct out_kind holds = {"holds", show_hold};
    static const enum match_kind more[] = {MATCH_SASL_USER, MATCH_CLIENT, MATCH_SIZE, MATCH_HEADER};
    bool open = false;
    char *text = match_text(m);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        open |= match_has(m, more[i]);
    json_t *row = row_new();
    row_add_number(row, "number", (long long)number);
    row_add_text(row, "rule", text);
    row_add_is(row, "sure", !open);
    out_row(&holds, row);
    free(text);
}

void hold_rules_explain(struct ctl *ctl, const struct match_facts *facts)
{
    unsigned long long serial;
    char *rules = read_rules(ctl, &serial);
    size_t n = 0;
    for (const char *s = rules; *s; s += *s == '\n') {
        size_t len = rule_length(s);
        struct match m = {0};
        char *wrong = match_parse(&m, s, len);
        n++;
        if (!wrong && match_may_fit(&m, facts))
            explain(&m, n);
        free(wrong);
        match_free(&m);
        s += len;
    }
    free(rules);
}
