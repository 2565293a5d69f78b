/* escape - bytes that come from elsewhere, so that they are text, and drive no terminal. Bytes are
 * appended to the buffer; what is escaped becomes "\x1b", byte by byte. */
#ifndef DOVELANE_CTL_ESCAPE_H
#define DOVELANE_CTL_ESCAPE_H

#include <stddef.h>

#include "lib/base/mem.h"

/* What is no UTF-8, and characters that a terminal obeys; allowed: but not these. */
void escape_for_terminal(struct buf *, const char *s, size_t len, const char *allowed);

/* What is no UTF-8. */
void escape_to_utf8(struct buf *, const char *s, size_t len);

/* Text that is JSON: characters that a terminal obeys, which JSON may leave as they are, become
 * \u009b. */
void escape_json(struct buf *, const char *s, size_t len);

#endif
