/* depth - how many entries wait in each next hop's lanes, and since when, by what the nodes said
 * last (depth_watch.h asks them).
 *
 * The copies of an entry lie in lanes of one name, at all its owners. Of a name the largest lane
 * counts, so each entry counts once, and an owner that is lost or came back empty makes nothing
 * less. What this process is storing, or has stored since the last answer of a round of questions,
 * counts on top. Of what was stored while the answer was under way nothing counts twice, and some
 * of it counts only from the next round on. A node that was not heard for DEPTH_KEEP counts no
 * more. No clock is read here: `now` is seconds that never jump, and go on while the host is
 * suspended. */
#ifndef DOVELANE_LIB_INGRESS_DEPTH_H
#define DOVELANE_LIB_INGRESS_DEPTH_H

#include <stdbool.h>
#include <stddef.h>

#define DEPTH_KEEP 5. /* seconds */

struct depth;

struct depth *depth_new(size_t nnodes);
void depth_free(struct depth *);

/* ---- what the nodes say: one thread's ---- */

/* One lane of the answer that is being heard from that node; the answer's n-th, from 0. False: the
 * name is not that of a mail lane, and is left out. */
bool depth_lane(struct depth *, size_t node, const char *name, size_t len, long long entries);
size_t depth_lanes(const struct depth *, size_t node);
/* For the n-th lane of that answer: its name, and the next hop and class ("": none) in it. They
 * are the depth's, until the answer ends. */
struct depth_name {
    const char *lane, *destination, *class;
    size_t len; /* of the lane's name */
};
struct depth_name depth_name(const struct depth *, size_t node, size_t n);
/* Since when its oldest entry waits. */
void depth_oldest(struct depth *, size_t node, size_t n, double since);
/* The answer is complete; or it never will be, and what that node said before counts on. */
void depth_heard(struct depth *, size_t node, double now);
void depth_broken(struct depth *, size_t node);

/* The round ends: what the nodes said counts from now on. */
void depth_end(struct depth *, double now);

/* ---- what is there: from any thread ---- */

struct depth_is {
    long long entries;
    long long unlisted; /* of them, those that only this process knows of by now */
    double oldest;      /* seconds that its oldest entry has waited; 0 when that is not known */
};
/* class: NULL for all of the next hop's, "" for what has none. False: it is not known now. */
bool depth_of(struct depth *, const char *destination, const char *class, double now,
              struct depth_is *);

/* An entry is about to be stored; it is over, and was stored or not. */
void depth_storing(struct depth *, const char *destination, const char *class);
void depth_over(struct depth *, const char *destination, const char *class, bool stored);

#endif
