/* classes - the classes of mail (docs/classes.md) of this relay's lanes, as numbers, and what they
 * weigh at each next hop.
 *
 * A destination knows of classes when it has had a lane, or a mail, of one: without, all that is
 * here costs a comparison. */
#ifndef DOVELANE_RELAY_TABLES_CLASSES_H
#define DOVELANE_RELAY_TABLES_CLASSES_H

#include "relay/tables/class_shares.h"
#include "relay/tables/destinations.h"

struct destination_classes {
    double weight[CLASS_SHARES_MOST];
    unsigned turn; /* of the weights */
    /* its waiting line (waiting_line.h); class 0 waits in destination->queue */
    struct class_shares shares;
    struct mail_queue queue[CLASS_SHARES_MOST];
    unsigned waiting; /* classes with a mail there */
};

/* How much a class weighs at a next hop; class: NULL for mail without one. Above 0. */
typedef double class_weigh(const struct destination *, const char *class);

/* As the config's sections say; 1 for what has no section. */
double class_weight(const struct destination *, const char *class);

/* The weights are asked for when they are wanted, and again after classes_reload(). */
struct classes *classes_open(class_weigh *);
void classes_close(struct classes *);
void classes_reload(struct relay *);

/* A class's number; 0: none (NULL). In a relay's life there may be 30 names: what has another one
 * shares the last number, and weighs 1. */
unsigned classes_number(struct relay *, const char *class);

/* The destination gets mail of that class from now on. */
void classes_expect(struct destination *, unsigned class);

/* Of a destination that knows of classes: what each weighs now. Its own. */
const double *classes_weights(struct destination *);

#endif
