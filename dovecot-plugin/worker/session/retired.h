/* retired - what is of a user of this name who was forgotten. It is a state, or a peer's word,
 * whose vector has one of the origins that main named (RETIRED). The rule:
 * docs/replication-protocol.md, "Users who are forgotten". */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_RETIRED_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_RETIRED_H

#include "dovecot-plugin/worker/session/session.h"

/* The open state is of one who was forgotten. */
bool retired_state(struct session *);
/* And nothing of it has been in a mailbox, nor anything of a mailbox in it. Ops that were in a lane
 * came before the word that he was forgotten. It can be made anew. */
bool retired_unused(struct session *);
/* The closed state's files go. */
void retired_remove(const char *state_path);
/* The peer's word is of a user who was forgotten. The peer is sent that, and nothing of its word is
 * taken. */
bool retired_parcel(struct session *, const struct frame_parcel *);
/* Main hears which origins the state has, where they are others than before. */
void retired_tell_origins(struct session *);

#endif
