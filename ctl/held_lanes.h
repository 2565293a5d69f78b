/* held_lanes - lanes of several nodes, each once, with the entries of the copy that has most. */
#ifndef DOVELANE_CTL_HELD_LANES_H
#define DOVELANE_CTL_HELD_LANES_H

#include <stddef.h>

#include "lib/mail/lanename.h"

struct held_lane {
    struct held_lane *next;
    char *lane;
    size_t len;
    struct lanename name;
    long long entries; /* where there are most of them */
};

/* {0} at first. */
struct held_lanes {
    struct held_lane *first;
    void *tree; /* of the same, by name */
};

/* A copy of a lane. What is no name of a lane for mail is passed over. */
void held_lanes_add(struct held_lanes *, const char *lane, size_t len, long long entries);
void held_lanes_clear(struct held_lanes *);

#endif
