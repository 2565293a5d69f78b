#include "lib/daemon/program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/base/program_name.h"
#include "lib/base/std_streams.h"
#include "lib/redis/endpoint.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/daemon/metrics_http.h"

static void usage(const char *name)
{
    fprintf(stderr, "usage: %s [-c dovelane.conf] [-n node] [-t] [-V]\n", name);
    exit(2);
}

int program_log(const struct config *c, const char *name)
{
    char tag[128];
    snprintf(tag, sizeof tag, "%s%s%s", c->syslog_name, *c->syslog_name ? "/" : "", name);
    log_as_json(c->log_format == LOG_FORMAT_JSON);
    char *where = endpoint_file_of(c->log, name);
    int r = log_open(tag, where, (enum log_level)c->log_level);
    int failed = errno;
    free(where);
    errno = failed;
    return r;
}

void program_start(struct program *p, const char *name, bool node_needed, program_check *check,
                   int argc, char **argv)
{
    bool only_check = false;
    std_streams_keep();
    /* Other programs of this user, and of one of them that was broken into, cannot look into its
     * memory, nor at its files by /proc. */
    prctl(PR_SET_DUMPABLE, 0);
    program_name_set(name);
    int o;
    *p = (struct program){.name = name, .config_path = "/etc/dovelane/dovelane.conf"};
    while ((o = getopt(argc, argv, "c:n:tV")) != -1) {
        switch (o) {
        case 'c': p->config_path = optarg; break;
        /* the units say -n ${DOVELANE_NODE}, which is empty on a host without a node */
        case 'n': p->node = *optarg ? optarg : NULL; break;
        case 't': only_check = true; break;
        case 'V': printf("%s " DOVELANE_VERSION "\n", name); exit(0);
        default: usage(name);
        }
    }
    if (optind != argc)
        usage(name);
    char *error = NULL;
    p->config = config_read(p->config_path, &error);
    if (!p->config) {
        fprintf(stderr, "%s: %s\n", name, error);
        exit(2);
    }
    if (node_needed && !p->node && !only_check) {
        fprintf(stderr,
                "%s: -n is needed: the name of the node it works for (with the units: after "
                "DOVELANE_NODE= in /etc/default/dovelane)\n",
                name);
        exit(2);
    }
    if (p->node && config_node_index(p->config, p->node) < 0) {
        fprintf(stderr,
                "%s: -n %s: %s has no node of that name: write its section, or its right name "
                "after DOVELANE_NODE= in /etc/default/dovelane\n",
                name, p->node, p->config_path);
        exit(2);
    }
    if (only_check) {
        error = endpoint_check(p->config);
        if (!error && check)
            error = check(p->config);
        if (!error)
            error = metrics_http_check(p->config, name);
        if (error) {
            fprintf(stderr, "%s: %s: %s\n", name, p->config_path, error);
            exit(2);
        }
        printf("%s: %s is good\n", name, p->config_path);
        exit(0);
    }
    signal(SIGPIPE, SIG_IGN);
    log_node(p->node);
    if (program_log(p->config, name) < 0) {
        fprintf(stderr, "%s: log = %s: %s\n", name, p->config->log, strerror(errno));
        exit(2);
    }
}

void program_metrics(const struct program *p)
{
    if (metrics_serve(p->config->metrics_socket, p->name) < 0)
        log_fatal("metrics_socket = %s: %s", p->config->metrics_socket, strerror(errno));
}

struct listener *program_listen(const struct program *p, const struct listener_options *o)
{
    char *error = NULL;
    if (metrics_bind(p->config->metrics_socket, p->name) < 0)
        log_fatal("metrics_socket = %s: %s", p->config->metrics_socket, strerror(errno));
    struct listener *l = listener_open(o, &error);
    if (!l) {
        metrics_drop();
        log_fatal("%s", error);
    }
    if (metrics_begin() < 0)
        log_error("metrics_socket = %s: %s", p->config->metrics_socket, strerror(errno));
    return l;
}
