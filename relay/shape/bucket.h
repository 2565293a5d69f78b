/* bucket - our part of a group's rate to one next hop.
 *
 * The tokens of the rate lie in a key of the arbiter's Redis, and fill up by its clock
 * (dovelane.bucket:<next hop>). A relay fetches the tokens that it can use at once, for mails that
 * are in flight and wait. It books those of the next moments. So what a relay takes away when it
 * dies is one mail, or what leaves in a fifth of a second. Who asks first is first: relays that
 * wait have their turns. */
#ifndef DOVELANE_RELAY_SHAPE_BUCKET_H
#define DOVELANE_RELAY_SHAPE_BUCKET_H

#include <ev.h>

#include "relay/shape/arbiter.h"

struct bucket;

/* What holds now; rate and byte_rate 0: no bound. */
struct bucket_rates {
    double rate, burst, byte_rate, byte_burst;
};

/* What waits for tokens now: mails, and all their bytes. */
struct bucket_need {
    size_t mails;
    double bytes;
};

struct bucket_calls {
    void (*need)(void *arg, struct bucket_need *out);
    void (*filled)(void *arg); /* there are tokens, or it is worth asking again */
};

/* The name is copied. */
struct bucket *bucket_open(struct relay *, struct arbiters *, const char *destination,
                           const struct bucket_calls *, void *arg);
void bucket_close(struct bucket *);

void bucket_set(struct bucket *, const struct bucket_rates *);

/* Whether a mail may leave. False: tokens are fetched, and filled is called. */
bool bucket_opens(struct bucket *);
/* The same, or one may leave in a moment: it is worth to open a connection. */
bool bucket_opens_soon(struct bucket *);
/* It left. */
void bucket_passed(struct bucket *, size_t bytes);

#endif
