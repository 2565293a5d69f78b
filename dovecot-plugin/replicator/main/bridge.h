/* bridge - a libev loop inside Dovecot's ioloop, so that lib/wire and lib/node are used as they are.
 *
 * The libev loop's epoll descriptor is an io of the ioloop: what comes from outside is seen at once. libev tells neither
 * this descriptor nor when its next timer is due. So the descriptor is found as the lowest free one when the loop is made
 * (and checked to be one), and the loop is also asked every BRIDGE_TICK_MSECS: that is how late a timer may be. */
#ifndef REPLICATOR_MAIN_BRIDGE_H
#define REPLICATOR_MAIN_BRIDGE_H

struct ev_loop;
struct bridge;

#define BRIDGE_TICK_MSECS 10

/* Makes the loop; errors are fatal. */
struct bridge *bridge_open(void);
struct ev_loop *bridge_loop(struct bridge *);
/* From now on the loop runs as a part of current_ioloop. */
void bridge_start(struct bridge *);
/* Ends the loop, too. */
void bridge_close(struct bridge **);

#endif
