/* sockets - whether a service of master.cf is set to use a UNIX socket of ours. */
#ifndef DOVELANE_LIB_POSTFIX_SOCKETS_H
#define DOVELANE_LIB_POSTFIX_SOCKETS_H

#include <stdbool.h>

#include "lib/postfix/postconf.h"

/* True when a list ("unix:dovelane/milter.sock, { inet:localhost:11332, ... }") names the file,
 * whatever way leads to it: below queue_directory, in a chroot, by links or "..". Also when it ends
 * in the same directory and name, since a container may see it elsewhere. */
bool sockets_named(const struct postconf *, const struct postconf_service *, const char *list,
                   const char *socket);

#endif
