/* ending - processes of workers that main is done with.
 *
 * A user can stop a process that has his id (SIGSTOP), behind its last word, too. It counts in the
 * process_limit of Dovecot's service until the kernel's timer ends it (worker/session/link.c). So
 * main ends its own half of the connection only, and waits for the end of the other half. The
 * worker never closes that one; its exit does. Until then its user gets no other worker, and counts
 * as one who has one.
 *
 * An end takes some milliseconds. Where it takes long, the user is judged as one whose worker does
 * not answer. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_ENDING_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_ENDING_H

#include "dovecot-plugin/replicator/users/user.h"

struct endings *endings_open(struct replicator *);
void endings_close(struct endings *);

/* Takes the descriptor. No worker has that user any more; NULL: it had no user open. judged: he is
 * slow already, because this worker did not answer. Then it does not matter how long its process
 * stays. */
void endings_add(struct endings *, int fd, struct user *, bool judged);
size_t endings_count(const struct endings *); /* those that may still end */

#endif
