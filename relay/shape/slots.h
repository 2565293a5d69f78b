/* slots - our part of the connections that a group may have to one next hop, and what the next hop
 * asked a group for (lib/shape/backoff.h).
 *
 * Both are in keys of the arbiter's Redis (dovelane.bucket:<next hop>:connections, ...:backoff).
 * They are asked for once a second while the next hop has mail, and when more connections are
 * wanted. */
#ifndef DOVELANE_RELAY_SHAPE_SLOTS_H
#define DOVELANE_RELAY_SHAPE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/shape/arbiter.h"
#include "lib/shape/backoff.h"

#define BACKOFF_KINDS (BACKOFF_CONNECTIONS + 1)

struct slots;

struct slots_calls {
    /* connections that there are, and how many there would be if they could. False: there is no
     * mail for it, and no connection */
    bool (*need)(void *arg, size_t *held_r, size_t *wanted_r);
    void (*changed)(void *arg); /* how many there may be */
    /* what some relay heard, and for how many milliseconds more it counts */
    void (*backoff)(void *arg, enum backoff_kind, double value, int64_t left);
};

/* The name is copied. */
struct slots *slots_open(struct relay *, struct arbiters *, const char *destination,
                         const struct slots_calls *, void *arg);
void slots_close(struct slots *);

/* most: of the whole group; 0: no bound. backoff: what others heard is asked for. */
void slots_set(struct slots *, int64_t most, bool backoff);

/* How many this relay may have. Without a bound: SIZE_MAX. */
size_t slots_may(const struct slots *);

/* There is mail for it, or more connections are wanted than there may be: asked soon. */
void slots_want(struct slots *);

/* The others are told. */
void slots_tell(struct slots *, enum backoff_kind, double value, int64_t milliseconds);

#endif
