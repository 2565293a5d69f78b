/* bridge - a libev loop inside Dovecot's ioloop: lib/redis/wire and lib/redis/node are used as they
 * are.
 *
 * The libev loop's epoll descriptor is an io of the ioloop, so what comes from outside is seen at
 * once. libev gives neither this descriptor nor the time when its next timer is due. The loop says
 * both itself: it is run as if it could wait, and the epoll_wait() that it calls is ours
 * (bridge.c). A libev that calls another one is looked at every few ms. Its descriptor is the
 * lowest that was free when the loop was made: no other thread may open any meanwhile. Timers are
 * some 2 ms late at most; between them, and while nothing comes from outside, this process sleeps.
 *
 * ev_async does not wake this loop: libev only writes for it while the loop itself waits. Use a
 * descriptor. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_BRIDGE_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_BRIDGE_H

struct ev_loop;
struct bridge;

/* Makes the loop; errors are fatal. */
struct bridge *bridge_open(void);
struct ev_loop *bridge_loop(struct bridge *);
/* From now on the loop runs as a part of current_ioloop. */
void bridge_start(struct bridge *);
/* Call it after starting a watcher or timer outside the loop's own callbacks: else the loop may see
 * it only when something else wakes it. Returns at once. */
void bridge_wake(struct bridge *);
/* Ends the loop, too. */
void bridge_close(struct bridge **);

#endif
