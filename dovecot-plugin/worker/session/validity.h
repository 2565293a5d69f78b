/* validity - no mailbox that a client makes gets a UIDVALIDITY that another one had; and another
 * one for a mailbox that never had a mail. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_VALIDITY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_VALIDITY_H

#include "dovecot-plugin/compat.h"

struct mailbox_list;
struct session;

/* A mailbox of the list is to have that one: those that clients make from now on get higher ones.
 * What fails does so for Dovecot, too, which logs it. */
void validity_count(struct mailbox_list *, uint32_t uid_validity);
/* The same for all that the state knows: the home may be a backup's. */
void validity_count_all(struct session *);

/* Of an open mailbox that never had a mail. uid_next: its UIDNEXT, 0: as it is (a Maildir's
 * always). False: it has had one since, or it failed, and all is as it was. */
bool validity_set(struct mailbox *, uint32_t uid_validity, uint32_t uid_next);

#endif
