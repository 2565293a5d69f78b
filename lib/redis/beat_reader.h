/* beat_reader - which command reads the beats that a node's server has.
 *
 * LANE.BEATS reads and does nothing else. A server whose lane.so is of 0.1.0 does not know it, and
 * one whose users are from then refuses it. There LANE.BEAT without arguments answers the same.
 * Users may change at any time, both ways. */
#ifndef DOVELANE_LIB_REDIS_BEAT_READER_H
#define DOVELANE_LIB_REDIS_BEAT_READER_H

#include <stdbool.h>

/* Of one server; {0} at first. */
struct beat_reader {
    bool older;   /* LANE.BEAT is asked */
    bool refused; /* the other of the two was refused last */
};

const char *beat_reader_command(const struct beat_reader *);

/* What the server answered: error is the text of an error reply, NULL for any other reply. True
 * when the command has changed, and is to be asked at once. */
bool beat_reader_turns(struct beat_reader *, const char *error);

#endif
