/* lost_lanes - which lanes lost one of their owners for good, and which nodes take its place. */
#ifndef DOVELANE_RELAY_REPAIR_LOST_LANES_H
#define DOVELANE_RELAY_REPAIR_LOST_LANES_H

#include "lib/mail/lanename.h"
#include "relay/relay.h"
#include "relay/repair/backfill.h"
#include "relay/tables/lanes.h"

struct lane_scan;

/* A lane that one of its owners is lost of. */
struct lost_lane {
    struct lost_lane *next;
    char *name, *to_name;
    size_t len, to_len;
    char *lost;                                 /* for the log */
    size_t nowners, owner[LANENAME_OWNERS_MAX]; /* of the new lane: indexes */
    /* of an ordered destination: it is copied as a whole, and nothing is taken from it
     * meanwhile. NULL: it is not */
    struct lane *ordered;
    /* ordered: something of it is young or in flight, so that nothing is copied now */
    bool unfit;
    struct missing_entry *wanted;
    size_t n, size, at, place;
    size_t moved;
    bool skipped; /* a mail of it is too large for the time that there is */
};

struct lost_lanes {
    struct relay *relay;
    struct lost_lane *first; /* what is left to do */
    struct lane_scan *scan;
    struct aside *asides;
    bool said; /* that some stay on fewer nodes */
    /* All are listed; or why not. */
    void (*listed)(const char *trouble, void *arg);
    void *arg;
};

/* Lists those that are served here, from the own server. */
void lost_lanes_list(struct lost_lanes *, struct wire *own);
/* Ends it: what is listed is forgotten, and nothing is called any more. */
void lost_lanes_close(struct lost_lanes *);
/* Takes the first one off, and frees it. */
void lost_lanes_drop(struct lost_lanes *);
void lost_lanes_clear(struct lost_lanes *);

/* The first one is not listed again for a while. why: for the log. */
void lost_lanes_set_aside(struct lost_lanes *, const char *why);
void lost_lanes_forget_asides(struct lost_lanes *);

/* All the others are alive and together with us, and all of them, and we, are whole for these
 * owners: like for new mail. */
bool lost_lane_fits(const struct lost_lanes *, const struct lost_lane *);
/* False: who was lost came back. */
bool lost_lane_is_lost(const struct lost_lanes *, const struct lost_lane *);

/* No mail of it is being delivered, and nothing is on its way that could begin with one. */
static inline bool lane_is_quiet(const struct lane *lane)
{
    return !lane->in_flight && !lane->taking && !lane->commands;
}

#endif
