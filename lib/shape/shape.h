/* shape - how much may be sent to a next hop, and how much is accepted for it (docs/shape.md).
 *
 * A rule is a pattern of next hops, maybe a class of mail, and words: "rate=100/s". Rules stand in
 * dovelane.conf (sections `shape`), and in what `dovelane shape` last said (CONTROL_SHAPE). For one
 * next hop each word counts as the most specific rule that has it says:
 *   the exact name ("smtp:[mx1.example.net]:25") > a domain (".example.net": the host ends so, the
 *   longest one) > a pattern with * (the longest one) > "*",
 * and at one level: what names the class > what does not; then what `dovelane shape` said > the
 * file. "rate=none" is a word, too: the general settings count, whatever less specific rules say.
 * What belongs together comes from one rule. A burst comes from the rule of its rate, or a more
 * specific one. The end of a suspension is from the rule of its reason. Of a suspension with an
 * end, the latest end of all rules counts, so that it is never over too early. So does the latest
 * "resumed". Pure: no clock is read here. Times are milliseconds, sizes are bytes. */
#ifndef DOVELANE_LIB_SHAPE_SHAPE_H
#define DOVELANE_LIB_SHAPE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHAPE_TEXT_MOST 60000 /* bytes of all rules of `dovelane shape` */
#define SHAPE_WARMUP_DAYS 64  /* of a plan */
#define SHAPE_CLASS_NAME 16   /* bytes of a class's name with its NUL: [a-z0-9-] */

/* How much the concurrency grows with a success, or shrinks with a failure, as Postfix's
 * default_destination_concurrency_positive_feedback and _negative_feedback say: "0.5",
 * "1/concurrency", "1/sqrt_concurrency". */
enum shape_feedback_per { SHAPE_PER_NONE, SHAPE_PER_CONCURRENCY, SHAPE_PER_SQRT_CONCURRENCY };
struct shape_feedback {
    enum shape_feedback_per per;
    double value; /* 0 to 1, above the stroke */
};
/* 0 to 1: the step at that concurrency (1 or more). */
double shape_feedback(const struct shape_feedback *, double concurrency);

/* "2026-12-01: 50 100 500 1000": so many mails on the first day (UTC) and so on; afterwards there
 * is no bound by the plan. */
struct shape_warmup {
    int64_t first; /* begin of the first day, microseconds since 1970 */
    size_t n;      /* 0: no plan */
    double mails[SHAPE_WARMUP_DAYS];
};

enum { SHAPE_TIMEOUT_POSTFIX, SHAPE_TIMEOUT_BOUNCE };
enum { SHAPE_OVER_DEFER, SHAPE_OVER_QUEUE };

/* What holds for one next hop (and class). Zero, NULL and n = 0 mean: not set, the general
 * settings count. */
struct shape {
    /* by the whole group */
    double rate, burst;           /* mails a second; mails. The default is a second's, at least 1 */
    double byte_rate, byte_burst; /* bytes a second; bytes */
    int64_t connections;          /* of all relays together */
    struct shape_warmup warmup;

    /* by each relay */
    int64_t relay_connections; /* instead of destination_concurrency */
    int64_t connection_mails;  /* instead of connection_reuse */
    bool has_feedback;         /* any of the two was set; the other one is the default */
    struct shape_feedback positive, negative; /* defaults: 1/concurrency; 1 */
    int64_t retry_first, retry_most;          /* instead of the settings of that name */
    int64_t timeout;           /* instead of lane_time: a mail that waits for longer ... */
    int timeout_action;        /* ... goes to Postfix's queue, or bounces */
    int64_t size_most;         /* a larger mail bounces with 5.3.4 */
    bool backoff;              /* obey the rules file of replies (lib/shape/backoff.h) */
    bool suspended;            /* nothing is sent; see shape_suspended_at */
    int64_t suspended_until;   /* microseconds since 1970; 0: until `dovelane shape --resume` */
    const char *suspended_why; /* the rules'; "" when nobody said */
    int64_t resumed;           /* the latest of all rules, 0: none; see shape_resumed_at */

    /* for the program that accepts mail: the milter, the proxy */
    int64_t accept_entries; /* more are in the next hop's lanes (of that class): see over */
    int64_t accept_age;     /* its oldest entry (of that class) is older: the same */
    int over;               /* 4xx, or Postfix's own queue */

    /* weighted fair between classes: 1 to 1000; 0: not set, which means 1 */
    int64_t weight;
};

struct shapes;

/* file: lines as shape_rules_print writes them, of the config's sections; said: the same, of
 * `dovelane shape`. Either may be NULL. A rule or a word that cannot be read is left out, and
 * reported to `wrong` as "<what>, and the way out". The text is gone when `wrong` returns. `wrong`
 * may be NULL. Never NULL; the caller's until shapes_free. */
struct shapes *shapes_new(const char *file, const char *said,
                          void (*wrong)(void *arg, const char *why), void *arg);
void shapes_free(struct shapes *);

/* True when any rule has any word: else nobody needs to ask. */
bool shapes_any(const struct shapes *);

/* What holds for that next hop ("smtp:[mx1.example.net]:25") and class (NULL: none). */
void shape_of(const struct shapes *, const char *destination, const char *class, struct shape *out);

/* The rate that holds at that time (microseconds since 1970) with the warm-up plan. A day's mails
 * are spread over that day, with a burst of an hour's share (at least 1). Before the first day its
 * mails count. Of the rule's rate and the plan's, the smaller one. 0: no bound. */
double shape_rate_at(const struct shape *, int64_t wall, double *burst_r);

bool shape_suspended_at(const struct shape *, int64_t wall);

/* When the last suspension ended, of those that are over at that time and are known of; 0: none. A
 * mail that waited meanwhile has its whole time from then on. */
int64_t shape_resumed_at(const struct shape *, int64_t wall);

/* ---- rules as text ---- */

/* One word of one rule: checks it. NULL, or what is wrong with it and what would do (malloc'd). */
char *shape_word_wrong(const char *word, const char *value);

#endif
