#include "program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "metrics.h"

static void usage(const char *name)
{
    fprintf(stderr, "usage: %s [-c dovelane.conf] [-n node] [-t] [-V]\n", name);
    exit(2);
}

void program_start(struct program *p, const char *name, bool node_needed, int argc, char **argv)
{
    bool only_check = false;
    int o;
    *p = (struct program){.name = name, .config_path = "/etc/dovelane/dovelane.conf"};
    while ((o = getopt(argc, argv, "c:n:tV")) != -1) {
        switch (o) {
        case 'c': p->config_path = optarg; break;
        case 'n': p->node = optarg; break;
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
        fprintf(stderr, "%s: -n is needed: the name of the node it works for\n", name);
        exit(2);
    }
    if (p->node && config_node_index(p->config, p->node) < 0) {
        fprintf(stderr, "%s: -n %s: %s has no node of that name\n", name, p->node, p->config_path);
        exit(2);
    }
    if (only_check) {
        printf("%s: %s is good\n", name, p->config_path);
        exit(0);
    }
    signal(SIGPIPE, SIG_IGN);
    if (log_open(name, p->config->log, (enum log_level)p->config->log_level) < 0) {
        fprintf(stderr, "%s: log = %s: %s\n", name, p->config->log, strerror(errno));
        exit(2);
    }
    if (metrics_serve(p->config->metrics_socket, name) < 0)
        log_fatal("metrics_socket = %s: %s", p->config->metrics_socket, strerror(errno));
}
