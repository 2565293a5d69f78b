#include "lib/shape/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/shape/shape_rules.h"
#include "lib/shape/shape_work.h"

#define DAY 86400000000LL /* microseconds */

/* A rule whose words were read. */
struct read_rule {
    const struct shape_rule *text;
    bool said;
    enum shape_level level;
    uint32_t has, none; /* bits of shape_word: it says something; it says "none" */
    struct shape value;
};

struct shapes {
    struct shape_rules file, said;
    size_t n;
    struct read_rule *rule; /* the most specific first */
};

/* ---- reading ---- */

struct teller {
    void (*wrong)(void *arg, const char *why);
    void *arg;
};

static void tell(void *arg, const char *why)
{
    struct teller *t = arg;
    if (t->wrong)
        t->wrong(t->arg, why);
}

static void read_setting(struct read_rule *r, const struct shape_setting *s, struct teller *t)
{
    int word = shape_word_index(s->word);
    char *why = word < 0 ? shape_word_wrong(s->word, s->value)
                         : shape_word_read((enum shape_word)word, s->value, &r->value);
    if (why) {
        char *whole = mem_printf("rule %s: %s", r->text->pattern, why);
        tell(t, whole);
        free(whole);
        free(why);
        return;
    }
    r->has |= 1u << word;
    if (!strcmp(s->value, "none"))
        r->none |= 1u << word;
}

static void add_rules(struct shapes *s, const struct shape_rules *all, bool said, struct teller *t)
{
    s->rule = mem_grow(s->rule, (s->n + all->n + 1) * sizeof *s->rule);
    for (size_t i = 0; i < all->n; i++) {
        const struct shape_rule *text = &all->rule[i];
        struct read_rule *r = &s->rule[s->n];
        *r = (struct read_rule){
            .text = text, .said = said, .level = shape_pattern_level(text->pattern)};
        for (size_t k = 0; k < text->n; k++)
            read_setting(r, &text->setting[k], t);
        s->n += r->has != 0;
    }
}

/* Below 0: a is more specific. */
static int compare(const void *first, const void *second)
{
    const struct read_rule *a = first, *b = second;
    size_t na = strlen(a->text->pattern), nb = strlen(b->text->pattern);
    if (a->level != b->level)
        return a->level > b->level ? -1 : 1;
    if (a->level != SHAPE_EXACT && na != nb)
        return na > nb ? -1 : 1;
    if (!*a->text->class != !*b->text->class)
        return *a->text->class ? -1 : 1;
    if (a->said != b->said)
        return a->said ? -1 : 1;
    /* An order that is the same everywhere. */
    int order = strcasecmp(a->text->pattern, b->text->pattern);
    return order ? order : (a->text > b->text) - (a->text < b->text);
}

struct shapes *shapes_new(const char *file, const char *said,
                          void (*wrong)(void *arg, const char *why), void *arg)
{
    struct shapes *s = mem_zero(sizeof *s);
    struct teller t = {wrong, arg};
    shape_rules_parse(&s->file, file ? file : "", tell, &t);
    shape_rules_parse(&s->said, said ? said : "", tell, &t);
    add_rules(s, &s->file, false, &t);
    add_rules(s, &s->said, true, &t);
    qsort(s->rule, s->n, sizeof *s->rule, compare);
    return s;
}

void shapes_free(struct shapes *s)
{
    if (!s)
        return;
    shape_rules_free(&s->file);
    shape_rules_free(&s->said);
    free(s->rule);
    free(s);
}

bool shapes_any(const struct shapes *s)
{
    return s->n > 0;
}

/* ---- what holds ---- */

struct source {
    const struct read_rule *of[SHAPE_WORDS]; /* NULL: no rule says the word */
    bool resumed; /* "suspend=none" was met: no less specific rule suspends */
};

static bool fits(const struct read_rule *r, const char *destination, const char *class)
{
    return (!*r->text->class || (class && !strcmp(r->text->class, class))) &&
           shape_pattern_fits(r->text->pattern, destination);
}

static bool ends_later(const struct shape *a, const struct shape *than)
{
    return than->suspended_until &&
           (!a->suspended_until || a->suspended_until > than->suspended_until);
}

/* One that is suspended for some time stays so for as long as a less specific rule says; "none"
 * ends the search. The end is that of the reason's rule. */
static void take_suspension(struct source *s, const struct read_rule *r)
{
    const struct read_rule *now = s->of[SHAPE_SUSPEND];
    if (s->resumed || !(r->has >> SHAPE_SUSPEND & 1))
        return;
    s->resumed = r->none >> SHAPE_SUSPEND & 1;
    if (!now || (!s->resumed && ends_later(&r->value, &now->value)))
        s->of[SHAPE_SUSPEND] = r;
}

/* Whichever rule it was by which nothing was sent. */
static void take_resumed(struct source *s, const struct read_rule *r)
{
    const struct read_rule *now = s->of[SHAPE_RESUMED];
    if (r->value.resumed && (!now || r->value.resumed > now->value.resumed))
        s->of[SHAPE_RESUMED] = r;
}

static bool is_by_time(int word)
{
    return word == SHAPE_SUSPEND || word == SHAPE_SUSPEND_UNTIL || word == SHAPE_RESUMED;
}

/* A burst that goes with a less specific rate is none for this one. */
static bool goes_with_another(const struct source *s, const struct read_rule *r, int word)
{
    int amount = word == SHAPE_BURST        ? SHAPE_RATE
                 : word == SHAPE_BYTE_BURST ? SHAPE_BYTE_RATE
                                            : word;
    return amount != word && s->of[amount] && s->of[amount] != r;
}

static void find(const struct shapes *all, const char *destination, const char *class,
                 struct source *out)
{
    *out = (struct source){0};
    for (size_t i = 0; i < all->n; i++) {
        const struct read_rule *r = &all->rule[i];
        if (!fits(r, destination, class))
            continue;
        take_suspension(out, r);
        take_resumed(out, r);
        for (int word = 0; word < SHAPE_WORDS; word++)
            if (!is_by_time(word) && !out->of[word] && r->has >> word & 1 &&
                !goes_with_another(out, r, word))
                out->of[word] = r;
    }
    const struct read_rule *why = out->of[SHAPE_SUSPEND];
    if (why && why->has >> SHAPE_SUSPEND_UNTIL & 1)
        out->of[SHAPE_SUSPEND_UNTIL] = why;
}

static bool says(const struct source *s, int word)
{
    return s->of[word] && !(s->of[word]->none >> word & 1);
}

/* What follows from what was not said. */
static void complete(const struct source *s, struct shape *out)
{
    bool positive = says(s, SHAPE_FEEDBACK_POSITIVE), negative = says(s, SHAPE_FEEDBACK_NEGATIVE);
    out->has_feedback = positive || negative;
    if (!positive)
        out->positive = (struct shape_feedback){SHAPE_PER_CONCURRENCY, 1};
    if (!negative)
        out->negative = (struct shape_feedback){SHAPE_PER_NONE, 1};
    if (!out->rate)
        out->burst = 0;
    else if (!out->burst)
        out->burst = out->rate < 1 ? 1 : out->rate;
    if (!out->byte_rate)
        out->byte_burst = 0;
    else if (!out->byte_burst)
        out->byte_burst = out->byte_rate;
    if (out->retry_first && out->retry_most && out->retry_most < out->retry_first)
        out->retry_most = out->retry_first;
    if (!out->suspended_why)
        out->suspended_why = "";
}

void shape_of(const struct shapes *all, const char *destination, const char *class,
              struct shape *out)
{
    struct source s;
    find(all, destination, class, &s);
    *out = (struct shape){0};
    for (int word = 0; word < SHAPE_WORDS; word++)
        if (s.of[word])
            shape_word_copy((enum shape_word)word, &s.of[word]->value, out);
    complete(&s, out);
}

void shape_explain(const struct shapes *all, const char *destination, const char *class,
                   void (*say)(void *arg, const char *word, const struct shape_rule *, bool said),
                   void *arg)
{
    struct source s;
    find(all, destination, class, &s);
    for (int word = 0; word < SHAPE_WORDS; word++)
        if (s.of[word])
            say(arg, shape_word_name((size_t)word), s.of[word]->text, s.of[word]->said);
}

/* ---- what follows ---- */

double shape_feedback(const struct shape_feedback *f, double concurrency)
{
    double by = concurrency < 1 ? 1 : concurrency;
    switch (f->per) {
    case SHAPE_PER_CONCURRENCY: return f->value / by;
    case SHAPE_PER_SQRT_CONCURRENCY: return f->value / sqrt(by);
    default: return f->value;
    }
}

/* Before the first day the first day's mails count: a clock that is behind, or a plan for
 * tomorrow, does not mean that everything may be sent. */
static double planned_mails(const struct shape_warmup *w, int64_t wall)
{
    int64_t day = wall < w->first ? 0 : (wall - w->first) / DAY;
    return day < (int64_t)w->n ? w->mails[day] : 0;
}

double shape_rate_at(const struct shape *s, int64_t wall, double *burst_r)
{
    double mails = planned_mails(&s->warmup, wall), burst = mails / 24, rate = mails / 86400;
    if (burst < 1)
        burst = 1;
    if (s->rate && (!rate || s->rate <= rate)) {
        *burst_r = s->burst;
        return s->rate;
    }
    if (s->rate && s->burst < burst)
        burst = s->burst;
    *burst_r = rate ? burst : 0;
    return rate;
}

bool shape_suspended_at(const struct shape *s, int64_t wall)
{
    return s->suspended && (!s->suspended_until || wall < s->suspended_until);
}

int64_t shape_resumed_at(const struct shape *s, int64_t wall)
{
    bool ended = s->suspended && s->suspended_until && s->suspended_until <= wall;
    return ended && s->suspended_until > s->resumed ? s->suspended_until : s->resumed;
}
