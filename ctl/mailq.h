/* mailq - items as Postfix prints them. */
#ifndef DOVELANE_CTL_MAILQ_H
#define DOVELANE_CTL_MAILQ_H

#include <jansson.h>

#include "ctl/queue.h"

void mailq_print(const struct queue *); /* as postqueue -p */

#endif
