/* journal - what the plugin noted of what clients are about to delete or unsubscribe. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_JOURNAL_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_JOURNAL_H

#include "dovecot-plugin/compat.h"

#include <guid.h>

struct session;

/* The plugin's journal. NULL is freed, too. */
struct journal;
/* TRUE when there was something; it stays until it is dropped */
int journal_take(struct session *, struct journal **, bool *taken);
int journal_read(struct journal *); /* with what was written since */
bool journal_deleted(struct journal *, const guid_128_t guid);
/* What a folder that was deleted was called then. NULL: it was not, or nobody says. */
const char *journal_last_name(struct journal *, const guid_128_t guid);
/* What UIDNEXT a folder that was deleted had then. 0: it was not, or nobody says. */
uint32_t journal_last_uid_next(struct journal *, const guid_128_t guid);
/* Calls fn for each folder that was deleted until it returns non-zero, which is returned. */
struct deletion;
typedef int journal_deleted_fn(void *arg, const struct deletion *);
int journal_each_deleted(struct journal *, journal_deleted_fn *, void *arg);
bool journal_in_use(struct session *); /* what its last lines say is under way */
bool journal_subscription(struct journal *, const char *vname, bool on);
/* All that was concluded from it is committed, but for the deletions of these mailboxes, and,
 * with names, what it says of subscriptions. */
int journal_settle(struct session *, const ARRAY_TYPE(guid_128_t) * waiting, bool names);
void journal_free(struct journal **);

#endif
