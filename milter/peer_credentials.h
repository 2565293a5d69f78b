/* peer_credentials - who may connect to milter_socket. */
#ifndef DOVELANE_MILTER_PEER_CREDENTIALS_H
#define DOVELANE_MILTER_PEER_CREDENTIALS_H

#include <stdbool.h>

#include "lib/config/config.h"

/* Whether who connected may. */
bool peer_may_connect(int fd);
void peer_find_postfix(const struct config *);

#endif
