/* ingest - what changed in the mailboxes becomes ops. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_INGEST_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_INGEST_H

#include "dovecot-plugin/compat.h"

#include <array.h>

struct box;
struct frame_ingest;
struct session;

/* Called when a part is committed: its ops go to the peers. */
typedef int send_fn(struct session *);
/* INGEST: n 0 looks at all mailboxes. joined: the wait for the other sites has just ended. */
int ingest(struct session *, const struct frame_ingest *, bool joined, send_fn *);

/* The mailboxes that are to be compared whole, now. */
int ingest_marked(struct session *, send_fn *send);
int ingest_one(struct session *, struct box *);
/* Of a mailbox whose mails leave it for another one's: what clients did there since it was looked
 * at. Where it cannot be looked at now, it stays marked (all), or waits. */
int ingest_left(struct session *, struct box *);
/* The mailboxes of those folders, whatever is there to remove waits for a look at all of them. */
int ingest_folders(struct session *, const ARRAY_TYPE(uint32_t) *);
/* By its files, nothing has changed in the folder's mailbox since it was looked at. */
bool ingest_is_current(struct session *, uint32_t folder);
/* Clients did something in the folder's mailbox since it was looked at, or that is not known. */
bool ingest_has_news(struct session *, uint32_t folder);
/* Decides on what is quarantined and is gone still; what went besides is the next scan's to
 * judge. How many mails that were, or -1. */
int quarantine_decide(struct session *, struct box *, bool accept);
/* Mailboxes that cannot be opened, and for which removals wait. */
int unseen_begin(struct session *); /* counts what is known of them; -1 */
int unseen_each(struct session *, void (*fn)(struct session *, const char *vname));
int unseen_waits(struct session *, const char *vname); /* 1: for that one; 0; -1 */
/* No mail was moved there, an admin says: from now on none waits. */
int unseen_accept(struct session *, const char *vname);

#endif
