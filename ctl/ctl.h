/* ctl - the admin's command `dovelane`. It speaks with every node's Redis itself, one request after
 * the other, and with Postfix by its own commands. Nothing of it runs when nobody has called it.
 *
 *   conn.h     a connection to each node        match_options.h    which mails: --sender, --age, ...
 *   queue.h    the mails in the lanes           commands  mailq.c show.c trace.c qshape.c verbs.c divert.c drain.c check.c capacity.c nodes.c
 *
 * Exit status of every command: 0 done. 1 done, but something needs the admin's eye (a node did not
 * answer, nothing matched). 2 not done (wrong usage, no node answers). */
#ifndef DOVELANE_CTL_CTL_H
#define DOVELANE_CTL_CTL_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/config/config.h"
#include "ctl/conn.h"

enum { STATUS_DONE, STATUS_LOOK, STATUS_FAILED };

struct ctl {
    const char *config_path;
    struct config *config;
    size_t nconns; /* one per node of the config, in its order */
    struct conn *conn;
    int status; /* the worst so far */
};

/* Commands get what stands behind their name; argv[0] is the name. They return nothing:
 * ctl->status is their answer. */
typedef void command_fn(struct ctl *, int argc, char **argv);

command_fn mailq_command, show_command, cat_command, qshape_command;
command_fn flush_command, hold_command, release_command, requeue_command, delete_command;
command_fn trace_command, divert_command, drain_command, check_command, capacity_command,
    nodes_command, acl_command, route_command, top_command, shape_command;

/* The long options of each; those of `change`: hold, release, flush, requeue, delete. */

extern const struct option mailq_options[], show_options[], qshape_options[], change_options[],
    check_options[], top_options[], nodes_options[], acl_options[], route_options[],
    capacity_options[], trace_options[], shape_options[];

/* Remembers the worse of the two. */
void ctl_status(struct ctl *, int status);

/* Says what is wrong on stderr and ends with 2. */
void ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Connects to every node; names those that do not answer on stderr (status 1) and ends with 2
 * when none does. */
void ctl_connect(struct ctl *);

/* The same, but neither that node nor those in `dead` are missed when they do not answer. */
void ctl_connect_without(struct ctl *, const char *node);

/* "" for one, else "s": "%zu mail%s". */
const char *ctl_s(unsigned long long n);

/* Who called: "root (uid 0, login alice)", malloc'd. The login is the one that the session began
 * with, whatever sudo made of it. */
char *ctl_caller(void);

/* One line into the log that the config names. */
void ctl_log(struct ctl *, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
