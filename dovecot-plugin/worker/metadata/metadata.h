/* metadata - what hangs on names: METADATA and access rights, Sieve scripts, subscriptions. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_METADATA_METADATA_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_METADATA_METADATA_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/logs/log.h"

struct journal;
struct session;

/* --- attributes.c, scripts.c ------------------------------------------------------------------ */

enum attributes_said {
    ATTRIBUTES_BY_USER, /* somebody changed them */
    /* this program wrote them, by the word of a later state than this one */
    ATTRIBUTES_APPLIED,
    ATTRIBUTES_UNSAID, /* nothing is known to tell of a change */
    ATTRIBUTES_OTHER   /* the same, and the mailbox is another one, of an old backup perhaps */
};
/* All that are there, or those that the log says were changed: only such a one was unset by
 * somebody. In a transaction. */
int attributes_ingest(struct session *, struct mailbox *, uint32_t folder, enum attributes_said);
/* fresh: only changes that are. rewound: the state is older than the mailbox. */
int attributes_ingest_changed(struct session *, struct mailbox *, uint32_t folder,
                              const ARRAY_TYPE(attribute_change) * changes, bool fresh,
                              bool rewound);
/* Behind a scan whose log does not show all. lost: what is missing went with the index, and is set
 * again. Access rights are not: only a mailbox that was made again gets them back. In a
 * transaction, both. */
int attributes_restore(struct session *, struct mailbox *, uint32_t folder, bool lost);
int rights_restore(struct session *, uint32_t folder);
int scripts_ingest_all(struct session *); /* Sieve scripts, also those that no log tells of */
/* 1: it waits */
int attribute_apply(struct session *, uint32_t folder, const char *key, size_t len);

/* --- sieve.c ---------------------------------------------------------------------------------- */

/* Sieve scripts become attributes of INBOX, if Pigeonhole is installed. */
void sieve_load(void);

/* --- subscriptions.c -------------------------------------------------------------------------- */

/* *names_r: a change of one waits, and what the journal says of them is needed again. */
int subscriptions_ingest(struct session *, struct journal *, bool *names_r);
int subscriptions_apply(struct session *);

#endif
