/* lanes - the lanes of the own node that were heard of, and which of them are ours. */
#ifndef DOVELANE_RELAY_TABLES_LANES_H
#define DOVELANE_RELAY_TABLES_LANES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/queue.h"
#include "lib/mail/entryid.h"
#include "lib/mail/lanename.h"
#include "relay/cluster/config_ownership.h"
#include "relay/relay.h"

struct entry;
struct destination;
TAILQ_HEAD(entry_queue, entry);

/* Whether an ordered lane may be taken from: after what comes before it (ordered_lanes.h). */
enum lane_turn {
    TURN_NOT_ASKED,
    TURN_WAITS, /* for the next round of questions */
    TURN_ASKED, /* in the round that is under way */
    TURN_HAS    /* what comes before it is delivered */
};

struct lane {
    struct lane *next;        /* in the table's bucket */
    TAILQ_ENTRY(lane) beside; /* in its destination's list */
    char *name;
    size_t name_len;
    struct lanename parsed; /* nowners = 0: not named by our rule */
    enum ownership ownership;
    unsigned class; /* classes.h */
    size_t place;   /* owners before us: more than 0 is a takeover */
    /* NULL unless ours, and to a next hop that we can reach at all */
    struct destination *destination;

    bool waiting; /* has, or may have, entries to take */
    unsigned
        /* how often we heard that: an empty TAKE proves nothing when it was sent before the last */
        told;
    bool taking; /* a TAKE is under way */
    /* the last TAKE gave all that there was, most probably: the next one can wait (intake.h) */
    bool later;
    bool careful; /* has suspects (poison.h): its entries are taken one by one */
    size_t in_flight;
    size_t leaving;                  /* of these: acked or given back, and not answered yet */
    size_t retained, retained_bytes; /* of the table of retained.h */
    size_t commands;                 /* META, ACK and NACK under way */
    /* clock_boottime(): what lay here by then may come from a lane of a lost node
     * (rereplicate.h) */
    double moved_at;

    /* ordered_lanes.c's, for an ordered lane */
    struct ordered_lanes *ordered_lanes; /* that has it in one of its lists */
    enum lane_turn turn;
    /* the server was whole for its owners when it was last looked at */
    bool whole;
    bool turn_told;    /* that it waits for long */
    double turn_since; /* 0: it does not wait */
    TAILQ_ENTRY(lane) turn_link;
    /* lane_pause.c's */
    bool frozen; /* it is being copied to another owner (rereplicate.h) */
    bool paused;
    double paused_until;
    TAILQ_ENTRY(lane) pause_link;
    unsigned char head[ENTRYID_LEN]; /* the mail that was deferred at its head */
    double head_since;               /* 0: none was */

    /* MOVE is under way from it: what is read from it now may not be there any more */
    bool moving;
    bool marked; /* lanes_mark() */
    TAILQ_ENTRY(lane) mark_link;

    /* for owners.c: entries whose META or ACK leaves at the end of this turn of the loop */
    bool listed;
    TAILQ_ENTRY(lane) list;
    struct entry_queue metas, acks;
};

/* forget is called when a lane becomes ours, is ours no more, or ends. */
struct lanes *lanes_open(struct relay *, void (*forget)(struct lane *));
void lanes_close(struct lanes *);

/* The lane of that name, made known when it was not; never NULL. */
struct lane *lanes_get(struct relay *, const char *name, size_t len);

/* The server says that the lane has something to take. */
void lanes_told(struct relay *, const char *name, size_t len);

/* Judges of each lane anew whether it is ours. Lanes that are ours no more take nothing. */
void lanes_judge(struct relay *);

/* An admin's mark on an entry of the lane could not be obeyed now. The next lane with such an
 * entry, which is no more listed; NULL: there is none. */
void lanes_mark(struct relay *, struct lane *);
struct lane *lanes_marked(struct relay *);

#endif
