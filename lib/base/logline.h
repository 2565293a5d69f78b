/* logline - a line of the log that is composed piece by piece, for lines of which there is one per
 * mail. Printf's formats are what such a line costs most. What does not fit is cut. A piece that is
 * a field's value is marked as such (log.h), which costs a few stores. */
#ifndef DOVELANE_LIB_BASE_LOGLINE_H
#define DOVELANE_LIB_BASE_LOGLINE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/log.h"

struct logline {
    size_t len;
    struct log_marks marks;
    char text[LOG_TEXT_MAX + 1];
};

/* "ID" of a mail, of which the line says what happened. */
void logline_begin(struct logline *, enum log_event, const char *queue_id);
void logline_bytes(struct logline *, const char *s, size_t n);
/* At most so many bytes of it; NULL is "". */
void logline_add(struct logline *, const char *s, size_t most);
void logline_number(struct logline *, uint64_t n);
/* The same, as the value of a field. */
void logline_field(struct logline *, enum log_field, const char *s, size_t most);
void logline_field_number(struct logline *, enum log_field, uint64_t n);
/* What was added since the line was `from` bytes long is that field's value. */
void logline_mark(struct logline *, enum log_field, size_t from);
/* Writes it, as one of log_info's or log_warning's. */
void logline_say(struct logline *);
void logline_warn(struct logline *);

#define LOGLINE(line, literal) logline_bytes(line, literal, sizeof literal - 1)

#endif
