/* What one setting alone cannot tell: each of these has its own line in the file, and only
 * together they are wrong. */
#include "lib/config/config_work.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/config/nexthop.h"

/* what: "node mx1" or "replica site-a". */
static char *check_tls(const struct config_link *l, const char *tls, const char *what,
                       const char *path)
{
    bool set = *l->standby;
    const char *far = !config_loopback(l->address)          ? l->address
                      : set && !config_loopback(l->standby) ? l->standby
                                                            : NULL;
    bool only_sockets =
        !strncmp(l->address, "unix:", 5) && (!set || !strncmp(l->standby, "unix:", 5));
    if (*tls && strcmp(tls, "yes") && strcmp(tls, "no"))
        return mem_printf("%s: %s: tls = %s, allowed is yes or no", path, what, tls);
    if (!*tls && far)
        return mem_printf(
            "%s: %s: %s is reached over a network, and mail would go there unencrypted. Write tls "
            "= yes (its server needs tls-port and a certificate: admin guide, \"Two hosts: TLS "
            "and users\"). Or write tls = no if nobody else can "
            "listen there",
            path, what, far);
    if (l->tls && only_sockets)
        return mem_printf("%s: %s: tls = yes, but %s is a UNIX socket, over which Redis speaks no "
                          "TLS: leave tls away",
                          path, what, l->address);
    if (*l->tls_name && !l->tls)
        return mem_printf("%s: %s: tls_name = %s without tls = yes", path, what, l->tls_name);
    return NULL;
}

static char *check_link(const struct config_link *l, const char *tls, const char *kind,
                        const char *name, const char *path)
{
    char buf[512], what[160];
    const char *host, *port;
    snprintf(what, sizeof what, "%s %s", kind, name);
    if (*l->standby && config_address(l->standby, buf, sizeof buf, &host, &port) < 0)
        return mem_printf(
            "%s: %s: standby = %s is no address, write it like 10.1.0.1:7001 or [fd01::1]:7001",
            path, what, l->standby);
    if (*l->standby && !strcmp(l->standby, l->address))
        return mem_printf("%s: %s: standby = %s is its redis, too: it must be another address of "
                          "that server, or be left away",
                          path, what, l->standby);
    return check_tls(l, tls, what, path);
}

/* What all links share. */
static char *check_links(const struct config *c, const char *path)
{
    const char *const file[][2] = {{"node_ca_file", c->node_ca_file},
                                   {"node_cert_file", c->node_cert_file},
                                   {"node_key_file", c->node_key_file},
                                   {"node_user_file", c->node_user_file},
                                   {"replica_user_file", c->replica_user_file}};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++)
        if (*file[i][1] && *file[i][1] != '/')
            return mem_printf("%s: %s = %s must be an absolute path", path, file[i][0], file[i][1]);
    if (*c->replica_user_file && !strstr(c->replica_user_file, "%r"))
        return mem_printf("%s: replica_user_file = %s has no %%r for the replica's name: write it "
                          "like /etc/dovelane/dovelane-replicator/%%r.user",
                          path, c->replica_user_file);
    if (*c->node_key_file && !*c->node_cert_file)
        return mem_printf("%s: node_key_file without node_cert_file: name the certificate, too",
                          path);
    for (size_t i = 0; i < c->nreplicas; i++) {
        struct config_link l = config_replica_link(c, i);
        char *error = check_link(&l, c->replica[i].tls, "replica", c->replica[i].name, path);
        if (error)
            return error;
    }
    return NULL;
}

/* Two copies in one server are one copy. */
static char *check_same(const struct config_node *a, const struct config_node *b, const char *path)
{
    const char *const of_a[] = {a->redis, a->standby}, *const of_b[] = {b->redis, b->standby};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if ((i || k) && *of_a[i] && !strcmp(of_a[i], of_b[k]))
                return mem_printf("%s: nodes %s and %s have the same address %s: two copies in one "
                                  "server are one copy",
                                  path, a->name, b->name, of_a[i]);
    return NULL;
}

/* "-" is how a member's record says that it has none. */
bool config_label_ok(const char *label)
{
    return !*label || (config_name_ok(label) && strcmp(label, "-"));
}

/* where: "node mx1", "destination x". */
static char *check_label(const char *where, const char *setting, const char *label,
                         const char *path)
{
    if (config_label_ok(label))
        return NULL;
    return mem_printf("%s: %s: %s = \"%s\": it has 1 to 64 of the characters a-z 0-9 . -, "
                      "and is not \"-\" alone",
                      path, where, setting, label);
}

static char *check_labels(const struct config_node *n, const char *path)
{
    char *where = mem_printf("node %s", n->name);
    char *error = check_label(where, "site", n->site, path);
    if (!error)
        error = check_label(where, "zone", n->zone, path);
    free(where);
    return error;
}

char *config_node_wrong(const struct config *c, size_t node, const char *path)
{
    char buf[512];
    const char *host, *port;
    const struct config_node *n = &c->node[node];
    if (!config_name_ok(n->name))
        return mem_printf(
            "%s: node \"%s\": a node's name has 1 to 64 of the characters a-z 0-9 . -", path,
            n->name);
    if (!*n->redis)
        return mem_printf("%s: node %s has no address: add redis = \"host:port\" or \"unix:/path\"",
                          path, n->name);
    if (config_address(n->redis, buf, sizeof buf, &host, &port) < 0)
        return mem_printf("%s: node %s: redis = %s is no address, write it like 10.0.0.1:7001, "
                          "[fd00::1]:7001 or unix:/path",
                          path, n->name, n->redis);
    for (size_t j = 0; j < node; j++)
        if (!strcmp(c->node[j].redis, n->redis))
            return mem_printf("%s: nodes %s and %s have the same redis = %s: two copies in one "
                              "server are one copy",
                              path, c->node[j].name, n->name, n->redis);
    if (*n->standby && c->path_timeout >= c->store_deadline)
        return mem_printf("%s: path_timeout = %lldms must be below store_deadline = %lldms: later "
                          "than that no standby address saves a mail from Postfix's queue",
                          path, (long long)c->path_timeout, (long long)c->store_deadline);
    struct config_link l = config_node_link(c, node);
    char *error = check_link(&l, n->tls, "node", n->name, path);
    if (!error)
        error = check_labels(n, path);
    for (size_t j = 0; j < node && !error; j++)
        error = check_same(&c->node[j], n, path);
    return error;
}

static const char *const spread_word[] = {"node", "zone", "site"};

/* where: "spread_over", or "destination x: spread_over". */
static char *check_spread(const struct config *c, const struct config_placement *p,
                          const char *where, const char *path)
{
    const char *word = spread_word[p->over];
    size_t domains = 0;
    if (p->least > (size_t)c->copies)
        return mem_printf("%s: %s = %s with spread_least = %zu: that is more than copies = %lld: "
                          "raise copies, or lower spread_least",
                          path, where, word, p->least, (long long)c->copies);
    if (p->over == SPREAD_OVER_NODE)
        return NULL;
    for (size_t i = 0; i < c->nnodes; i++) {
        const struct config_node *n = &c->node[i];
        if (!n->learned && !*(p->over == SPREAD_OVER_SITE ? n->site : n->zone))
            return mem_printf(
                "%s: %s = %s, but node %s says no %s: write %s = \"...\" in its section", path,
                where, word, n->name, word, word);
        domains += config_domain(c, i, p->over) == i;
    }
    /* the others are learned of */
    if (domains >= p->least || c->membership == MEMBERSHIP_LEARNED)
        return NULL;
    return mem_printf("%s: %s = %s with spread_least = %zu, but all nodes are in %zu: add nodes in "
                      "other ones, or lower spread_least",
                      path, where, word, p->least, domains);
}

/* Labels that no node has are a typing mistake, where no node is learned of. */
static char *check_hop_labels(const struct config *c, const struct config_destination *d,
                              const char *path)
{
    char *where = mem_printf("destination \"%s\"", d->name);
    char *error = check_label(where, "site", d->site, path);
    if (!error)
        error = check_label(where, "zone", d->zone, path);
    if (!error && c->membership != MEMBERSHIP_LEARNED && !config_hop_labels_fit(c, d))
        error = mem_printf("%s: %s: no node has site = \"%s\"%s%s%s: write the labels of a node "
                           "that is near this next hop, or leave them out",
                           path, where, d->site, *d->zone ? " and zone = \"" : "", d->zone,
                           *d->zone ? "\"" : "");
    free(where);
    return error;
}

static char *check_spreads(const struct config *c, const char *path)
{
    char *error = NULL;
    for (size_t i = 0; i <= c->ndestinations && !error; i++) {
        const struct config_destination *d = i < c->ndestinations ? &c->destination[i] : &c->other;
        struct config_placement p = config_placement(c, d);
        if ((error = check_hop_labels(c, d, path)))
            break;
        char *where = d->spread_over || d->spread_least
                          ? mem_printf("destination \"%s\": spread_over", d->name)
                          : mem_strdup("spread_over");
        error = check_spread(c, &p, where, path);
        if (!error && p.near && c->takeover != TAKEOVER_AUTOMATIC)
            error = mem_printf("%s: prefer = near needs takeover = automatic: the answers to its "
                               "beats are what is measured",
                               path);
        free(where);
    }
    return error;
}

/* What a node's section says is what others are told of it: an address that means another host
 * there, or none, keeps them from ever being together with it. */
static char *check_told(const struct config *c, const char *path)
{
    const struct config_node *near = NULL, *far = NULL;
    for (size_t i = 0; i < c->nnodes; i++) {
        const struct config_node *n = &c->node[i];
        if (n->learned)
            continue;
        if (config_loopback(n->redis) || (*n->standby && config_loopback(n->standby)))
            near = n;
        if (!config_loopback(n->redis))
            far = n;
    }
    if (c->membership != MEMBERSHIP_LEARNED || !near || !far)
        return NULL;
    return mem_printf(
        "%s: node %s: %s can be reached by its own host only, and with membership = learned the "
        "others are told this address, too: write the one by which they reach it, "
        "as node %s has %s",
        path, near->name, config_loopback(near->redis) ? near->redis : near->standby, far->name,
        far->redis);
}

static char *check_nodes(const struct config *c, const char *path)
{
    if (c->nnodes > CONFIG_NODES_MAX)
        return mem_printf("%s: %zu nodes, allowed are %d", path, c->nnodes, CONFIG_NODES_MAX);
    for (size_t i = 0; i < c->nnodes; i++) {
        char *error = config_node_wrong(c, i, path);
        if (error)
            return error;
    }
    /* else it may be learned of later: config_learn */
    for (size_t i = 0; i < c->dead.n && c->membership != MEMBERSHIP_LEARNED; i++)
        if (config_node_index(c, c->dead.v[i]) < 0 && !config_list_has(&c->forgotten, c->dead.v[i]))
            return mem_printf("%s: dead names %s, but there is no node of that name: take it out "
                              "of dead, or write the name of a node section",
                              path, c->dead.v[i]);
    char *error = check_told(c, path);
    return error ? error : check_spreads(c, path);
}

/* What clients do is done at another site than a backup, and somebody has all bytes of all mails,
 * from whom a site with headers only gets them. */
static char *check_roles(const struct config *c, const char *path)
{
    size_t backups = 0, full = 0;
    const struct config_replica *on_demand = NULL;
    for (size_t i = 0; i < c->nreplicas; i++) {
        backups += config_is_backup(&c->replica[i]);
        full += !config_is_backup(&c->replica[i]) && !config_is_on_demand(&c->replica[i]);
        if (config_is_on_demand(&c->replica[i]))
            on_demand = &c->replica[i];
    }
    if (on_demand && !full)
        return mem_printf("%s: replica %s: role = on-demand, and no replica has role = full: one "
                          "at least has the text of all mails",
                          path, on_demand->name);
    if (!backups || backups < c->nreplicas)
        return NULL;
    return mem_printf("%s: replica %s: role = backup, and no replica is left for clients: one at "
                      "least has role = full",
                      path, c->replica[0].name);
}

static char *check_replicas(const struct config *c, const char *path)
{
    if (c->nreplicas > CONFIG_REPLICAS_MAX)
        return mem_printf("%s: %zu replicas, allowed are %d", path, c->nreplicas,
                          CONFIG_REPLICAS_MAX);
    if (c->nreplicas && !c->replicate_namespaces.n)
        return mem_printf("%s: there are replicas, but replicate_namespaces is empty: name what is "
                          "replicated, like { \"inbox\" }",
                          path);
    if (c->resend_after > c->resend_most)
        return mem_printf("%s: resend_after = %lldms is more than resend_most = %lldms", path,
                          (long long)c->resend_after, (long long)c->resend_most);
    if (*c->replicator_dir && *c->replicator_dir != '/')
        return mem_printf("%s: replicator_dir = %s must be an absolute path", path,
                          c->replicator_dir);
    if (c->dirty_dir[0] != '/')
        return mem_printf("%s: dirty_dir = %s must be an absolute path", path, c->dirty_dir);
    return check_roles(c, path);
}

static char *check_sockets(const struct config *c, const char *path)
{
    for (size_t i = 0; i < c->socket_at.n; i++) {
        const char *is = strchr(c->socket_at.v[i], '=');
        if (!is || is == c->socket_at.v[i] || is[1] != '/')
            return mem_printf(
                "%s: socket_at has \"%s\": write it as \"Postfix's path=/absolute/path\"", path,
                c->socket_at.v[i]);
    }
    return NULL;
}

/* by: the setting that names it. */
static char *check_next_hop(const struct config *c, const char *by, const char *d, const char *path)
{
    struct nexthop parsed;
    const char *hop = strchr(d, ':');
    if (strncmp(d, "smtp:", 5) && strncmp(d, "relay:", 6) && strncmp(d, "lmtp:", 5))
        return mem_printf("%s: %s has \"%s\": it must begin with smtp:, relay: or lmtp:", path, by,
                          d);
    hop++;
    if (!strncmp(hop, "unix:", 5)) {
        if (hop[5] == '/' || config_socket_at(c, hop + 5))
            return NULL;
        return mem_printf("%s: %s has \"%s\": the socket's path must be absolute, or socket_at "
                          "must say where the relay finds it: "
                          "socket_at = { \"%s=/run/dovecot/dovelane-lmtp\" }",
                          path, by, d, hop + 5);
    }
    if (nexthop_parse(d, &parsed)) {
        nexthop_free(&parsed);
        return NULL;
    }
    char *beyond = nexthop_host(d, NEXTHOP_HOSTS_MAX);
    free(beyond);
    if (beyond)
        return mem_printf("%s: %s has a list of more than %d hosts, which the relay does not try",
                          path, by, NEXTHOP_HOSTS_MAX);
    if (hop[0] != '[' && *d != 'l')
        return mem_printf("%s: %s has \"%s\": only next hops with an address can be delivered to: "
                          "[host]:port or unix:/path",
                          path, by, d);
    for (const char *at = d; *at; at++)
        if (*at & 0x80)
            return mem_printf("%s: %s has \"%s\": write the name in ASCII, as DNS has it, here and "
                              "in transport_maps: [xn--bcher-kva.example]:25",
                              path, by, d);
    return mem_printf("%s: %s has \"%s\": write the next hop like [10.0.0.5]:24", path, by, d);
}

static char *check_file(const char *path, const struct config_destination *d, const char *setting,
                        const char *file)
{
    if (!*file)
        return NULL;
    if (file[0] != '/')
        return mem_printf("%s: destination %s: %s = %s must be an absolute path", path, d->name,
                          setting, file);
    return NULL;
}

static char *check_destination(const struct config *c, const struct config_destination *d,
                               const char *path)
{
    char *error = NULL;
    const char *unix_path = strchr(d->name, ':');
    if (d != &c->other)
        error = check_next_hop(c, "the title of a destination section", d->name, path);
    if (!error)
        error = check_file(path, d, "tls_ca_file", d->tls_ca_file);
    if (!error)
        error = check_file(path, d, "tls_cert_file", d->tls_cert_file);
    if (!error)
        error = check_file(path, d, "tls_key_file", d->tls_key_file);
    if (error)
        return error;
    const char *idle = *d->tls_name        ? "tls_name"
                       : *d->tls_ca_file   ? "tls_ca_file"
                       : *d->tls_cert_file ? "tls_cert_file"
                                           : NULL;
    if (idle && (d->tls == TLS_NONE || d->tls == TLS_POSTFIX))
        return mem_printf(
            "%s: destination %s: %s without tls: write tls = verify too, or encrypt or may", path,
            d->name, idle);
    if (*d->tls_key_file && !*d->tls_cert_file)
        return mem_printf(
            "%s: destination %s: tls_key_file without tls_cert_file: name the certificate, too",
            path, d->name);
    if (d->tls == TLS_VERIFY && !*d->tls_name && unix_path && !strncmp(unix_path, ":unix:", 6))
        return mem_printf("%s: destination %s: tls = verify for a UNIX socket needs tls_name: the "
                          "name in its certificate",
                          path, d->name);
    if (d->delivery_id && !*c->group_key_file)
        return mem_printf("%s: destination %s: delivery_id = yes needs group_key_file: write "
                          "group_key_file = \"/etc/dovelane/group.key\", with one key on all hosts",
                          path, d->name);
    return NULL;
}

/* What the relay asks for must have somebody who answers. */
static char *check_replicated(const struct config *c, const struct config_destination *d,
                              const char *path)
{
    char *host;
    if (d->until != UNTIL_REPLICATED)
        return NULL;
    if (d == &c->other)
        return mem_printf("%s: destination \"*\": until = replicated needs a section for each next "
                          "hop: the relay must know which site each of its hosts is",
                          path);
    if (strncmp(d->name, "lmtp:", 5))
        return mem_printf("%s: destination %s: until = replicated is for lmtp: to our own Dovecot",
                          path, d->name);
    if (!d->delivery_id)
        return mem_printf(
            "%s: destination %s: until = replicated needs delivery_id = yes, by which "
            "the sites know the mail",
            path, d->name);
    if (d->sites > (int64_t)c->nreplicas)
        return mem_printf("%s: destination %s: sites = %lld, but there are %zu replica sections: "
                          "no mail would ever be on so many disks",
                          path, d->name, (long long)d->sites, c->nreplicas);
    for (size_t n = 0; (host = nexthop_host(d->name, n)); n++) {
        struct nexthop hop;
        bool parsed = nexthop_parse(host, &hop), known = parsed && config_replica_at(c, &hop) >= 0;
        if (parsed)
            nexthop_free(&hop);
        char *error = known
                          ? NULL
                          : mem_printf("%s: destination %s: until = replicated, but %s is no "
                                       "replica's lmtp: write lmtp = \"%s\" in the section of the "
                                       "replica to which it delivers",
                                       path, d->name, host, host + strlen("lmtp:"));
        free(host);
        if (error)
            return error;
    }
    return NULL;
}

static char *check_lmtp(const struct config *c, size_t replica, const char *path)
{
    const char *lmtp = c->replica[replica].lmtp;
    char *hop = mem_printf("lmtp:%s", lmtp), *second = nexthop_host(hop, 1), *error = NULL;
    struct nexthop parsed;
    if (!*lmtp)
        goto out;
    if (second)
        error = mem_printf("%s: replica %s: lmtp = \"%s\" is a list: write the one host that "
                           "delivers to this replica",
                           path, c->replica[replica].name, lmtp);
    else if (!nexthop_parse(hop, &parsed))
        error = mem_printf("%s: replica %s: lmtp = \"%s\" is no next hop: write it like "
                           "\"[10.0.0.5]:24\" or \"unix:/run/dovecot/lmtp\"",
                           path, c->replica[replica].name, lmtp);
    else
        nexthop_free(&parsed);
    for (size_t i = 0; !error && i < replica; i++)
        if (!strcmp(c->replica[i].lmtp, lmtp))
            error = mem_printf("%s: replicas %s and %s have the same lmtp = \"%s\": each site "
                               "takes mail at an address of its own",
                               path, c->replica[i].name, c->replica[replica].name, lmtp);
out:
    free(hop);
    free(second);
    return error;
}

static char *check_destinations(const struct config *c, const char *path)
{
    char *error = check_destination(c, &c->other, path);
    if (!error)
        error = check_replicated(c, &c->other, path);
    for (size_t i = 0; !error && i < c->nreplicas; i++)
        error = check_lmtp(c, i, path);
    for (size_t i = 0; !error && i < c->ndestinations; i++)
        if (!(error = check_destination(c, &c->destination[i], path)))
            error = check_replicated(c, &c->destination[i], path);
    return error;
}

/* The four programs have four ports. */
static char *check_metrics_listen(const struct config *c, const char *path)
{
    char buf[512];
    const char *host, *port;
    struct in6_addr any;
    if (!*c->metrics_listen)
        return NULL;
    if (config_address(c->metrics_listen, buf, sizeof buf, &host, &port) < 0 || !port ||
        (inet_pton(AF_INET, host, &any) != 1 && inet_pton(AF_INET6, host, &any) != 1) ||
        port[strspn(port, "0123456789")] || atoi(port) < 1 || atoi(port) > 65532)
        return mem_printf("%s: metrics_listen = %s is no IP address with a port from 1 to 65532, "
                          "write it like 127.0.0.1:7061",
                          path, c->metrics_listen);
    if (*c->metrics_tls_key_file && !*c->metrics_tls_cert_file)
        return mem_printf("%s: metrics_tls_key_file = %s has no metrics_tls_cert_file", path,
                          c->metrics_tls_key_file);
    return NULL;
}

static char *check_places(const struct config *c, const char *path)
{
    char buf[512];
    const char *host, *port;
    if (*c->bounce_port && config_address(c->bounce_port, buf, sizeof buf, &host, &port) < 0)
        return mem_printf(
            "%s: bounce_port = %s is no address, write it like 127.0.0.1:10626 or unix:/path", path,
            c->bounce_port);
    if (*c->reinject_port && config_address(c->reinject_port, buf, sizeof buf, &host, &port) < 0)
        return mem_printf(
            "%s: reinject_port = %s is no address, write it like 127.0.0.1:10627 or unix:/path",
            path, c->reinject_port);
    if (*c->reinject_port && !strcmp(c->reinject_port, c->bounce_port))
        return mem_printf(
            "%s: reinject_port and bounce_port are both %s: what comes in there bounces", path,
            c->bounce_port);
    if (*c->group_key_file && c->group_key_file[0] != '/')
        return mem_printf("%s: group_key_file = %s must be an absolute path", path,
                          c->group_key_file);
    if (c->state_directory[0] != '/')
        return mem_printf("%s: state_directory = %s must be an absolute path", path,
                          c->state_directory);
    if (c->backoff_rules[0] != '/')
        return mem_printf("%s: backoff_rules = %s must be an absolute path", path,
                          c->backoff_rules);
    if (c->milter_socket[0] != '/')
        return mem_printf("%s: milter_socket = %s must be the absolute path of a UNIX socket", path,
                          c->milter_socket);
    if (*c->metrics_socket && c->metrics_socket[0] != '/')
        return mem_printf("%s: metrics_socket = %s must be the absolute path of a UNIX socket",
                          path, c->metrics_socket);
    char *error = check_metrics_listen(c, path);
    if (error)
        return error;
    if (strcmp(c->log, "stderr") && strcmp(c->log, "syslog") && strcmp(c->log, "journal") &&
        strncmp(c->log, "journal:/", 9) && strncmp(c->log, "file:/", 6))
        return mem_printf("%s: log = %s, allowed is stderr, syslog, journal or file:/path", path,
                          c->log);
    return NULL;
}

/* When a node is taken over, nobody may have an undecided mail on it. */
static char *check_takeover(const struct config *c, const char *path)
{
    int64_t least = c->suspect_after + c->beat + config_promise_wanted(c, (size_t)c->max_entry);
    if (c->membership == MEMBERSHIP_LEARNED && c->takeover != TAKEOVER_AUTOMATIC)
        return mem_printf("%s: membership = learned needs takeover = automatic: nodes that do not "
                          "hear each other cannot tell who joined",
                          path);
    if (c->takeover != TAKEOVER_AUTOMATIC)
        return NULL;
    if (c->dead_after < least)
        return mem_printf("%s: dead_after = %lldms must be at least suspect_after + beat + what a "
                          "milter may take to promise = %lldms",
                          path, (long long)c->dead_after, (long long)least);
    if (c->suspect_after < 2 * c->beat)
        return mem_printf("%s: suspect_after = %lldms must be at least two beats = %lldms", path,
                          (long long)c->suspect_after, (long long)(2 * c->beat));
    return NULL;
}

/* A domain, one with a dot before it, or an address: what is before the first '='. */
static char *check_route(const struct config *c, const char *route, const char *path)
{
    const char *hop = strchr(route, '='),
               *at = hop ? memchr(route, '@', (size_t)(hop - route)) : NULL;
    const char *domain = at ? at + 1 : route + (*route == '.');
    if (!hop || hop == domain || at == route ||
        strcspn(route, " \t,;\"<>") < (size_t)(hop - route) || *domain == '.' || hop[-1] == '.' ||
        hop[-1] == '@')
        return mem_printf("%s: route = \"%s\": write it like \"example.com=lmtp:[10.0.0.5]:24\", "
                          "\".example.com=...\" or \"a@example.com=...\"",
                          path, route);
    return check_next_hop(c, "route", hop + 1, path);
}

static int by_pattern(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    size_t nx = strcspn(x, "="), ny = strcspn(y, "=");
    int c = strncasecmp(x, y, nx < ny ? nx : ny);
    return c ? c : nx < ny ? -1 : nx > ny;
}

static char *check_routes(const struct config *c, const char *path)
{
    char *error = NULL, **sorted = mem_alloc((c->route.n + 1) * sizeof *sorted);
    for (size_t i = 0; i < c->route.n && !error; i++) {
        sorted[i] = c->route.v[i];
        error = check_route(c, c->route.v[i], path);
    }
    if (!error)
        qsort(sorted, c->route.n, sizeof *sorted, by_pattern);
    for (size_t i = 1; i < c->route.n && !error; i++)
        if (!by_pattern(&sorted[i - 1], &sorted[i]))
            error = mem_printf(
                "%s: route has \"%s\" and \"%s\" for the same addresses: take one of them out",
                path, sorted[i - 1], sorted[i]);
    free(sorted);
    return error;
}

static char *check_proxy(const struct config *c, const char *path)
{
    char buf[512], *error = check_routes(c, path);
    const char *host, *port;
    if (error)
        return error;
    if (c->proxy_socket[0] != '/')
        return mem_printf("%s: proxy_socket = %s must be the absolute path of a UNIX socket", path,
                          c->proxy_socket);
    if (!strcmp(c->proxy_socket, c->milter_socket))
        return mem_printf("%s: proxy_socket and milter_socket are both %s", path, c->proxy_socket);
    if (*c->proxy_next && config_address(c->proxy_next, buf, sizeof buf, &host, &port) < 0)
        return mem_printf(
            "%s: proxy_next = %s is no address, write it like 127.0.0.1:10628 or unix:/path", path,
            c->proxy_next);
    if (*c->proxy_next && !strcmp(c->proxy_next, c->bounce_port))
        return mem_printf("%s: proxy_next and bounce_port are both %s: what comes in there bounces",
                          path, c->bounce_port);
    return NULL;
}

char *config_wrong(const struct config *c, const char *path)
{
    char *error = check_nodes(c, path);
    if (error || (error = check_links(c, path)))
        return error;
    /* the others are learned of */
    if (c->nnodes && (size_t)c->copies > c->nnodes && c->membership != MEMBERSHIP_LEARNED)
        return mem_printf("%s: copies = %lld, but only %zu nodes are configured: add node sections "
                          "or lower copies",
                          path, (long long)c->copies, c->nnodes);
    /* A copy may be compared, and dropped where the other owner has none, once it is older than
     * settle: no promise may come later. */
    int64_t slowest = c->store_deadline + c->max_entry / 10000 + 500;
    if (c->settle < slowest)
        return mem_printf("%s: settle = %lldms must be at least %lldms (store_deadline + 1 s per "
                          "10 MB of max_entry + 500 ms). Raise settle here, and lane.settle-ms in "
                          "each node's redis.conf",
                          path, (long long)c->settle, (long long)slowest);
    if ((error = check_takeover(c, path)) || (error = check_sockets(c, path)))
        return error;
    for (size_t i = 0; i < c->divert.n; i++) {
        char *wrong = check_next_hop(c, "divert", c->divert.v[i], path);
        if (wrong)
            return wrong;
    }
    if (c->retry_first > c->retry_most)
        return mem_printf("%s: retry_first = %lldms is more than retry_most = %lldms", path,
                          (long long)c->retry_first, (long long)c->retry_most);
    if ((error = check_destinations(c, path)))
        return error;
    if ((error = check_replicas(c, path)) || (error = check_proxy(c, path)))
        return error;
    return check_places(c, path);
}
