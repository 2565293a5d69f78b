/* crash - dies between two steps, for tests. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_CRASH_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_CRASH_H

#include "dovecot-plugin/compat.h"

/* Dies there when DOVELANE_CRASH_AT names this step; compiled to nothing but in test
 * builds. */
#ifdef DOVELANE_TEST_CRASH
void crash_at(const char *step);
/* step "deleting": its index is marked deleted, and it is there still */
void crash_while_deleting(struct mailbox *);
/* steps "creating" and "opened": its directory is there, and nothing in it; its index, without a
 * UIDVALIDITY */
void crash_while_creating(struct mailbox *);
#else
#define crash_at(step) ((void)0)
#define crash_while_creating(box) ((void)0)
#define crash_while_deleting(box) ((void)0)
#endif

#endif
