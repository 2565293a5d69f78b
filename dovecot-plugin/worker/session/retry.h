/* retry - how long to wait before something that failed is tried again.
 *
 * Nothing tells this program when a mailbox can be read again, so it looks. What fails once mostly
 * goes on failing: each failure in a row doubles the wait. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_RETRY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_RETRY_H

#include <stdbool.h>
#include <stdint.h>

struct session;

struct retry {
    uint64_t hash;  /* of what is tried */
    uint64_t again; /* milliseconds of the monotonic clock */
    unsigned wait;  /* milliseconds */
};

/* It failed, and a TICK is wanted to try it again: after first_msecs, and after twice as long
 * each time, up to 30 times first_msecs. FALSE: that wait was not over yet, and stays as it is.
 * name: of a mailbox or of what else it is about; what: of what was tried there, a word of the
 * caller's own.
 * What nobody tried for a minute after it was due is forgotten. */
bool session_retry(struct session *, const char *what, const char *name, unsigned first_msecs);
/* All that waited was tried in a question that began then, by the monotonic clock. What was due and
 * did not fail again went well: its next failure is a first one. */
void session_retries_end(struct session *, uint64_t begun);

#endif
