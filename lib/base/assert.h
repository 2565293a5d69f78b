/* assert - what a comment says must hold, checked; in release builds, too. A program that finds
 * otherwise ends: what it would do next, nobody has thought of. What it had in memory is also
 * elsewhere, as for any crash.
 *
 * Only where it costs next to nothing, and never about what comes from outside: that is refused,
 * with an answer. */
#ifndef DOVELANE_LIB_BASE_ASSERT_H
#define DOVELANE_LIB_BASE_ASSERT_H

#define ASSERT(holds) \
    (__builtin_expect(!!(holds), 1) ? (void)0 : assert_failed(__FILE__, __LINE__, #holds))

/* Logs file, line and what must hold must hold, and aborts. */
void assert_failed(const char *file, int line, const char *holds) __attribute__((noreturn, cold));

#endif
