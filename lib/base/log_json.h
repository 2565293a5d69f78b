/* log_json - a log line as one JSON object (RFC 8259): who says it and when, its fields, and the
 * text of the line as "message". docs/log-fields.md lists the keys. */
#ifndef DOVELANE_LIB_BASE_LOG_JSON_H
#define DOVELANE_LIB_BASE_LOG_JSON_H

#include <stddef.h>

#include "lib/base/log.h"

/* The text and its fields, each byte escaped; names and what all lines have. */
#define LOG_JSON_MAX (4 * LOG_TEXT_MAX + 3000)

struct log_json_origin {
    const char *time; /* RFC 3339 */
    size_t time_len;
    const char *host, *program;
    int pid;
    const char *node; /* NULL: none */
};

/* text: cleaned (log.h), at most LOG_TEXT_MAX bytes. Ends with a NUL, without a newline. Returns its
 * length. */
size_t log_json(char out[LOG_JSON_MAX + 1], const struct log_json_origin *, enum log_level,
                const char *text, const struct log_marks *);

/* The key of a field. */
const char *log_field_name(enum log_field);

#endif
