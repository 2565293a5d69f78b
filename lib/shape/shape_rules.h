/* shape_rules - rules of shapes as text: of dovelane.conf, and of what `dovelane shape` said. A
 * line for each rule, of fields with a TAB between:
 *
 *   smtp:[mx1.example.net]:25  class=bulk  by=root@mx1  at=1764000000000000  rate=100/s  burst=20
 *
 * class, by and at may be missing. "rate=none": the general settings count, whatever less specific
 * rules say. */
#ifndef DOVELANE_LIB_SHAPE_SHAPE_RULES_H
#define DOVELANE_LIB_SHAPE_SHAPE_RULES_H

#include "lib/base/mem.h"
#include "lib/shape/shape.h"

struct shape_setting {
    char *word, *value;
};

struct shape_rule {
    char *pattern, *class; /* class: "" for all */
    char *by;              /* who said it; "": the file */
    int64_t at;            /* and when: microseconds since 1970 */
    size_t n;
    struct shape_setting *setting;
};

struct shape_rules {
    size_t n;
    struct shape_rule *rule;
};

/* Adds the text's rules. What is no rule is left out, and told to wrong, as by shapes_new. The
 * words are not checked: those of a later version are kept. */
void shape_rules_parse(struct shape_rules *, const char *text,
                       void (*wrong)(void *arg, const char *why), void *arg);
void shape_rules_print(const struct shape_rules *, struct buf *out);
void shape_rules_free(struct shape_rules *); /* and is empty again */

/* The rule of that pattern and class ("": of all classes). NULL: there is none. */
struct shape_rule *shape_rules_find(const struct shape_rules *, const char *pattern,
                                    const char *class);
/* The same; where there is none, it is added. */
struct shape_rule *shape_rules_get(struct shape_rules *, const char *pattern, const char *class);
void shape_rules_remove(struct shape_rules *, struct shape_rule *);

/* value: NULL removes the word. */
void shape_rule_set(struct shape_rule *, const char *word, const char *value);
/* NULL: the rule has it not. */
const char *shape_rule_value(const struct shape_rule *, const char *word);

/* NULL, or what is wrong, and the way out (malloc'd). */
char *shape_pattern_wrong(const char *pattern);
char *shape_class_wrong(const char *class);
/* Of a rule with a class: only some words are about a class's mail. */
char *shape_class_word_wrong(const char *class, const char *word);
/* It names one next hop. */
bool shape_pattern_is_exact(const char *pattern);

/* The words, in the order in which they are shown; NULL behind the last one. */
const char *shape_word_name(size_t i);
/* What would do as its value: "100/s, 6000/min, 500/h, 2000/d". NULL: it is no word. */
const char *shape_word_like(const char *word);

/* Calls tell for each word that holds there, in the order in which words are shown, with the rule
 * that says it. said: that rule is one of `dovelane shape`, not of the file. */
void shape_explain(const struct shapes *, const char *destination, const char *class,
                   void (*tell)(void *arg, const char *word, const struct shape_rule *, bool said),
                   void *arg);

/* "2026-12-01", "2026-12-01 12:00", "2026-12-01T12:00:30Z": UTC. Microseconds since 1970. */
bool shape_time_read(const char *text, int64_t *wall_r);
#define SHAPE_TIMES "2026-12-01, or 2026-12-01 12:00 (UTC)"
#define SHAPE_TIME_TEXT 32 /* bytes, with the NUL */
/* "2026-12-01 12:00:00Z", which can be read again. */
void shape_time_text(int64_t wall, char out[SHAPE_TIME_TEXT]);

#endif
