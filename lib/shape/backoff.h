/* backoff - what a reply of a next hop asks of the sender: to stop for a while, to send more
 * slowly, to open fewer connections. The rules are data: a file (packaging/backoff.rules), of which
 * each line is
 *
 *   [PATTERN] CODE DSN TEXT ACTION [VALUE] TIME
 *
 *   PATTERN   of next hops, as of a shape: .example.net, smtp:*.example.net*. None: all
 *   CODE      three digits, or x for any: 421, 45x, 4xx, 554
 *   DSN       the enhanced status code, with * for a part: 4.7.28, 4.7.*; or * for any
 *   TEXT      "a regular expression (extended, case does not matter)", or * for any
 *   ACTION    suspend TIME           nothing is sent for so long
 *             rate FACTOR TIME       above 0, below 1: of the rate of now
 *             connections N TIME     at most N, or below 1 a factor
 *             nothing                and no line behind it is asked
 *
 * The first rule that fits counts. A line that begins with # is a comment, and a \" within a text
 * is a ". */
#ifndef DOVELANE_LIB_SHAPE_BACKOFF_H
#define DOVELANE_LIB_SHAPE_BACKOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum backoff_kind { BACKOFF_SUSPEND, BACKOFF_RATE, BACKOFF_CONNECTIONS };

struct backoff_rule {
    enum backoff_kind kind;
    /* RATE: the factor. CONNECTIONS: below 1 a factor, else how many. SUSPEND: 0 */
    double value;
    int64_t ms; /* for so long */
    /* for the log */
    unsigned line;
    char *name; /* "backoff.rules:12 (suspend 15m)": without the file's folder */
};

struct backoff_rules;

/* NULL, and *error_r ("file:line: what, and what would do", malloc'd): the file cannot be read,
 * or a line of it. The result is the caller's until backoff_rules_free. */
struct backoff_rules *backoff_rules_read(const char *path, char **error_r);
void backoff_rules_free(struct backoff_rules *);

/* The first one that fits; NULL: none does, or one that says "nothing". dsn: "4.7.28"; NULL or "":
 * the reply has none. text: one line or several, with or without the enhanced codes in it. The
 * result is the rules'. */
const struct backoff_rule *backoff_rules_find(const struct backoff_rules *, const char *destination,
                                              int code, const char *dsn, const char *text);

/* How many rules there are, and the n-th one, from 0. */
size_t backoff_rules_count(const struct backoff_rules *);
const struct backoff_rule *backoff_rules_at(const struct backoff_rules *, size_t n);

#endif
