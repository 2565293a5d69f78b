/* hint - tells the replicator that a user's mailbox changed, or leaves a dirty mark when it cannot
 * be told at once.
 *
 * Never blocks, never fails an IMAP command: a hint is a reason to look and nothing else
 * (docs/replicator/recording.md). State is per process, not per user: the FIFO's descriptor, since
 * all users share base_dir. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_HINT_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_HINT_H

#include "dovecot-plugin/compat.h"

#include <stddef.h>

/* All that is needed to tell of one mailbox's changes, made once for many. Texts are the
 * caller's. */
struct hint {
    const char *fifo; /* absolute */
    const char *mark; /* absolute path of the user's dirty mark: hint_mark_path() */
    const char *line; /* line_hint() */
    size_t size;      /* of line; 0: it did not fit, only a mark is left */
};

/* "dirty_dir/<the user's mark>", from pool. */
const char *hint_mark_path(pool_t pool, const char *dirty_dir, const char *user);

/* One write(), or a mark. Trouble with the mark itself is logged to event, at most once a
 * minute. errno is kept. */
void hint_send(const struct hint *hint, struct event *event);

/* Closes the FIFO, when the plugin is unloaded. */
void hint_deinit(void);

#endif
