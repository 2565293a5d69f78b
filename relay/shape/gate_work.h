/* gate_work - what the files of this room share. */
#ifndef DOVELANE_RELAY_SHAPE_GATE_WORK_H
#define DOVELANE_RELAY_SHAPE_GATE_WORK_H

#include "lib/shape/backoff.h"
#include "relay/shape/arbiter.h"
#include "relay/shape/bucket.h"
#include "relay/shape/gate.h"
#include "relay/shape/slots.h"

struct shape_control {
    struct relay *relay;
    const struct shape_calls *calls;
    struct shapes *shapes;
    bool any; /* there are rules */
    char *said;
    struct backoff_rules *backoff; /* NULL: no next hop has wanted it, or it cannot be read */
    bool unread;                   /* that, and the log says so */
    struct arbiters *arbiters;
};

#define GATE_WHY 200

struct gate {
    struct destination *head;
    struct shape shape;
    struct bucket *bucket; /* NULL: there was never a rate */
    struct slots *slots;   /* NULL: connections were never counted, nor replies looked at */
    /* what the next hop asked for, by what it said to some relay of the group */
    struct {
        double value;
        double until; /* clock_monotonic; 0: nothing */
    } backoff[BACKOFF_KINDS];
    bool shut;
    char why[GATE_WHY]; /* while it is shut */
    bool suspended;     /* by an admin */
    double resumed;     /* clock_monotonic: since then it is not; 0: it was never seen to be */
    ev_timer change;    /* then something begins or ends by time */
};

/* NULL: no rule holds for any next hop, or it is a port of our own Postfix. */
struct gate *gate_of(struct destination *);

/* The rules, or the time, are others: looks at all that follows from them. Of a head. */
void gate_refresh(struct destination *);

/* reply.c: the config was read again, and maybe names another file. */
void reply_rules_reload(struct shape_control *);

/* backoff_state.c: whether that kind counts now, and its value. */
bool backoff_now(const struct gate *, enum backoff_kind, double *value_r);
/* Some relay heard it: counts for so long from now, at least. True: it did not count before. */
bool backoff_begin(struct gate *, enum backoff_kind, double value, int64_t milliseconds);
/* Seconds until the next one ends; 0: none counts. */
double backoff_next_end(const struct gate *);

#endif
