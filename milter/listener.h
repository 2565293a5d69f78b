/* listener - the milter's socket: takes what connects, and makes a session of it. */
#ifndef DOVELANE_MILTER_LISTENER_H
#define DOVELANE_MILTER_LISTENER_H

#include <stdbool.h>

/* Binds and accepts on milter.loop. A stale socket is replaced; one on which somebody answers is an error, unless replace is wanted: then new sessions come here from
 * now on, and those of before stay where they are. Returns false after logging why. */
bool listener_open(const char *path, const char *group, bool replace);

/* No more are accepted; removes the socket if it is still ours. */
void listener_close(void);

#endif
