/* queue_stream - the mails in all lanes of all nodes that answer, one after the other, lane by
 * lane. In memory are a page of 500 at a time, and some 16 bytes for each mail of the lane that is
 * read. By these a mail's second copy is known. */
#ifndef DOVELANE_CTL_QUEUE_STREAM_H
#define DOVELANE_CTL_QUEUE_STREAM_H

#include "ctl/queue.h"

/* Calls each for every mail once, with the copies that there are at that moment; the item is freed
 * after it. What comes or goes meanwhile may be missing. A node that fails is closed, named on
 * stderr, and status is 1. */
void queue_stream(struct ctl *, void (*each)(struct item *, void *arg), void *arg);

#endif
