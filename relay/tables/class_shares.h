/* class_shares - who is next among classes of mail that wait for one next hop, weighted fair
 * (docs/classes.md). Pure: it knows neither mails nor lanes.
 *
 * Each class has a time of its own, which goes on by 1/weight with each mail of it. The class with
 * the least time is next. A class that comes anew, or again, begins at the time of the last one
 * that was chosen. What it did not use while nothing of it waited is gone, and it owes nothing.
 * (Start- time fair queueing of Goyal et al., with mails for packets.) */
#ifndef DOVELANE_RELAY_TABLES_CLASS_SHARES_H
#define DOVELANE_RELAY_TABLES_CLASS_SHARES_H

#include <stddef.h>

/* Classes are numbers below this; sets of them are masks of 1 << class. */
#define CLASS_SHARES_MOST 32

struct class_shares {
    double now;
    double used[CLASS_SHARES_MOST]; /* the time of each */
    unsigned waited;                /* at the last choice */
};

/* weight: of each class of the set, above 0. The class that is next, of a set that is not empty. */
unsigned class_shares_next(struct class_shares *, unsigned waiting, const double *weight);

/* A mail of it left. */
void class_shares_took(struct class_shares *, unsigned class, const double *weight);

/* How much of `most` a class may have, when those classes want some: at least 1, if most is. */
size_t class_shares_part(size_t most, unsigned class, unsigned wanting, const double *weight);

#endif
