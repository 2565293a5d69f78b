/* lanes - the lanes of the own node that were heard of, and which of them are ours. */
#ifndef DOVELANE_RELAY_LANES_H
#define DOVELANE_RELAY_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "lanename.h"
#include "ownership.h"
#include "relay.h"

struct entry;
struct destination;
TAILQ_HEAD(entry_queue, entry);

struct lane {
    struct lane *next;        /* in the table's bucket */
    TAILQ_ENTRY(lane) beside; /* in its destination's list */
    char *name;
    size_t name_len;
    struct lanename parsed; /* nowners = 0: not named by our rule */
    enum ownership ownership;
    size_t place;                    /* owners before us: more than 0 is a takeover */
    struct destination *destination; /* NULL unless ours, and to a next hop that we can reach at all */

    bool waiting; /* has, or may have, entries to take */
    unsigned
        told;    /* how often we heard that: an empty TAKE proves nothing when it was sent before the last */
    bool taking; /* a TAKE is under way */
    size_t in_hand;
    size_t commands; /* META, ACK and NACK under way */

    /* for owners.c: entries whose META or ACK leaves at the end of this turn of the loop */
    bool listed;
    TAILQ_ENTRY(lane) list;
    struct entry_queue metas, acks;
};

struct lanes *lanes_open(struct relay *);
void lanes_close(struct lanes *);

/* The server says that the lane has something to take. */
void lanes_told(struct relay *, const char *name, size_t len);

/* The config was read again: what is ours now? Lanes that are ours no more take nothing; what waits of them
 * goes back. */
void lanes_judge(struct relay *);

#endif
