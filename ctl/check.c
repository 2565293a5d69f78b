/* dovelane check - reads the configurations of Postfix, Dovecot and of ourselves, and asks each
 * node; names every trap with the setting that mends it. Exit status as monitoring wants it: 0
 * good, 1 warnings, 2 critical. */
#include "ctl/check.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "ctl/out.h"

/* ---- our own file ---- */

static void check_ports(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    if (!*c->bounce_port)
        check_say(ctl, FINDING_WARNING, FOUND_BOUNCE_PORT_EMPTY, "config",
                  "bounce_port = \"127.0.0.1:10626\", and that port in master.cf (admin guide)",
                  "bounce_port is empty: what a next hop refuses for good stays in its lane, and "
                  "its sender gets no bounce");
    if (!*c->reinject_port)
        check_say(ctl, FINDING_WARNING, FOUND_REINJECT_PORT_EMPTY, "config",
                  "reinject_port = \"127.0.0.1:10627\", and that port in master.cf (admin guide)",
                  "reinject_port is empty: mail for a next hop that is away fills memory, and "
                  "there is no drain");
}

/* by_default: which the package makes. user: whose it must be otherwise. of: who needs it. */
static void check_directory(struct ctl *ctl, const char *setting, const char *path,
                            const char *by_default, const char *user, const char *of)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    char *directory = mem_strndup(path, slash > path ? (size_t)(slash - path) : 1);
    bool packaged = !strcmp(directory, by_default);
    char *mend =
        packaged ? mem_printf("systemd-tmpfiles --create, on hosts with a %s", of)
                 : mem_printf("install -d -o %s -g postfix -m 0750 %s, on hosts with a %s; or %s",
                              user, directory, of, setting);
    if (stat(directory, &st) < 0 ? errno == ENOENT || errno == ENOTDIR : !S_ISDIR(st.st_mode))
        check_say(ctl, FINDING_WARNING, FOUND_DIRECTORY_MISSING, "config", mend,
                  "%s, the directory of %s, is not there", directory, setting);
    free(mend);
    free(directory);
}

static void check_places(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    check_directory(ctl, "milter_socket", c->milter_socket, "/var/spool/postfix/dovelane",
                    "dovelane", "milter");
    if (*c->proxy_next) /* else there is none */
        check_directory(ctl, "proxy_socket", c->proxy_socket, "/var/spool/postfix/dovelane-proxy",
                        "dovelane-proxy", "proxy");
    if (access(c->state_directory, W_OK) < 0)
        check_say(ctl, FINDING_WARNING, FOUND_STATE_DIRECTORY, "config",
                  "systemd-tmpfiles --create, or run this as root",
                  "state_directory = %s cannot be written: a milter forgets `divert off` when it "
                  "and all nodes restart",
                  c->state_directory);
}

/* `dovelane init` made this file, and keeps its description of the group beside it: what is in
 * the group's part is changed by its commands. */
static bool in_group(const struct ctl *ctl)
{
    const char *slash = strrchr(ctl->config_path, '/');
    char *group =
        mem_printf("%.*sgroup", (int)(slash ? slash + 1 - ctl->config_path : 0), ctl->config_path);
    bool there = !access(group, F_OK);
    free(group);
    return there;
}

/* A newcomer's own word says by which name it is known: with the system's authorities anybody
 * has a certificate for one of his, and our programs bring it their passwords. */
static void check_authority(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    bool tls = false;
    for (size_t i = 0; i < c->nnodes; i++)
        tls |= !strcmp(c->node[i].tls, "yes");
    if (c->membership == MEMBERSHIP_LEARNED && tls && !*c->node_ca_file)
        check_say(ctl, FINDING_WARNING, FOUND_LEARNED_ANY_CA, "config",
                  "node_ca_file = \"/etc/dovelane/tls/ca.crt\", the authority of the nodes' "
                  "certificates and no other, on all hosts",
                  "membership = learned, and node_ca_file is empty: who can write one node's table "
                  "of nodes can make any server with a public certificate a node");
}

static void say_spread_unused(struct ctl *ctl, const char *about, long long least)
{
    check_say(ctl, FINDING_WARNING, FOUND_SPREAD_UNUSED, about,
              "spread_over = site or zone beside it, and that label in each node section; or take "
              "spread_least out",
              "spread_least = %lld counts the zones or sites that spread_over names, and it names "
              "node: all copies may be in one site",
              least);
}

/* What all have counts where a single destination has spread_over. */
static void check_spread_least(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    bool used = false;
    for (size_t i = 0; i <= c->ndestinations; i++) {
        const struct config_destination *d = i < c->ndestinations ? &c->destination[i] : &c->other;
        bool over = config_placement(c, d).over != SPREAD_OVER_NODE;
        char *about = mem_printf("destination \"%s\"", d->name);
        used |= over && !d->spread_least;
        if (d->spread_least > 1 && !over)
            say_spread_unused(ctl, about, d->spread_least);
        free(about);
    }
    if (c->spread_least > 1 && !used)
        say_spread_unused(ctl, "config", c->spread_least);
}

/* A destination's site and zone choose which owner takes over first: one that is near the next hop.
 * Two settings leave them without an effect: labels that no node has, and placement = ordered. */
static void check_hop_labels(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    for (size_t i = 0; i <= c->ndestinations; i++) {
        const struct config_destination *d = i < c->ndestinations ? &c->destination[i] : &c->other;
        bool fit = config_hop_labels_fit(c, d), ordered = d->placement == PLACEMENT_ORDERED;
        if (fit && !(ordered && (*d->site || *d->zone)))
            continue;
        char *about = mem_printf("destination \"%s\"", d->name);
        check_say(ctl, FINDING_WARNING, FOUND_HOP_LABELS_UNUSED, about,
                  fit ? "take one of the two out: site and zone, or placement = ordered"
                      : "write the labels of a node that is near this next hop, or take them out",
                  fit ? "site and zone say which owner takes over, and with placement = ordered "
                        "all destinations have one list of owners"
                      : "no node has its site and zone: the order of takeover is as without them");
        free(about);
    }
}

static void check_classes(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    for (size_t i = 0; c->nclasses && i <= c->ndestinations; i++) {
        const struct config_destination *d = i < c->ndestinations ? &c->destination[i] : &c->other;
        if (d->placement == PLACEMENT_ORDERED)
            check_good(ctl, "config",
                       "destination \"%s\" has placement = ordered: its mail keeps its order, and "
                       "has no class",
                       d->name);
    }
}

static void check_config(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    /* else nodes are learned of */
    bool made = in_group(ctl), known = c->membership != MEMBERSHIP_LEARNED || made;
    char digest[CONFIG_DIGEST];
    config_digest(c, digest);
    check_good(ctl, "config", "%s can be read; what must be equal on all hosts has the digest %s",
               ctl->config_path, digest);
    if (!c->divert.n)
        check_say(ctl, FINDING_WARNING, FOUND_DIVERT_EMPTY, "config",
                  made ? "dovelane group divert add HOP, as the milter's log names next hops "
                         "(reason=not-in-divert)"
                       : "divert = { \"lmtp:[10.0.0.5]:24\" }, as the milter's log names next hops "
                         "(reason=not-in-divert)",
                  "divert is empty: nothing is diverted (right until you choose next hops)");
    if (known && (size_t)c->copies > c->nnodes)
        check_say(ctl, FINDING_CRITICAL, FOUND_COPIES_MORE, "config",
                  "dovelane invite, and dovelane join on the next host; or copies = 1",
                  "copies = %lld, and the group has %zu node%s: all mail goes to Postfix's queue",
                  (long long)c->copies, c->nnodes, ctl_s(c->nnodes));
    else if (c->copies == 1)
        check_say(ctl, FINDING_WARNING, FOUND_COPIES_ONE, "config",
                  made ? "take copies = 1 out below # <<<" : "copies = 2",
                  "copies = 1: the loss of one node loses mail");
    else if ((size_t)c->copies == c->nnodes)
        check_say(ctl, FINDING_WARNING, FOUND_COPIES_ALL, "config", "one node more than copies",
                  "%zu nodes and copies = %lld: while one is away all mail goes to Postfix's queue "
                  "(right where no host more is to be had)",
                  c->nnodes, (long long)c->copies);
    for (size_t i = 0; i < c->dead.n; i++)
        check_say(ctl, FINDING_WARNING, FOUND_NODE_IN_DEAD, "config",
                  "take it out once it is whole again (admin reference, \"When a node dies\")",
                  "%s is in dead", c->dead.v[i]);
    for (size_t i = 0; i < c->ndestinations; i++)
        if (!config_list_has(&c->divert, c->destination[i].name))
            check_say(ctl, FINDING_WARNING, FOUND_DESTINATION_NOT_IN_DIVERT, "config",
                      "write its title as divert has it, or take the section out",
                      "destination \"%s\" is not in divert: its settings are used for mail that is "
                      "still in lanes only",
                      c->destination[i].name);
    check_spread_least(ctl);
    check_hop_labels(ctl);
    check_backoff_rules(ctl);
    check_classes(ctl);
    check_ports(ctl);
    check_places(ctl);
    check_authority(ctl);
    check_replica_users(ctl);
}

/* ---- command ---- */

const struct option check_options[] = {{"postfix-config", required_argument, NULL, 'p'},
                                       {"dovecot-config", required_argument, NULL, 'D'},
                                       {"as", required_argument, NULL, 'a'},
                                       {"defaults", required_argument, NULL, 'd'},
                                       {"verbose", no_argument, NULL, 'v'},
                                       {"list", no_argument, NULL, 'l'},
                                       {"help", no_argument, NULL, 'h'},
                                       {0}};

void check_command(struct ctl *ctl, int argc, char **argv)
{
    const char *postfix = NULL, *dovecot = NULL, *as = NULL, *defaults = "/etc/default/dovelane";
    int o;
    while ((o = getopt_long(argc, argv, "vjh", check_options, NULL)) != -1) {
        if (o == 'v')
            check_verbose();
        else if (o == 'j')
            out_choose_json(true);
        else if (o == 'p')
            postfix = optarg;
        else if (o == 'D')
            dovecot = optarg;
        else if (o == 'a')
            as = optarg;
        else if (o == 'd')
            defaults = optarg;
        else if (o == 'l') {
            check_list();
            return;
        } else if (o == 'h') {
            puts(
                "usage: dovelane check [-v] [--postfix-config DIR] [config] [host] [nodes] [redis] "
                "[postfix] [dovecot] [replicas]\n"
                "Names what is wrong, and the setting that mends it. Without a word: everything.\n"
                "  config   dovelane.conf: what is missing in it\n"
                "  host     this host: files that a service could not read after a restart, "
                "passwords, DOVELANE_NODE, disks, services\n"
                "           (--as USER: by the rights of that user; --defaults FILE: in the place "
                "of /etc/default/dovelane)\n"
                "  nodes    each node: is it alive, have its relay and the milters the same "
                "dovelane.conf (redis: the same)\n"
                "           and each node's Redis: eviction, persistence, memory, module\n"
                "  postfix  main.cf and master.cf: the milter's place, and features that diverted "
                "mail would miss\n"
                "  dovecot  this host's Dovecot, and the next hops of `divert`: do they answer\n"
                "  replicas what replication needs of this host's Dovecot, and what all sites must "
                "have alike: `doveadm dovelane preflight` before the first start\n"
                "           (--dovecot-config FILE: in the place of Dovecot's own)\n"
                "  -v       good things, too\n"
                "  --list   the names of all findings, as the brackets behind each have them, by "
                "section; looks at nothing\n"
                "A warning that is right for a while says so: (right until ...).\n"
                "Exit status: 0 good, 1 warnings, 2 critical.");
            exit(STATUS_DONE);
        } else
            ctl_usage("see `dovelane check --help`");
    }
    bool all = optind == argc, want[6] = {all, all, all, all, all, all};
    for (; optind < argc; optind++) {
        const char *w = argv[optind];
        int which = !strcmp(w, "config")                         ? 0
                    : !strcmp(w, "nodes") || !strcmp(w, "redis") ? 1
                    : !strcmp(w, "postfix")                      ? 2
                    : !strcmp(w, "dovecot")                      ? 3
                    : !strcmp(w, "host")                         ? 4
                    : !strcmp(w, "replicas")                     ? 5
                                                                 : -1;
        if (which < 0)
            ctl_usage("check: %s: not a section; these are: config, host, nodes, redis, postfix, "
                      "dovecot, replicas",
                      w);
        want[which] = true;
    }
    check_begin();
    if (want[0])
        check_config(ctl);
    if (want[1])
        check_nodes(ctl);
    if (want[4])
        check_host(ctl, as, defaults);
    if (want[2])
        check_postfix(ctl, postfix);
    if (want[3])
        check_dovecot(ctl);
    if (want[5])
        check_replicas(ctl, dovecot, !all);
    check_sum();
}
