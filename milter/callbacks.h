/* callbacks - the milter protocol's edge: translates libmilter's callbacks into session and mail, and verdicts into its answers.
 * Nothing else includes libmilter, so that another engine can take its place. */
#ifndef DOVELANE_MILTER_CALLBACKS_H
#define DOVELANE_MILTER_CALLBACKS_H

#include <stdbool.h>

/* Registers with libmilter and opens the socket (a stale one is removed; one on which somebody answers is left alone and is an error). Returns false after
 * logging why. */
bool callbacks_open(const char *socket_path, const char *group);

/* Runs until SIGTERM, SIGINT or SIGHUP. Returns false when libmilter ended with an error. */
bool callbacks_run(void);

#endif
