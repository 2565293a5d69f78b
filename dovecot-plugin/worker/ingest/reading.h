/* reading - which sites have read their mailboxes. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_READING_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_READING_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

struct peer;
struct session;

/* A site's state is new, and it has not said yet that it has read its mailboxes. What is not known
 * of it may be there. */
bool peers_are_reading(struct session *);
/* Milliseconds after which none is believed to read any more, whatever it says; 0: none is. */
uint64_t peers_read_within(struct session *);
/* A site may have had a mailbox for long without a word of it here: one is reading, or did not
 * answer this new state. Of a mailbox that never had a mail nothing is said then. */
bool peers_may_know_older(struct session *);
/* All is looked at when that is over. */
void wait_for_peers(struct session *);
/* To those who wait for that word and have confirmed what was read. */
int peers_say_read(struct session *);
int peer_is_reading(struct session *, struct peer *); /* its answer says so */
/* *over_r: nobody reads any more, so all mailboxes are to be looked at. */
enum frame_result reading_parcel(struct session *, struct peer *, struct text body, bool *over_r);

#endif
