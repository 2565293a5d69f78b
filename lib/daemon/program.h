/* program - what the daemons' main functions share: options, config, log, metrics.
 *
 *   -c FILE  the config, default /etc/dovelane/dovelane.conf      -t  check it, and the files it names, and exit
 *   -n NODE  the node this program works for                      -V  print the version and exit */
#ifndef DOVELANE_LIB_DAEMON_PROGRAM_H
#define DOVELANE_LIB_DAEMON_PROGRAM_H

#include "lib/config/config.h"
#include "lib/daemon/listener.h"

struct program {
    const char *name; /* "dovelane-milter" */
    const char *config_path;
    const char *node; /* NULL: not given */
    struct config *config;
};

/* What -t looks at beyond the config itself: NULL, or what is wrong (malloc'd). */
typedef char *program_check(const struct config *);

/* Parses the options and opens the log. Does not return for -t, -V (exit status 0) and errors (exit
 * status 2, with a line on stderr). node_needed: -n must be given; when given, the node must be in
 * the config. check may be NULL. */
void program_start(struct program *, const char *name, bool node_needed, program_check *check,
                   int argc, char **argv);

/* metrics_socket is served from now on. */
void program_metrics(const struct program *);

/* The same with the socket on which Postfix reaches the program. A process that is refused there
 * leaves metrics_socket to the one that is at work. Does not return without either. */
struct listener *program_listen(const struct program *, const struct listener_options *);

/* Opens the log as the config says, also anew. -1 with errno. */
int program_log(const struct config *, const char *name);

#endif
