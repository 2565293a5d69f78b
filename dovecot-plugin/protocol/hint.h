/* hint - what the plugin writes: hint lines and names of dirty marks
 * (docs/replicator/recording.md). Pure: no I/O.
 *
 * A hint is a reason to look and nothing else, so what is odd but harmless is taken as "look at
 * all of that user". */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_HINT_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_HINT_H

#include <stdbool.h>
#include <stddef.h>

#define HINT_MAX 512 /* bytes of a line, LF included */

struct hint {
    char user[256];
    char guid[33]; /* "" when not known */
    char name[HINT_MAX];
    size_t name_len; /* 0 when not known */
};

/* line: without its LF. false: it is not a hint. */
bool hint_parse(const char *line, size_t n, struct hint *);

/* Where the last hint in a line begins: > 0 when somebody wrote something without a LF before
 * it, as no plugin does. Names are escaped, so a whole hint has three TABs. */
size_t hint_last(const char *line, size_t n);

/* The user of a dirty mark: %XX decoded. "+all": *all_r. false: it is no mark. */
bool hint_mark(const char *file_name, char user[256], bool *all_r);

#endif
