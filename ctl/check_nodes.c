/* Each node, and what those who are connected to it show of themselves. */
#include "ctl/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/redis/endpoint.h"
#include "lib/base/mem.h"
#include "lib/redis/control_keys.h"

#define MB (1 << 20)
#define CERTIFICATE_DAYS 30 /* so long before its end it is time for a new one */

struct node_facts {
    char version[32];
    bool up;
};

/* A setting of the server, malloc'd; "" when it has none of that name. */
static char *setting(struct conn *c, const char *name)
{
    redisReply *r = conn_call(c, "CONFIG GET %s", name);
    char *value = mem_strdup(r ? conn_text(r, name) : "");
    if (r)
        freeReplyObject(r);
    return value;
}

static void expect_setting(struct ctl *ctl, struct conn *c, const char *name, const char *value,
                           enum finding otherwise, enum found which, const char *why)
{
    char *is = setting(c, name), about[80], mend[160];
    snprintf(about, sizeof about, "node %s", c->name);
    snprintf(mend, sizeof mend, "%s %s in its redis.conf, and CONFIG SET", name,
             *value ? value : "\"\"");
    if (!strcmp(is, value))
        check_good(ctl, about, "%s is %s", name, *value ? value : "empty");
    else
        check_say(ctl, otherwise, which, about, mend, "%s is %s: %s", name, *is ? is : "empty",
                  why);
    free(is);
}

static void check_memory(struct ctl *ctl, struct conn *c, const redisReply *info)
{
    char about[80];
    long long used = conn_number(info, "used-memory"), most = conn_number(info, "maxmemory"),
              oldest = conn_number(info, "entries");
    snprintf(about, sizeof about, "node %s", c->name);
    if (most <= 0) {
        check_say(ctl, FINDING_WARNING, FOUND_MAXMEMORY_NONE, about,
                  "maxmemory, well below what the host has",
                  "maxmemory is not set: lanes grow until the host kills Redis");
        return;
    }
    long long percent = 100 * used / most;
    if (percent >= 90)
        check_say(
            ctl, FINDING_CRITICAL, FOUND_MEMORY_FULL, about,
            "mend the next hops, `dovelane requeue`, or raise maxmemory",
            "%lld%% of maxmemory is used, by %lld mail%s; beyond it mail goes to Postfix's queue",
            percent, oldest, ctl_s((unsigned long long)oldest));
    else if (percent > ctl->config->spill_above)
        check_say(ctl, FINDING_WARNING, FOUND_MEMORY_SPILLS, about,
                  "see `dovelane qshape`: which next hop is away?",
                  "%lld%% of maxmemory is used: the oldest mail goes to Postfix's queue", percent);
    else
        check_good(ctl, about, "%lld%% of maxmemory is used", percent);
}

static void check_persistence(struct ctl *ctl, struct conn *c)
{
    char about[80], *aof = setting(c, "appendonly"), *fsync = setting(c, "appendfsync");
    snprintf(about, sizeof about, "node %s", c->name);
    expect_setting(
        ctl, c, "save", "", FINDING_WARNING, FOUND_SAVES,
        "a file that a restart loads is older than what was delivered since, and that comes twice");
    expect_setting(ctl, c, "stop-writes-on-bgsave-error", "no", FINDING_WARNING, FOUND_STOP_WRITES,
                   "when a save fails nothing can be acked, and nothing is taken");
    if (!strcmp(aof, "yes"))
        check_good(ctl, about,
                   "appendonly is yes (appendfsync %s): mail survives the loss of all nodes' "
                   "power, as far as that file goes",
                   fsync);
    else
        check_good(
            ctl, about,
            "appendonly is no: mail survives the loss of copies - 1 nodes at one time, not of all");
    free(aof);
    free(fsync);
}

static void check_settings(struct ctl *ctl, struct conn *c, const redisReply *info)
{
    char about[80], mend[80];
    long long settle = conn_number(info, "settle-ms");
    snprintf(about, sizeof about, "node %s", c->name);
    expect_setting(ctl, c, "maxmemory-policy", "noeviction", FINDING_CRITICAL, FOUND_EVICTION,
                   "Redis may drop lanes by itself; the programs refuse such a node");
    expect_setting(ctl, c, "min-replicas-to-write", "0", FINDING_WARNING, FOUND_REPLICAS_WANTED,
                   "without replicas acks are refused");
    expect_setting(ctl, c, "timeout", "0", FINDING_WARNING, FOUND_CLIENT_TIMEOUT,
                   "it closes connections that are quiet");
    check_persistence(ctl, c);
    snprintf(mend, sizeof mend, "lane.settle-ms %lld in its redis.conf",
             (long long)ctl->config->settle);
    if (settle < ctl->config->settle)
        check_say(ctl, FINDING_CRITICAL, FOUND_SETTLE, about, mend,
                  "lane.settle-ms is %lld, below settle: the programs refuse it", settle);
    char *bulk = setting(c, "proto-max-bulk-len");
    if (*bulk && atoll(bulk) < ctl->config->max_entry)
        check_say(ctl, FINDING_CRITICAL, FOUND_BULK_LENGTH, about, "proto-max-bulk-len 512mb",
                  "proto-max-bulk-len is %s, below max_entry", bulk);
    free(bulk);
}

/* maxmemory bounds no answers that wait for whoever does not read them, and no request that is
 * half there. 0: nothing bounds them. */
static void check_client_memory(struct ctl *ctl, struct conn *c, const redisReply *info)
{
    char about[80], mend[100], *text = setting(c, "maxmemory-clients");
    long long maxmemory = conn_number(info, "maxmemory"), least = 4 * ctl->config->max_entry;
    long long most = strchr(text, '%') ? atoll(text) * maxmemory / 100 : atoll(text);
    long long good =
        maxmemory / 8 > 10 * ctl->config->max_entry ? maxmemory / 8 : 10 * ctl->config->max_entry;
    snprintf(about, sizeof about, "node %s", c->name);
    snprintf(mend, sizeof mend, "maxmemory-clients %lldmb in its redis.conf, and CONFIG SET",
             (good + MB - 1) / MB);
    if (!most)
        check_say(ctl, FINDING_WARNING, FOUND_CLIENT_MEMORY, about, mend,
                  "maxmemory-clients is %s: who asks and reads no answers takes memory until the "
                  "host kills Redis, and what it holds is gone",
                  *text ? text : "not set");
    else if (most < least)
        check_say(ctl, FINDING_CRITICAL, FOUND_CLIENT_MEMORY, about, mend,
                  "maxmemory-clients is %s, below four times max_entry: a connection that has a "
                  "large mail is closed, again and again",
                  text);
    else
        check_good(ctl, about, "its connections take at most %lld MB beside maxmemory", most / MB);
    free(text);
}

static void check_whole(struct ctl *ctl, struct conn *c)
{
    char about[80];
    size_t sets = config_sets(ctl->config);
    redisReply *r = conn_call(c, "LANE.WHOLE");
    snprintf(about, sizeof about, "node %s", c->name);
    if (r && r->type == REDIS_REPLY_ARRAY && r->elements / 2 >= sets)
        check_good(ctl, about, "holds all that it promised");
    else
        check_say(ctl, FINDING_WARNING, FOUND_NOT_WHOLE, about,
                  "`dovelane nodes`, and the log of its relay, say what it waits for",
                  "holds all that was promised for %zu of its %zu set%s of owners: the others get "
                  "none (right for some seconds after a start)",
                  r ? r->elements / 2 : (size_t)0, sets, ctl_s(sets));
    if (r)
        freeReplyObject(r);
}

/* ---- who is connected, with which configuration ---- */

static void compare(struct ctl *ctl, const char *who, const char *digest)
{
    char mine[CONFIG_DIGEST];
    config_digest(ctl->config, mine);
    if (strcmp(mine, digest))
        check_say(ctl, FINDING_CRITICAL, FOUND_OTHER_CONFIGURATION, who,
                  "the same dovelane.conf on all hosts; reload relays, milters and proxies (other "
                  "nodes, links or takeover: restart the relays, one by one)",
                  "has another configuration (digest %s, here %s): owners and promises are not "
                  "what others think",
                  digest, mine);
    else
        check_good(ctl, who, "has the same configuration");
}

static void check_relay(struct ctl *ctl, struct conn *c)
{
    char who[80];
    redisReply *r = conn_call(c, "HGET " CONTROL_CONFIG " relay");
    snprintf(who, sizeof who, "relay of %s", c->name);
    if (r && r->type == REDIS_REPLY_STRING)
        compare(ctl, who, r->str);
    else
        check_say(ctl, FINDING_CRITICAL, FOUND_RELAY_MISSING, who, "start dovelane-relay there",
                  "is not connected: nobody delivers what %s owns first", c->name);
    if (r)
        freeReplyObject(r);
    r = conn_call(c, "EXISTS " CONTROL_DRAIN);
    if (r && r->type == REDIS_REPLY_INTEGER && r->integer)
        check_say(ctl, FINDING_WARNING, FOUND_DRAINING, who,
                  "wait for the end of `dovelane drain`, or end it",
                  "is being drained into Postfix's queue");
    if (r)
        freeReplyObject(r);
    r = conn_call(c, "HGETALL " CONTROL_AWAY);
    for (size_t i = 0; r && r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements; i += 2)
        if (r->element[i]->str && r->element[i + 1]->str &&
            strncmp(r->element[i + 1]->str, CONTROL_SUSPENDED, strlen(CONTROL_SUSPENDED)))
            check_say(
                ctl, FINDING_WARNING, FOUND_HOP_AWAY, who,
                strstr(r->element[i + 1]->str, "TLS")
                    ? "the next hop, or tls, tls_name, tls_ca_file, ... in its destination section"
                    : "the next hop",
                "cannot reach %s: %s", r->element[i]->str, r->element[i + 1]->str);
    if (r)
        freeReplyObject(r);
}

static void check_milters(struct ctl *ctl, struct conn *c)
{
    redisReply *list = conn_call(c, "CLIENT LIST");
    size_t n = 0;
    for (const char *at = list && list->str ? list->str : NULL;
         at && (at = strstr(at, " name=dovelane-switch:")); at++, n++) {
        char host[80], digest[20], who[140];
        if (sscanf(at, " name=dovelane-switch:%79[^:]:%*[a-z]:%*[0-9]:%19[0-9a-f]", host, digest) !=
            2)
            continue;
        snprintf(who, sizeof who, "milter %s (at %s)", host, c->name);
        compare(ctl, who, digest);
    }
    if (!n)
        check_say(ctl, FINDING_WARNING, FOUND_MILTER_MISSING, c->name,
                  "start dovelane-milter on the hosts that take mail",
                  "no milter is connected (right until Postfix is set to use it)");
    if (list)
        freeReplyObject(list);
}

/* ---- the link to it ---- */

static bool has_flag(const redisReply *user, const char *flag)
{
    const redisReply *flags = conn_field(user, "flags");
    for (size_t i = 0; flags && flags->type == REDIS_REPLY_ARRAY && i < flags->elements; i++)
        if (flags->element[i]->str && !strcmp(flags->element[i]->str, flag))
            return true;
    return false;
}

static void check_certificate(struct ctl *ctl, const char *about, const char *whose, int64_t until,
                              const char *mend)
{
    char date[32];
    time_t end = (time_t)until;
    struct tm tm;
    if (!until)
        return;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&end, &tm));
    double days = difftime(end, time(NULL)) / 86400;
    if (days <= 0)
        check_say(ctl, FINDING_CRITICAL, FOUND_CERTIFICATE_ENDED, about, mend, "%s ended on %s",
                  whose, date);
    else if (days < CERTIFICATE_DAYS)
        check_say(ctl, FINDING_WARNING, FOUND_CERTIFICATE_ENDS, about, mend,
                  "%s ends on %s, in %d day%s: connections that are opened after that are refused",
                  whose, date, (int)days, ctl_s((unsigned long long)days));
    else
        check_good(ctl, about, "%s is good until %s", whose, date);
}

static void check_link(struct ctl *ctl, struct conn *c, size_t node)
{
    const struct config_node *n = &ctl->config->node[node];
    const char *const address[] = {n->redis, n->standby};
    bool far = !config_loopback(n->redis) || (*n->standby && !config_loopback(n->standby));
    char about[80];
    snprintf(about, sizeof about, "node %s", c->name);
    if (far && strcmp(n->tls, "yes"))
        check_say(ctl, FINDING_WARNING, FOUND_UNENCRYPTED, about,
                  "tls = yes, and tls-port in its redis.conf",
                  "mail goes over the network to %s unencrypted (right until the guide's section "
                  "on TLS is done)",
                  n->redis);
    else if (far)
        check_good(ctl, about, "is reached by TLS");
    check_certificate(
        ctl, about, "its certificate", conn_until(c, false),
        "a new one (admin guide, \"Two hosts: TLS and users\"), and CONFIG SET tls-cert-file");
    check_certificate(ctl, about, "node_cert_file", conn_until(c, true),
                      "a new one (admin guide, \"Two hosts: TLS and users\"), and restart the "
                      "programs one by one");
    for (size_t i = 0; i < 2 && *n->standby; i++) {
        enum conn_found found = conn_try(c, ctl->config, node, i);
        if (found == CONN_RIGHT)
            check_good(ctl, about, "answers at its %s address %s", i ? "standby" : "active",
                       address[i]);
        else if (found == CONN_WRONG)
            check_say(ctl, FINDING_CRITICAL, FOUND_ADDRESS_WRONG, about,
                      "redis and standby in the sections of the nodes",
                      "its %s address %s is of no use: %s", i ? "standby" : "active", address[i],
                      c->path_trouble[i]);
        else
            check_say(ctl, FINDING_WARNING, FOUND_ADDRESS_SILENT, about,
                      "that network, or the address", "does not answer at its %s address %s: %s",
                      i ? "standby" : "active", address[i], c->path_trouble[i]);
    }
    if (!far)
        return;
    redisReply *user = conn_call(c, "ACL GETUSER default");
    if (user && has_flag(user, "on") && has_flag(user, "nopass"))
        check_say(ctl, FINDING_WARNING, FOUND_NO_PASSWORD, about,
                  "node_user_file, and aclfile with what `dovelane acl` prints",
                  "who reaches %s may do everything: its default user needs no password (right "
                  "until the guide's section on TLS and users is done)",
                  n->redis);
    else if (user)
        check_good(ctl, about, "lets nobody in without a password");
    if (user)
        freeReplyObject(user);
}

/* Of the programs whose files are on this host. The answer to AUTH is all that is asked, on a
 * connection of its own. */
static void check_passwords(struct ctl *ctl, size_t node, const char *about)
{
    static const char *const program[] = {"dovelane-milter", "dovelane-proxy", "dovelane-relay",
                                          "dovelane-replicator"};
    struct conn c = {.link = NULL};
    bool refused = false;
    if (!strstr(ctl->config->node_user_file, "%p") || !conn_open(&c, ctl->config, node))
        return;
    for (size_t i = 0; i < sizeof program / sizeof *program && conn_up(&c); i++) {
        struct endpoint_user user;
        char *file = endpoint_file_of(ctl->config->node_user_file, program[i]), *error = NULL;
        redisReply *r = endpoint_read_user(file, &user, &error) < 0
                            ? NULL
                            : conn_call(&c, "AUTH %s %s", user.name, user.password);
        if (!r && !error && conn_up(&c)) {
            char *mend = mem_printf("copy %s from a host where it is accepted (all hosts have the "
                                    "same), with its owner and mode, and restart %s",
                                    file, program[i]);
            check_say(ctl, FINDING_CRITICAL, FOUND_PASSWORD_REFUSED, about, mend,
                      "refuses the user and the password of %s: %s", file, c.trouble);
            free(mend);
            refused = true;
        }
        if (r)
            freeReplyObject(r);
        explicit_bzero(&user, sizeof user);
        free(error);
        free(file);
    }
    if (!refused && conn_up(&c))
        check_good(ctl, about, "accepts the passwords of the programs here");
    conn_close(&c);
}

void check_nodes(struct ctl *ctl)
{
    struct node_facts *facts = mem_zero((ctl->nconns + 1) * sizeof *facts);
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *c = &ctl->conn[i];
        char about[80];
        snprintf(about, sizeof about, "node %s", ctl->config->node[i].name);
        redisReply *info = conn_open(c, ctl->config, i) ? conn_call(c, "LANE.INFO") : NULL;
        if (!info) {
            check_say(ctl, FINDING_CRITICAL, FOUND_NODE_SILENT, about,
                      "start its Redis with lane.so, or mend its address", "%s does not answer: %s",
                      ctl->config->node[i].redis, c->trouble);
            continue;
        }
        snprintf(facts[i].version, sizeof facts[i].version, "%lld", conn_number(info, "version"));
        facts[i].up = true;
        check_good(ctl, about, "answers");
        check_link(ctl, c, i);
        check_memory(ctl, c, info);
        check_settings(ctl, c, info);
        check_client_memory(ctl, c, info);
        check_times(ctl, c, i);
        if (ctl->config->takeover == TAKEOVER_AUTOMATIC)
            check_whole(ctl, c);
        check_clock(ctl, c);
        check_users(ctl, c);
        check_passwords(ctl, i, about);
        check_relay(ctl, c);
        check_milters(ctl, c);
        for (size_t k = 0; k < i; k++)
            if (facts[k].up && strcmp(facts[k].version, facts[i].version))
                check_say(ctl, FINDING_WARNING, FOUND_VERSIONS, about,
                          "the same version everywhere", "lane.so is version %s, on %s %s",
                          facts[i].version, ctl->config->node[k].name, facts[k].version);
        freeReplyObject(info);
    }
    check_suspended(ctl);
    check_spread(ctl);
    check_states(ctl);
    check_replica_nodes(ctl);
    free(facts);
}
