/* said - what an admin said by `dovelane divert` or `dovelane hold --add`, as it is kept in every node's Redis (CONTROL_DIVERT, CONTROL_HOLDS) and in files:
 * "<serial> on|off <who>", and lines behind it. The highest serial counts, and of two with one number, off. */
#ifndef DOVELANE_LIB_CLUSTER_SAID_H
#define DOVELANE_LIB_CLUSTER_SAID_H

#include <stdbool.h>

#define SAID_MOST 65536 /* bytes of a text */

struct said {
    unsigned long long serial; /* 0: nobody has ever said anything, which means on */
    bool on;
    char *text; /* as it is written; NULL with serial 0 */
};

/* False when it cannot be understood, or its serial (milliseconds since 1970) is more than ten years ahead: *out is serial 0, on, then.
 * The text is copied. */
bool said_parse(const char *text, struct said *out);

bool said_counts_more(const struct said *, const struct said *than);

/* The length of the first line: for logs. */
int said_first_line(const struct said *);

/* The contents of a file, as by said_parse(). False when it is there, and cannot be read or understood. */
bool said_load(const char *file, struct said *out);

/* Replaces the file; it is on the disk then. False with errno. */
bool said_save(const struct said *, const char *file);

#endif
