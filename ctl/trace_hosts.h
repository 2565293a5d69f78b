/* trace_hosts - whose lines the logs of `dovelane trace` have. It has the hosts, by the names that
 * lines begin with. Where a program's own line says it, it has which node or replica a host is. */
#ifndef DOVELANE_CTL_TRACE_HOSTS_H
#define DOVELANE_CTL_TRACE_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "lib/config/config.h"

struct trace_host;
struct trace_named;

struct trace_hosts {
    size_t nhosts, nnamed;
    struct trace_host *host;
    struct trace_named *named;
};

void trace_hosts_free(struct trace_hosts *);

void trace_hosts_hear(struct trace_hosts *, const char *host, size_t len);
/* This host, and the node that it is, if its units say so. */
void trace_hosts_hear_own(struct trace_hosts *);
/* A line of a log. Dovecot's own logs name no host: the log's path stands for it. */
void trace_hosts_hear_line(struct trace_hosts *, size_t source, const char *path, const char *line,
                           size_t len);

/* Whether a host, a node or a replica of that name wrote one of the lines: a first label is
 * enough. */
bool trace_hosts_heard(const struct trace_hosts *, const char *name);

/* The node (or the replica) that writes as this host in this log, or NULL. */
const char *trace_hosts_name(const struct trace_hosts *, size_t source, const char *host,
                             bool replica);

/* A list of the hosts that wrote lines and may be any node: none is named so, and nothing said
 * which one it is. Of replicas: and of the logs whose lines name no host. */
json_t *trace_hosts_strangers(const struct trace_hosts *, const struct config *, bool replica);

#endif
