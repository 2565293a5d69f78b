/* process_handover - SIGUSR1: a new process of the same program, with the file as it is now, takes
 * the socket over. This one serves its sessions to their end.
 *
 * Reload and upgrade are the same thing. Postfix keeps a milter connection per SMTP session, and a
 * session whose milter goes away is answered 4xx to its end. To the proxy it connects for each
 * mail.
 *
 *    old    -t (a bad file or program is logged, and nothing happens)
 *     │     starts ─────▶ new    connects to the nodes; binds a socket beside the old one, renames it over the old one's path
 *     │     ◀── ready ─────┘     new sessions go there
 *     ▼     leaves after its last connection, its last session and its last owed revocation */
#ifndef DOVELANE_LIB_INGRESS_PROCESS_HANDOVER_H
#define DOVELANE_LIB_INGRESS_PROCESS_HANDOVER_H

#include <stdbool.h>

#include "lib/daemon/listener.h"
#include "lib/store/store.h"

/* Blocks SIGUSR1 in this thread and those it starts. Before the first thread. */
void handover_prepare(char **argv);

/* True in a process that takes over from one that still serves. */
bool handover_takes_over(void);

/* In such a process, before it takes the socket: turns the loop until the store can store, for five
 * seconds at most. So the first mails do not find its nodes unconnected. Not longer: the old one
 * cannot store either, perhaps. stop: looked at between two turns; true ends the wait. */
void handover_await(struct ev_loop *, struct store *, const bool *stop);

/* The socket is ours: tells the process before, if there is one, and the service manager; from now
 * on this process can be followed itself. From here on it also sends the service manager's watchdog
 * its signs of life, as long as the loop turns. sessions says how many are left; it is called from
 * a thread of its own. */
void handover_ready(struct store *, struct listener *, long long (*sessions)(void));

#endif
