/* listener - the UNIX socket on which Postfix reaches a program. It takes the path without a moment
 * in which nobody listens there, accepts connections on a loop, and gives the path back.
 *
 * A path is free when nothing is there, or a socket on which nobody listens: that one is
 * replaced. One whose queue of connections is full has a process that listens, too. A process
 * that was killed listens until its last thread is gone: so the path is waited for, three
 * seconds. */
#ifndef DOVELANE_LIB_DAEMON_LISTENER_H
#define DOVELANE_LIB_DAEMON_LISTENER_H

#include <ev.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/mem.h"

struct listener; /* is there until the process ends */

struct listener_options {
    struct ev_loop *loop;
    const char *setting; /* "milter_socket": what errors and log lines call it. Must stay */
    const char *path;
    gid_t group; /* of the socket; (gid_t)-1: this process' own */
    mode_t mode;
    /* somebody else listens and takes the connections: 0, or -1 with errno. NULL: this does */
    int (*bind_at)(const char *path);
    /* who listens there is the process before this one (process_handover.h): it keeps the
     * connections that it has, new ones come here */
    bool replace;
    void (*take)(int fd); /* a connection, non-blocking; it is the callee's */
    /* false: no connection is taken now, they wait in the socket's queue. NULL: there always is */
    bool (*has_room)(void);
};

/* NULL with *error_r (malloc'd: setting, path, reason, way out); what is at the path is as it
 * was then. */
struct listener *listener_open(const struct listener_options *, char **error_r);

/* What -t can tell of it before: NULL, or why no socket can be at the path (malloc'd, as above).
 * Directories below /run are made when the unit starts (RuntimeDirectory), so they are not
 * missed. */
char *listener_check(const char *setting, const char *path);

/* The end, in which nobody who is connected is turned away. The socket is removed if it is still
 * this one. Who connects from now on is refused, and those in its queue are still taken. From any
 * thread. Again: nothing. NULL: nothing. */
void listener_leave(struct listener *);

/* All that comes with that: take() was called for the last one. From any thread. True for NULL. */
bool listener_left(const struct listener *);

/* Sends what a connection takes now; its watcher `writing` is active as long as something is
 * left. False: the connection is lost. */
bool listener_send(struct ev_loop *, ev_io *writing, struct buf *out);

/* One descriptor for each connection: from now on this process may have as many as it is allowed
 * to (the hard limit). How many that are. */
unsigned long long listener_descriptors(void);

#endif
