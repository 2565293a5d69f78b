/* out - what the command prints. Names, addresses, errors and headers come from other nodes,
 * mail servers and senders: a control character in one of them would drive the terminal, or
 * forge a line. So each string that is an argument of these functions is shown with such bytes
 * escaped ("\x1b"); the format itself is ours and goes as it is.
 *
 * Nothing else in ctl/ prints a string (tests/house/check_prints.py). puts() is for texts that
 * are constants. */
#ifndef DOVELANE_CTL_OUT_H
#define DOVELANE_CTL_OUT_H

#include <stdarg.h>
#include <stddef.h>

#include "lib/base/mem.h"

/* As printf, to stdout and to stderr. Conversions: % c d f i s u x, with flags, width, precision
 * and length. */
void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_list(const char *format, va_list) __attribute__((format(printf, 1, 0)));
void out_error_list(const char *format, va_list) __attribute__((format(printf, 1, 0)));

/* Text that is JSON, and a newline: what JSON may leave as it is and a terminal obeys becomes
 * \u009b. */
void out_json(const char *text);

/* A mail's bytes: as they are into a file or a pipe; on a terminal, all but newlines and tabs is
 * escaped. */
void out_body(const char *data, size_t len);

/* The bytes that are printable, or escaped, appended. */
void out_escape(struct buf *, const char *s, size_t len);

#endif
