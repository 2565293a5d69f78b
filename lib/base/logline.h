/* logline - a line of the log that is composed piece by piece, for those of which there is one
 * per mail: printf's formats are what such a line costs most. What does not fit is cut. With len
 * = 0 it is empty. */
#ifndef DOVELANE_LIB_BASE_LOGLINE_H
#define DOVELANE_LIB_BASE_LOGLINE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/log.h"

struct logline {
    char text[LOG_TEXT_MAX + 1];
    size_t len;
};

void logline_bytes(struct logline *, const char *s, size_t n);
/* At most so many bytes of it; NULL is "". */
void logline_add(struct logline *, const char *s, size_t most);
void logline_number(struct logline *, uint64_t n);
/* Writes it, as one of log_info's. */
void logline_say(struct logline *);

#define LOGLINE(line, literal) logline_bytes(line, literal, sizeof literal - 1)

#endif
