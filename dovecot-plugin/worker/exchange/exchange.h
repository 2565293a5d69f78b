/* exchange - with the peers: own ops to them, exchanges of states, UID rounds. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_EXCHANGE_EXCHANGE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_EXCHANGE_EXCHANGE_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

struct peer;
struct session;

/* --- send_ops.c ------------------------------------------------------------------------------- */

#define OUTBOX_MOST (8 * 1024 * 1024) /* bytes of batches for one question, and one more of them */
/* from: of NEW, what was sent from there on is to be sent again; 0: nothing. Of CONFIRMED, 1:
 * one batch; 0: all. */
int ship(struct session *, uint64_t site, enum frame_ship how, uint64_t from);
int send_new_ops(struct session *); /* to all */

/* --- peer.c ----------------------------------------------------------------------------------- */

/* Rows that every peer has are dropped; a forgotten one will exchange (F38). Inside a
 * transaction. */
int peer_drop_confirmed(struct session *);
void peer_drop_exchange(struct session *, struct peer *);
void peer_asked(struct session *, struct peer *); /* an answer is awaited from now on */
/* Of a new state: main does not know it, and wants all asked whenever the user was opened. */
bool peer_has_answered(const struct session *, const struct peer *);
int peer_ask(struct session *, uint64_t site); /* begins an exchange */
/* The same when main asks: a new state asks nobody again who has answered it. */
int peer_exchange(struct session *, const struct peer *);
/* One is asked, or (NULL) all are: from now on a new state waits for those that have not
 * answered. */
int peer_join(struct session *, const struct peer *);
void peer_join_waits(struct session *);   /* wants a TICK when that wait is over */
int peer_exchanges_run(struct session *); /* those that got no answer begin anew */

/* --- uid_rounds.c ----------------------------------------------------------------------------- */

/* Called when the UIDs of a folder were settled: the mailbox is to get them. */
typedef int settled_fn(struct session *);
int uid_rounds_run(struct session *, settled_fn *);
int uid_rounds_follow(struct session *);  /* those that came while mails lacked */
void uid_rounds_wanted(struct session *); /* asks for a TICK when a folder is dirty */
enum frame_result uid_rounds_parcel(struct session *, const struct frame_parcel *, settled_fn *);

/* --- uidnext_ask.c ---------------------------------------------------------------------------- */

/* The peer will be asked for the UIDNEXT of all mailboxes. In a transaction. */
int uidnext_ask_begin(struct session *, const struct peer *);
/* Where all mails are placed: asks those who have not answered. */
int uidnext_ask_run(struct session *);
/* 1: it answers such a question; 0: it does not; -1 */
int uidnext_ask_answered(struct session *, const struct frame_parcel *);

#endif
