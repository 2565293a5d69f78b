/* out - what the command prints, as text or, with -j, as JSON. A verb makes rows (ctl/row.h). As
 * text each is shown by its kind's function, which knows nothing but the row. As JSON the same rows
 * are members of one document, or each is a line. So nothing is formatted twice, and what the text
 * says the JSON has.
 *
 * Of the text: names, addresses, errors and headers come from other nodes, mail servers and
 * senders. A control character in one of them would drive the terminal, or forge a line. So each
 * string that is an argument of these functions is shown with such bytes escaped ("\x1b"). The
 * format itself is ours and goes as it is.
 *
 * Nothing else in ctl/ prints a string (tests/house/check_prints.py). puts() is for texts that
 * are constants. */
#ifndef DOVELANE_CTL_OUT_H
#define DOVELANE_CTL_OUT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "lib/base/mem.h"

/* ---- rows ---- */

/* From now on all is JSON. Errors, too: each line on stderr is an object then. */
void out_choose_json(bool);
bool out_is_json(void);

struct out_kind {
    const char *list;                /* the member of the document that has these rows */
    void (*show)(const json_t *row); /* as text; NULL: text says nothing of it */
};

/* schema: "mailq/1": which file of docs/json describes it, and its version. lists: the members that
 * the document has also when no row comes. They end with NULL. */
void out_begin(const char *schema, const char *const *lists);
/* The same, but each row is a document of its own, on a line, at once. */
void out_begin_lines(const char *schema);

/* One more row of its kind, which is taken. What comes before the beginning is not in the JSON. */
void out_row(const struct out_kind *, json_t *row);
/* What is said once: its members are the document's own. The row is taken. */
void out_facts(void (*show)(const json_t *row), json_t *row);
/* Prints the document. An error ends the program before, and then there is none. */
void out_end(void);

/* ---- text ---- */

/* As printf, to stdout and to stderr. With -j there is no text on stdout, and what goes to stderr
 * is gathered to whole lines. Conversions: % c d f i s u x, with flags, width, precision
 * and length. */
void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line of the log, with -j: an object on stderr. */
void out_log(const char *line);

/* Why nothing is done: a line on stderr, "dovelane: " in front of it. */
void out_fatal_list(const char *format, va_list) __attribute__((format(printf, 1, 0)));

/* A mail's bytes: as they are into a file or a pipe; on a terminal, all but newlines and tabs is
 * escaped. */
void out_body(const char *data, size_t len);

#endif
