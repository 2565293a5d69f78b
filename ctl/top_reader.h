/* top_reader - asks all servers once a second, each on a connection of its own (wire.h), and tells
 * the model. A server that does not answer holds up nothing: it is asked again when it has
 * answered, or its connection is made anew. */
#ifndef DOVELANE_CTL_TOP_READER_H
#define DOVELANE_CTL_TOP_READER_H

#include <ev.h>

#include "ctl/top_model.h"

struct top_reader;

/* Connects at once, and asks as soon as a connection is there. */
struct top_reader *top_reader_open(struct ev_loop *, struct top *);
void top_reader_close(struct top_reader *);

/* Asks every server that has answered what it was asked before. */
void top_reader_ask(struct top_reader *);

/* How often the server has answered all that it was asked at once. */
unsigned long top_reader_rounds(const struct top_reader *, size_t server);

#endif
