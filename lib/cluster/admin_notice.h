/* admin_notice - what an admin told all programs by `dovelane divert`, `dovelane hold --add` or
 * `dovelane shape`. It is kept in every node's Redis (CONTROL_DIVERT, CONTROL_HOLDS, CONTROL_SHAPE)
 * and in files: "<serial> on|off <who>", and lines behind it. The highest serial counts, and of two
 * with one number, off. */
#ifndef DOVELANE_LIB_CLUSTER_ADMIN_NOTICE_H
#define DOVELANE_LIB_CLUSTER_ADMIN_NOTICE_H

#include <stdbool.h>

#define ADMIN_NOTICE_MOST 65536 /* bytes of a text */

struct admin_notice {
    unsigned long long serial; /* 0: nobody has ever said anything, which means on */
    bool on;
    char *text; /* as it is written; NULL with serial 0 */
};

/* False when it cannot be understood, or its serial (milliseconds since 1970) is more than ten
 * years ahead: *out is serial 0, on, then. The text is copied. */
bool admin_notice_parse(const char *text, struct admin_notice *out);

bool admin_notice_counts_more(const struct admin_notice *, const struct admin_notice *than);

/* The length of the first line: for logs. */
int admin_notice_first_line(const struct admin_notice *);

/* The contents of a file, as by admin_notice_parse(). False when it is there, and cannot be read
 * or understood. */
bool admin_notice_load(const char *file, struct admin_notice *out);

/* Replaces the file; it is on the disk then. False with errno. */
bool admin_notice_save(const struct admin_notice *, const char *file);

#endif
