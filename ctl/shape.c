/* dovelane shape - how much next hops get: lists the rules, and changes those that were said at
 * run time. All relays obey within a second, and after restarts, too. */
#include "ctl/shape.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/out.h"
#include "ctl/row.h"
#include "lib/base/clock.h"
#include "lib/base/units.h"
#include "lib/config/nexthop.h"

#define TRIES 100 /* against other admins */
/* microseconds for which it is remembered that a suspension ended: no mail may wait for longer */
#define REMEMBERED (8 * 86400000000LL)

static const char help[] =
    "usage: dovelane shape\n"
    "       dovelane shape PATTERN [--class NAME] WORD=VALUE...   (WORD= takes the word out "
    "again)\n"
    "       dovelane shape PATTERN [--class NAME] --remove\n"
    "       dovelane shape PATTERN --suspend REASON [--for TIME | --until TIME]\n"
    "       dovelane shape PATTERN --resume\n"
    "       dovelane shape --explain NEXTHOP [--class NAME]\n"
    "How much next hops get. Lists the rules of dovelane.conf (sections `shape`), and those that "
    "were said here; changes the latter.\n"
    "PATTERN: smtp:[mx1.example.net]:25, or .example.net for the hosts of a domain, or a pattern "
    "with *, or *.\n"
    "For each word the most specific rule that has it counts; what is said here counts more than "
    "the file. WORD=none: the general settings count.\n"
    "--suspend: nothing is sent; mail waits in its lanes. --for 2h, --until \"2026-12-01 12:00\" "
    "(UTC): it ends by itself.\n"
    "--explain: what holds for one next hop, which rule says it, and what its replies asked for "
    "(backoff).\n"
    "--dry-run: shows the rules as they would be, and changes nothing.\n"
    "Words:";

struct wish {
    char *pattern; /* spelled as lanes are */
    const char *class;
    char **word; /* "rate=100/s" */
    int nwords;
    const char *suspend; /* the reason */
    int64_t until;       /* 0: without an end */
    bool remove, resume, dry_run;
};

/* ---- is it a wish that can be granted ---- */

static void refuse(char *wrong)
{
    if (wrong)
        ctl_usage("shape: %s", wrong);
}

static void check_pattern(const char *pattern)
{
    struct nexthop hop;
    refuse(shape_pattern_wrong(pattern));
    if (!shape_pattern_is_exact(pattern))
        return;
    if (!nexthop_parse(pattern, &hop))
        ctl_usage("shape: %s is no next hop that mail can be diverted for: write it as in divert, "
                  "smtp:[mx1.example.net]:25, or as a pattern, .example.net or *",
                  pattern);
    nexthop_free(&hop);
}

/* The value of "word=value"; the word is cut off. */
static char *split(char *word)
{
    char *value = strchr(word, '=');
    if (!value)
        ctl_usage("shape: %s is no WORD=VALUE: write it like rate=100/s; `dovelane shape --help` "
                  "lists the words",
                  word);
    *value = '\0';
    return value + 1;
}

static void check_words(const struct wish *w)
{
    for (int i = 0; i < w->nwords; i++) {
        char *word = mem_strdup(w->word[i]), *value = split(word);
        refuse(shape_word_wrong(word, *value ? value : "none"));
        if (w->class)
            refuse(shape_class_word_wrong(w->class, word));
        free(word);
    }
}

static void check_wish(const struct wish *w)
{
    bool words = w->nwords > 0, suspends = w->suspend != NULL;
    if (words + suspends + w->remove + w->resume != 1)
        ctl_usage("shape %s: give words (rate=100/s), or one of --suspend REASON, --resume, "
                  "--remove",
                  w->pattern);
    if (w->until && !suspends)
        ctl_usage("shape %s: --for and --until are for --suspend REASON", w->pattern);
    check_pattern(w->pattern);
    if (w->class)
        refuse(shape_class_wrong(w->class));
    if (suspends)
        refuse(!strcmp(w->suspend, "none") ? mem_strdup("--suspend none: give a reason")
                                           : shape_word_wrong("suspend", w->suspend));
    if (w->class && (suspends || w->resume))
        refuse(shape_class_word_wrong(w->class, "suspend"));
    check_words(w);
}

/* ---- changing the rules ---- */

static const char *class_of(const struct wish *w)
{
    return w->class ? w->class : "";
}

static void take_out(struct shape_rule *r, const char *word, const struct shape_rules *file,
                     const struct wish *w)
{
    const struct shape_rule *filed = shape_rules_find(file, w->pattern, class_of(w));
    if (shape_rule_value(r, word))
        shape_rule_set(r, word, NULL);
    else
        ctl_usage("shape %s: %s was not said here%s", w->pattern, word,
                  filed && shape_rule_value(filed, word)
                      ? "; it is in dovelane.conf. Take it out there, or give it the value none"
                      : "");
}

static void apply_words(struct shape_rule *r, const struct shape_rules *file, const struct wish *w)
{
    for (int i = 0; i < w->nwords; i++) {
        char *word = mem_strdup(w->word[i]), *value = split(word);
        if (*value)
            shape_rule_set(r, word, value);
        else
            take_out(r, word, file, w);
        free(word);
    }
    if (shape_rule_value(r, "suspend_until") && !shape_rule_value(r, "suspend"))
        ctl_usage("shape %s: suspend_until without suspend: add the reason, suspend=REASON",
                  w->pattern);
}

/* Not before it is so: times are written in whole seconds. */
static int64_t whole_seconds(int64_t wall)
{
    return (wall + 999999) / 1000000 * 1000000;
}

static bool suspends(const struct shape_rule *r)
{
    const char *reason = shape_rule_value(r, "suspend");
    return reason && strcmp(reason, "none") != 0;
}

/* When the rule's suspension ends, if that was before now; else now. */
static int64_t end_of(const struct shape_rule *r)
{
    const char *until = shape_rule_value(r, "suspend_until");
    int64_t end, now = whole_seconds(clock_wall());
    return until && shape_time_read(until, &end) && end < now ? end : now;
}

/* Relays that start later, or take over, must not count the time before. */
static void remember_end(struct shape_rule *r, int64_t end)
{
    char text[SHAPE_TIME_TEXT];
    shape_time_text(end, text);
    shape_rule_set(r, "resumed", text);
}

static void suspend(struct shape_rule *r, const struct wish *w)
{
    char until[SHAPE_TIME_TEXT];
    shape_time_text(w->until, until);
    shape_rule_set(r, "suspend", w->suspend);
    shape_rule_set(r, "suspend_until", w->until ? until : NULL);
    shape_rule_set(r, "resumed", NULL);
}

/* Whether what is left suspends it: for one next hop any rule, else the file's of that pattern. */
static bool suspended_still(struct ctl *ctl, const struct shape_known *k, const struct wish *w)
{
    if (shape_pattern_is_exact(w->pattern)) {
        struct shapes *shapes = shape_known_shapes(ctl, k);
        struct shape s;
        shape_of(shapes, w->pattern, w->class, &s);
        bool still = shape_suspended_at(&s, clock_wall());
        shapes_free(shapes);
        return still;
    }
    const struct shape_rule *filed = shape_rules_find(&k->file, w->pattern, class_of(w));
    return filed && shape_rule_value(filed, "suspend");
}

static void resume(struct ctl *ctl, struct shape_known *k, struct shape_rule *r,
                   const struct wish *w)
{
    bool was = suspends(r);
    shape_rule_set(r, "suspend", NULL);
    shape_rule_set(r, "suspend_until", NULL);
    bool still = suspended_still(ctl, k, w);
    if (!was && !still)
        ctl_usage("shape %s: it is not suspended; `dovelane shape` lists what is", w->pattern);
    if (still)
        shape_rule_set(r, "suspend", "none");
}

static bool has_ended(const struct shape_rule *r)
{
    const char *until = shape_rule_value(r, "suspend_until");
    int64_t end;
    return until && shape_time_read(until, &end) && end <= clock_wall();
}

static bool is_long_ago(const struct shape_rule *r)
{
    const char *resumed = shape_rule_value(r, "resumed");
    int64_t at;
    return resumed && shape_time_read(resumed, &at) && at < clock_wall() - REMEMBERED;
}

/* Suspensions that ended, and rules without a word. */
static void tidy(struct shape_rules *all)
{
    for (size_t i = all->n; i > 0; i--) {
        struct shape_rule *r = &all->rule[i - 1];
        if (has_ended(r)) {
            remember_end(r, end_of(r));
            shape_rule_set(r, "suspend", NULL);
            shape_rule_set(r, "suspend_until", NULL);
        }
        if (is_long_ago(r))
            shape_rule_set(r, "resumed", NULL);
        if (!r->n)
            shape_rules_remove(all, r);
    }
}

static void sign(struct shape_rule *r)
{
    free(r->by);
    r->by = ctl_caller();
    r->at = clock_wall();
}

/* What it was that nothing was sent by is remembered, unless that is all there is. */
static void remove_rule(struct shape_rules *all, struct shape_rule *r)
{
    const char *resumed = shape_rule_value(r, "resumed");
    bool keeps = suspends(r) || (resumed && r->n > 1);
    if (suspends(r))
        remember_end(r, end_of(r));
    for (size_t i = r->n; keeps && i > 0; i--)
        if (strcmp(r->setting[i - 1].word, "resumed") != 0)
            shape_rule_set(r, r->setting[i - 1].word, NULL);
    if (!keeps)
        shape_rules_remove(all, r);
}

static void change_rule(struct ctl *ctl, struct shape_known *k, const struct wish *w)
{
    struct shape_rule *r = shape_rules_get(&k->said, w->pattern, class_of(w));
    bool suspended = suspends(r), excepted = shape_rule_value(r, "suspend") && !suspended;
    int64_t end = end_of(r);
    sign(r);
    if (w->suspend)
        suspend(r, w);
    else if (w->resume)
        resume(ctl, k, r, w);
    else
        apply_words(r, &k->file, w);
    bool excepts = !excepted && shape_rule_value(r, "suspend") && !suspends(r);
    if (w->resume || excepts || (suspended && !suspends(r)))
        remember_end(r, end);
}

static void apply(struct ctl *ctl, struct shape_known *k, const struct wish *w)
{
    struct shape_rule *r = shape_rules_find(&k->said, w->pattern, class_of(w));
    if (w->remove && !r)
        ctl_usage("shape %s --remove: no such rule was said here%s", w->pattern,
                  shape_rules_find(&k->file, w->pattern, class_of(w))
                      ? "; that of dovelane.conf is taken out there"
                      : "; `dovelane shape` lists them, with their classes");
    if (w->remove)
        remove_rule(&k->said, r);
    else
        change_rule(ctl, k, w);
    tidy(&k->said);
}

/* ---- saying it ---- */

static char *description(const struct shape_known *k, const struct wish *w)
{
    const struct shape_rule *r = shape_rules_find(&k->said, w->pattern, class_of(w));
    struct buf b = {0};
    buf_printf(&b, "%s%s%s:", w->pattern, w->class ? " class " : "", class_of(w));
    for (size_t i = 0; r && i < r->n; i++)
        buf_printf(&b, " %s=%s", r->setting[i].word, r->setting[i].value);
    if (!r)
        buf_adds(&b, " removed");
    return b.data;
}

/* A name that is written wrong would do nothing, and nobody would say so. */
static void remark_class(const struct ctl *ctl, const struct wish *w)
{
    if (w->class && !w->remove && !config_class(ctl->config, w->class))
        out_error("dovelane: shape: dovelane.conf has no section `class %s`: the rule counts for "
                  "no mail until there is one\n",
                  w->class);
}

static void print_all(const struct shape_known *k)
{
    shape_print(&k->file, false);
    shape_print(&k->said, true);
    if (!k->file.n && !k->said.n)
        out("no rules: the general settings count for all next hops\n");
}

static void show_dry(const json_t *row)
{
    out("nothing was changed (--dry-run)\n");
}

/* False: another admin was faster. */
static bool grant(struct ctl *ctl, const struct wish *w)
{
    struct shape_known k;
    shape_known_read(ctl, &k);
    apply(ctl, &k, w);
    unsigned long long serial = w->dry_run ? 0 : shape_known_say(ctl, &k);
    if (serial || w->dry_run) {
        print_all(&k);
        remark_class(ctl, w);
    }
    if (serial) {
        char *caller = ctl_caller(), *what = description(&k, w);
        ctl_log(ctl, "shape %s, by %s", what, caller);
        free(caller);
        free(what);
        shape_wait_obeyed(ctl, serial);
    } else if (w->dry_run) {
        json_t *row = row_new();
        row_add_is(row, "dry_run", true);
        out_facts(show_dry, row);
    }
    shape_known_free(&k);
    return serial || w->dry_run;
}

/* ---- the command ---- */

enum { OPTION_FOR = 256, OPTION_UNTIL, OPTION_EXPLAIN, OPTION_DRY_RUN };

const struct option shape_options[] = {{"class", required_argument, NULL, 'c'},
                                       {"remove", no_argument, NULL, 'r'},
                                       {"suspend", required_argument, NULL, 's'},
                                       {"for", required_argument, NULL, OPTION_FOR},
                                       {"until", required_argument, NULL, OPTION_UNTIL},
                                       {"resume", no_argument, NULL, 'u'},
                                       {"explain", required_argument, NULL, OPTION_EXPLAIN},
                                       {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
                                       {"help", no_argument, NULL, 'h'},
                                       {0}};

static void print_help(void)
{
    puts(help);
    for (size_t i = 0; shape_word_name(i); i++)
        out("  %-18s %s\n", shape_word_name(i), shape_word_like(shape_word_name(i)));
}

static int64_t time_ahead(const char *text)
{
    int64_t ms;
    if (!units_time(text, &ms) || ms < 1000)
        ctl_usage("shape --for %s: write it like 30m, 2h, 1d: a time from now", text);
    /* Whole seconds, as they are written: not less than was asked for. */
    return whole_seconds(clock_wall() + ms * 1000);
}

static int64_t time_at(const char *text)
{
    int64_t at;
    if (!shape_time_read(text, &at))
        ctl_usage("shape --until %s: write it like %s", text, SHAPE_TIMES);
    if (at <= clock_wall())
        ctl_usage("shape --until %s: that is past; times are in UTC", text);
    return at;
}

static void explain(struct ctl *ctl, const char *next_hop, const char *class)
{
    static const char *const lists[] = {"words", "asked", NULL};
    struct shape_known k;
    char *spelled = nexthop_spell(next_hop);
    if (!shape_pattern_is_exact(spelled))
        ctl_usage("shape --explain %s: name one next hop, smtp:[mx1.example.net]:25", next_hop);
    check_pattern(spelled);
    if (class)
        refuse(shape_class_wrong(class));
    out_begin("shape/1", lists);
    ctl_connect(ctl);
    shape_known_read(ctl, &k);
    shape_print_explained(ctl, &k, spelled, class);
    shape_known_free(&k);
    free(spelled);
}

static void list(struct ctl *ctl)
{
    struct shape_known k;
    ctl_connect(ctl);
    shape_known_read(ctl, &k);
    print_all(&k);
    shape_known_free(&k);
}

/* Returns the next hop of --explain. */
static const char *read_options(struct wish *w, int argc, char **argv)
{
    const char *next_hop = NULL;
    int o;
    while ((o = getopt_long(argc, argv, "h", shape_options, NULL)) != -1) {
        switch (o) {
        case 'c': w->class = optarg; break;
        case 'r': w->remove = true; break;
        case 's': w->suspend = optarg; break;
        case 'u': w->resume = true; break;
        case OPTION_FOR: w->until = time_ahead(optarg); break;
        case OPTION_UNTIL: w->until = time_at(optarg); break;
        case OPTION_EXPLAIN: next_hop = optarg; break;
        case OPTION_DRY_RUN: w->dry_run = true; break;
        case 'h': print_help(); exit(STATUS_DONE);
        default: ctl_usage("see `dovelane shape --help`");
        }
    }
    return next_hop;
}

void shape_command(struct ctl *ctl, int argc, char **argv)
{
    static const char *const lists[] = {"rules", "not_obeying", NULL};
    struct wish w = {0};
    const char *next_hop = read_options(&w, argc, argv);
    if (next_hop && (optind < argc || w.remove || w.resume || w.suspend || w.until))
        ctl_usage("shape --explain %s: it takes no further words", next_hop);
    if (next_hop) {
        explain(ctl, next_hop, w.class);
        return;
    }
    if (optind == argc && (w.class || w.remove || w.resume || w.suspend || w.until || w.dry_run))
        ctl_usage("shape: for which next hops? smtp:[mx1.example.net]:25, .example.net or *");
    if (optind < argc) {
        w.pattern = nexthop_spell(argv[optind]);
        w.word = argv + optind + 1;
        w.nwords = argc - optind - 1;
        check_wish(&w);
    }
    out_begin("shape/1", lists);
    if (!w.pattern) {
        list(ctl);
        return;
    }
    ctl_connect(ctl);
    for (int i = 0; !grant(ctl, &w); i++)
        if (i == TRIES)
            ctl_usage("shape: others change the rules all the time; nothing was changed");
    free(w.pattern);
}
