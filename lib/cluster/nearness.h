/* nearness - how far a node is, in classes of round-trip time. Pure.
 *
 * The shortest of the last NEARNESS_SAMPLES answers counts: one that waited for a busy program or
 * server says nothing of the way. Classes grow by half. A node changes its class only when its time
 * has left it by a quarter, so that two nodes do not change places for nothing. */
#ifndef DOVELANE_LIB_CLUSTER_NEARNESS_H
#define DOVELANE_LIB_CLUSTER_NEARNESS_H

#define NEARNESS_SAMPLES 16
#define NEARNESS_UNKNOWN 1000 /* the class of one that never answered */

/* {0} at first. */
struct nearness {
    double sample[NEARNESS_SAMPLES]; /* seconds */
    unsigned long n;                 /* samples that there were */
    int rank;                        /* its class; of no meaning while n is 0 */
};

void nearness_add(struct nearness *, double seconds);
/* Seconds; negative: not known. */
double nearness_rtt(const struct nearness *);
/* 0: the nearest. NEARNESS_UNKNOWN: not known */
int nearness_class(const struct nearness *);

/* A time that follows the way: `least`, or so many round trips and `more` where that is longer,
 * but no longer than `most`. Seconds. */
struct far_time {
    double least, most; /* equal: it does not follow */
    double trips, more;
};

/* A round trip counts as the longest of its class, so the time stays while the class does. With a
 * way that is not known: least. */
double nearness_time(const struct nearness *, const struct far_time *);
/* The same for a way that was measured once; negative: not known. */
double far_time_at(const struct far_time *, double rtt);

#endif
