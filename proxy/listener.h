/* listener - the UNIX socket on which Postfix reaches the proxy. Whoever else connects (by the kernel's word: SO_PEERCRED) is not served. */
#ifndef DOVELANE_PROXY_LISTENER_H
#define DOVELANE_PROXY_LISTENER_H

#include <stdbool.h>

/* A stale socket is replaced; one on which somebody answers is an error, unless replace is wanted: then new connections come here from now on. Returns false
 * after logging why. */
bool listener_open(const char *path, const char *user, bool replace);

/* No more connections; removes the socket if it is still ours. */
void listener_close(void);

#endif
