#include "lib/ingress/receipt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/ingress/depth.h"
#include "lib/ingress/depth_watch.h"
#include "lib/shape/shape.h"
#include "lib/shape/shape_rules.h"

#define AGAIN .9 /* of a limit: below it mail is accepted again */

enum kind { ENTRIES, AGE, KINDS };
static const char *const kind_word[KINDS] = {"accept_entries", "accept_age"};

/* What holds for mail to one next hop, of one class. */
struct limits {
    bool any;
    struct {
        int64_t most;      /* 0: there is none */
        const char *class; /* whose entries count; NULL: all of the next hop's */
    } of[KINDS];
    int over; /* SHAPE_OVER_... */
};

/* One limit that was passed, until mail is accepted again. */
struct passed {
    char *destination, *class; /* class: NULL for all */
    enum kind kind;
};

static struct {
    pthread_mutex_t lock;
    const struct config *config;
    char *file, *said;
    struct shapes *shapes;
    size_t npassed;
    struct passed *passed;
    bool unknown;    /* and that was logged */
    atomic_bool any; /* a rule limits something */
    struct depth *depth;
    struct depth_watch *watch;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what holds ---- */

static void see_word(void *arg, const char *word, const struct shape_rule *rule, bool said)
{
    struct limits *l = arg;
    (void)said;
    for (int k = 0; k < KINDS; k++)
        if (!strcmp(word, kind_word[k]))
            l->of[k].class = *rule->class ? rule->class : NULL;
}

/* The rules' texts stay for as long as the lock is held. */
static struct limits limits_of(const char *destination, const char *class)
{
    struct limits l = {0};
    struct shape s;
    if (!all.shapes)
        return l;
    const char *named = class && *class ? class : NULL;
    shape_of(all.shapes, destination, named, &s);
    l.of[ENTRIES].most = s.accept_entries;
    l.of[AGE].most = s.accept_age;
    l.over = s.over;
    l.any = s.accept_entries || s.accept_age;
    if (l.any)
        shape_explain(all.shapes, destination, named, see_word, &l);
    return l;
}

/* ---- limits that were passed ---- */

static bool same_class(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static struct passed *find_passed(const char *destination, const char *class, enum kind kind)
{
    for (size_t i = 0; i < all.npassed; i++) {
        struct passed *p = &all.passed[i];
        if (p->kind == kind && !strcmp(p->destination, destination) && same_class(p->class, class))
            return p;
    }
    return NULL;
}

static void add_passed(const char *destination, const char *class, enum kind kind)
{
    all.passed = mem_grow(all.passed, (all.npassed + 1) * sizeof *all.passed);
    all.passed[all.npassed++] = (struct passed){.destination = mem_strdup(destination),
                                                .class = class ? mem_strdup(class) : NULL,
                                                .kind = kind};
}

static void remove_passed(struct passed *p)
{
    free(p->destination);
    free(p->class);
    *p = all.passed[--all.npassed];
}

/* "smtp:[mx]:25, class bulk: 51 entries wait (accept_entries = 50)" */
static void describe(const char *destination, const char *class, enum kind kind,
                     const struct depth_is *is, int64_t most, char *out, size_t size)
{
    const char *comma = class ? ", class " : "";
    if (kind == ENTRIES)
        snprintf(out, size, "%.300s%s%s: %lld entries wait (accept_entries = %lld)", destination,
                 comma, class ? class : "", is->entries, (long long)most);
    else
        snprintf(out, size, "%.300s%s%s: the oldest entry has waited %.0f s (accept_age = %.0f s)",
                 destination, comma, class ? class : "", is->oldest, (double)most / 1000.);
}

static bool is_over(const struct depth_is *is, enum kind kind, int64_t most, bool was)
{
    double part = was ? AGAIN : 1.;
    return kind == ENTRIES ? (double)is->entries >= (double)most * part
                           : is->oldest * 1000. > (double)most * part;
}

/* Forgets what is over no more, and says so. */
static void review(void)
{
    double now = clock_boottime();
    for (size_t i = all.npassed; i-- > 0;) {
        struct passed *p = &all.passed[i];
        struct limits l = limits_of(p->destination, p->class);
        struct depth_is is;
        char text[600];
        bool holds = l.of[p->kind].most && same_class(l.of[p->kind].class, p->class);
        bool known = depth_of(all.depth, p->destination, p->class, now, &is);
        if (holds && known && is_over(&is, p->kind, l.of[p->kind].most, true))
            continue;
        describe(p->destination, p->class, p->kind, &is, l.of[p->kind].most, text, sizeof text);
        if (!holds)
            log_info("%.300s: the limit is gone: mail for it is accepted again", p->destination);
        else if (known)
            log_info("%s: mail for it is accepted again", text);
        remove_passed(p);
    }
}

/* ---- a mail ---- */

/* That of its lane; "": none. */
static const char *class_of(const struct store_entry *e)
{
    bool ordered =
        e->class && config_destination(all.config, e->destination)->placement == PLACEMENT_ORDERED;
    return e->class && !ordered ? e->class : "";
}

/* Once for each time that nothing is known. */
static void tell_unknown(bool unknown)
{
    if (unknown && !all.unknown)
        log_warning("no node says how many entries wait in its lanes: accept_entries and "
                    "accept_age hold nothing back until one does");
    else if (!unknown && all.unknown)
        log_info("the nodes say again how many entries wait: accept_entries and accept_age hold");
    all.unknown = unknown;
}

/* Asks before the limit is passed by what was counted on top alone. */
static void hurry_near(const struct depth_is *is, int64_t most)
{
    long long listed = is->entries - is->unlisted;
    if (is->unlisted > 0 && 2 * is->unlisted >= most - listed)
        depth_watch_hurry(all.watch);
}

static bool passes(const char *destination, const struct limits *l, enum kind kind, char *detail,
                   size_t size)
{
    struct depth_is is;
    const char *class = l->of[kind].class;
    int64_t most = l->of[kind].most;
    if (!most)
        return true;
    bool known = depth_of(all.depth, destination, class, clock_boottime(), &is);
    tell_unknown(!known);
    if (!known)
        return true;
    if (kind == ENTRIES)
        hurry_near(&is, most);
    bool was = find_passed(destination, class, kind) != NULL;
    if (!is_over(&is, kind, most, was))
        return true;
    describe(destination, class, kind, &is, most, detail, size);
    if (!was) {
        add_passed(destination, class, kind);
        log_warning("%s: mail for it %s", detail,
                    l->over == SHAPE_OVER_QUEUE ? "goes to Postfix's queue" : "is answered 4xx");
    }
    return false;
}

static enum receipt judge_entry(const struct store_entry *e, char *detail, size_t size)
{
    struct limits l = limits_of(e->destination, class_of(e));
    bool pass = true;
    for (int k = 0; l.any && k < KINDS && pass; k++)
        pass = passes(e->destination, &l, (enum kind)k, detail, size);
    return pass ? RECEIPT_OPEN : l.over == SHAPE_OVER_QUEUE ? RECEIPT_QUEUE : RECEIPT_DEFER;
}

/* The proxy forgets its recipients before the entries: copies. */
struct receipt_count {
    char *destination, *class;
};

static void count_on_top(struct mail_entries *m)
{
    m->counted = mem_zero((m->request.nentries + 1) * sizeof *m->counted);
    for (size_t i = 0; i < m->request.nentries; i++) {
        const struct store_entry *e = &m->request.entry[i];
        m->counted[i] = (struct receipt_count){mem_strdup(e->destination), mem_strdup(class_of(e))};
        depth_storing(all.depth, e->destination, class_of(e));
    }
}

enum receipt receipt_judge(struct mail_entries *m, char *detail, size_t size)
{
    enum receipt worst = RECEIPT_OPEN;
    char about[600];
    *detail = '\0';
    if (!atomic_load_explicit(&all.any, memory_order_relaxed))
        return RECEIPT_OPEN;
    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < m->request.nentries; i++) {
        enum receipt r = judge_entry(&m->request.entry[i], about, sizeof about);
        if (r <= worst)
            continue;
        worst = r;
        snprintf(detail, size, "%s", about);
    }
    pthread_mutex_unlock(&all.lock);
    if (worst == RECEIPT_OPEN)
        count_on_top(m);
    return worst;
}

void receipt_over(struct mail_entries *m)
{
    for (size_t i = 0; m->counted && i < m->request.nentries; i++) {
        struct receipt_count *c = &m->counted[i];
        depth_over(all.depth, c->destination, c->class,
                   m->request.entry[i].outcome == STORE_STORED);
        free(c->destination);
        free(c->class);
    }
    free(m->counted);
    m->counted = NULL;
}

/* ---- rules ---- */

static void tell_wrong(void *arg, const char *why)
{
    (void)arg;
    log_error("a rule of shape is left out: %s", why);
}

static bool text_limits(const char *text)
{
    struct shape_rules rules = {0};
    bool any = false;
    shape_rules_parse(&rules, text ? text : "", NULL, NULL);
    for (size_t i = 0; i < rules.n; i++)
        for (int k = 0; k < KINDS; k++) {
            const char *value = shape_rule_value(&rules.rule[i], kind_word[k]);
            any |= value && strcmp(value, "none") != 0;
        }
    shape_rules_free(&rules);
    return any;
}

static void replace(char **text, const char *by)
{
    if (!by)
        return;
    free(*text);
    *text = mem_strdup(by);
}

void receipt_rules_set(const char *file, const char *said)
{
    pthread_mutex_lock(&all.lock);
    replace(&all.file, file);
    replace(&all.said, said);
    shapes_free(all.shapes);
    all.shapes = shapes_new(all.file, all.said, tell_wrong, NULL);
    atomic_store(&all.any, text_limits(all.file) || text_limits(all.said));
    review();
    pthread_mutex_unlock(&all.lock);
}

/* ---- what is asked ---- */

static bool wanted(void)
{
    return atomic_load(&all.any);
}

static bool wants_age(const char *destination, const char *class)
{
    pthread_mutex_lock(&all.lock);
    bool wants =
        limits_of(destination, class).of[AGE].most || limits_of(destination, NULL).of[AGE].most;
    pthread_mutex_unlock(&all.lock);
    return wants;
}

static void looked(void)
{
    pthread_mutex_lock(&all.lock);
    review();
    pthread_mutex_unlock(&all.lock);
}

bool receipt_ready(void)
{
    struct depth_is is;
    return !wanted() || depth_of(all.depth, "", NULL, clock_boottime(), &is);
}

void receipt_open(const struct config *c, struct ev_loop *loop)
{
    static const struct depth_watch_calls calls = {wanted, wants_age, looked};
    all.config = c;
    all.depth = depth_new(c->nnodes);
    all.watch = depth_watch_open(c, loop, all.depth, &calls);
    char *text = config_shape_text(c);
    receipt_rules_set(text, "");
    free(text);
}

void receipt_node(size_t node, struct wire *wire)
{
    depth_watch_node(all.watch, node, wire);
}

void receipt_look(void)
{
    depth_watch_look(all.watch);
}
