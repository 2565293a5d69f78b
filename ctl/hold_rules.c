#include "ctl/hold_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "ctl/divert.h"
#include "ctl/notice.h"
#include "ctl/out.h"
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

static void print_rules(const char *rules)
{
    size_t n = 0;
    for (const char *s = rules; *s; s += *s == '\n') {
        size_t len = rule_length(s);
        char *text = readable(s, len);
        out("%zu  %s\n", ++n, text);
        free(text);
        s += len;
    }
    if (!n)
        puts("no standing rules");
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
    if (divert_rules_obeyed(ctl, serial))
        return true;
    puts("no milter is connected, or not every one has the rules yet; they hear them as soon as "
         "they are");
    ctl_status(ctl, STATUS_LOOK);
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

void hold_rules_explain(struct ctl *ctl, const struct match_facts *facts)
{
    static const enum match_kind more[] = {MATCH_SASL_USER, MATCH_CLIENT, MATCH_SIZE, MATCH_HEADER};
    unsigned long long serial;
    char *rules = read_rules(ctl, &serial);
    size_t n = 0;
    for (const char *s = rules; *s; s += *s == '\n') {
        size_t len = rule_length(s);
        struct match m = {0};
        char *wrong = match_parse(&m, s, len), *text = wrong ? NULL : match_text(&m);
        bool open = false;
        for (size_t i = 0; i < sizeof more / sizeof *more; i++)
            open |= match_has(&m, more[i]);
        n++;
        if (!wrong && match_may_fit(&m, facts))
            out("  held       %s by rule %zu of `dovelane hold --list`: %s\n",
                open ? "perhaps," : "yes,", n, text);
        free(wrong);
        free(text);
        match_free(&m);
        s += len;
    }
    free(rules);
}
