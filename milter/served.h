/* served - who may connect to milter_socket. */
#ifndef DOVELANE_MILTER_SERVED_H
#define DOVELANE_MILTER_SERVED_H

#include <stdbool.h>

#include "lib/config/config.h"

/* Whether who connected may. */
bool served(int fd);
void served_find_postfix(const struct config *);

#endif
