/* streams - a stub as bytes. The one stream gives the whole mail's, though only its head is there.
 * The other one keeps of what is saved the head only. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STUB_STREAMS_H
#define DOVELANE_DOVECOT_PLUGIN_STUB_STREAMS_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/stub/format.h"

/* Gets the whole mail, in canonical form, whose bytes were checked. The stream is the caller's.
 * NULL: *error_r says why not (data stack). */
typedef struct istream *stub_fetch_fn(void *context, const struct stub *, const char **error_r);

/* The mail that a stub with this head stands for. Reading behind the head asks for the whole
 * one, once; where it cannot be had, that is an error of the stream. fetch NULL: it never can. */
struct istream *stub_istream_create(const struct stub *, const void *head, size_t n,
                                    stub_fetch_fn *fetch, void *context);
/* Asks for the whole one, unless it is there. 0; -1: *error_r says why not. */
int stub_istream_fetch(struct istream *, const char **error_r);

/* What is written to it becomes a stub in the other one, when it is finished. stored is what was
 * written then. */
struct ostream *stub_ostream_create(struct ostream *, const struct stub *, const struct stub_key *);

#endif
