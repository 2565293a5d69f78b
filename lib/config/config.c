/* Questions that a config answers. It is read in config_read.c, and judged as a whole in
 * config_wrong.c. */
#include "lib/config/config_work.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

int config_node_index(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->nnodes; i++)
        if (!strcmp(c->node[i].name, name))
            return (int)i;
    return -1;
}

int config_replica_index(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->nreplicas; i++)
        if (!strcmp(c->replica[i].name, name))
            return (int)i;
    return -1;
}

bool config_is_backup(const struct config_replica *r)
{
    return !strcmp(r->role, "backup");
}

bool config_is_on_demand(const struct config_replica *r)
{
    return !strcmp(r->role, "on-demand");
}

size_t config_sets(const struct config *c)
{
    size_t n = c->nnodes > 0;
    for (size_t i = 1; n && i < (size_t)c->copies; i++)
        n = n * (c->nnodes - i) / i;
    return n;
}

const struct config_destination *config_destination(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->ndestinations; i++)
        if (!strcmp(c->destination[i].name, name))
            return &c->destination[i];
    return &c->other;
}

bool config_destination_says(const struct config_destination *d, const char *setting)
{
#define DESTINATION_WORD(name, def, words, help) \
    if (!strcmp(setting, #name))                 \
        return d->name != (def);
#define DESTINATION_TEXT(name, def, help) \
    if (!strcmp(setting, #name))          \
        return strcmp(d->name, def) != 0;
#define DESTINATION_LIST(name, words, help) \
    if (!strcmp(setting, #name))            \
        return d->name.n > 0;
#define DESTINATION_INT(name, unit, def, least, most, help) \
    if (!strcmp(setting, #name))                            \
        return d->name != (def);
#define DESTINATION_TIME(name, def, least, most, help) \
    if (!strcmp(setting, #name))                       \
        return d->name != (def);
#include "lib/config/settings.def"
    return false;
}

bool config_list_has(const struct config_list *l, const char *text)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], text))
            return true;
    return false;
}

static bool is_replicated(const struct config_destination *d)
{
    return d->until == UNTIL_REPLICATED;
}

bool config_any_replicated(const struct config *c)
{
    bool any = is_replicated(&c->other);
    for (size_t i = 0; i < c->ndestinations; i++)
        any |= is_replicated(&c->destination[i]);
    return any;
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo): tells files apart that an admin meant to be equal, nothing
 * more. */
#define FNV_BASIS 0xcbf29ce484222325u

static void mix(uint64_t *h, const char *text)
{
    for (;; text++) {
        *h = (*h ^ (unsigned char)*text) * 0x100000001b3u;
        if (!*text)
            return;
    }
}

/* A setting that an earlier version has not: with its default nothing is mixed, so that hosts of
 * both versions with the same file agree. */
static void mix_if(uint64_t *h, const char *name, const char *value)
{
    if (*value) {
        mix(h, name);
        mix(h, value);
    }
}

/* The same of a number. */
static void mix_later(uint64_t *h, const char *setting, int64_t value, int64_t by_default)
{
    char text[24];
    if (value == by_default)
        return;
    snprintf(text, sizeof text, "%lld", (long long)value);
    mix(h, setting);
    mix(h, text);
}

static void mix_list(uint64_t *h, const struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mix(h, l->v[i]);
    mix(h, "");
}

/* A default is 0, as that of an earlier version was whose words were fewer: hosts of both versions
 * with the same file are to agree. */
static int rank(int value, int by_default)
{
    return value == by_default ? 0 : value ? value : by_default;
}

static bool is_later(const char *setting)
{
    static const char *const later[] = {
        "until", "replicated_away", "spread_over", "spread_least", "prefer", "site", "zone"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (!strcmp(setting, later[i]))
            return true;
    return false;
}

static void mix_destination(uint64_t *h, const struct config_destination *d)
{
    mix(h, d->name);
#define DESTINATION_WORD(setting, def, words, help) \
    if (is_later(#setting))                         \
        mix_later(h, #setting, d->setting, def);    \
    else                                            \
        mix(h, (const char[]){(char)('0' + rank(d->setting, def)), '\0'});
#define DESTINATION_INT(setting, unit, def, least, most, help) \
    mix_later(h, #setting, d->setting, def);
#define DESTINATION_TIME(setting, def, least, most, help) mix_later(h, #setting, d->setting, def);
#define DESTINATION_TEXT(setting, def, help) \
    if (is_later(#setting))                  \
        mix_if(h, #setting, d->setting);     \
    else                                     \
        mix(h, d->setting);
#define DESTINATION_LIST(setting, words, help) mix_list(h, &d->setting);
#include "lib/config/settings.def"
}

/* In whatever order they stand: hosts that learned of each other have them in different ones. */
static void mix_nodes(const struct config *c, uint64_t *h)
{
    uint64_t sum = 0;
    char text[24];
    for (size_t i = 0; i < c->nnodes; i++) {
        uint64_t one = FNV_BASIS;
        if (config_list_has(&c->forgotten, c->node[i].name))
            continue;
        mix(&one, c->node[i].name);
        mix(&one, c->node[i].redis);
        mix(&one, c->node[i].standby);
        mix_if(&one, "site", c->node[i].site);
        mix_if(&one, "zone", c->node[i].zone);
        sum += one;
    }
    snprintf(text, sizeof text, "%d %llx", c->membership, (unsigned long long)sum);
    mix(h, text);
}

void config_digest(const struct config *c, char out[CONFIG_DIGEST])
{
    uint64_t h = FNV_BASIS;
    const int64_t number[] = {c->copies,      c->on_store_failure, c->store_deadline,
                              c->revoke_wait, c->max_entry,        c->suspect_after,
                              c->settle,      c->lane_time,        c->spill_above,
                              c->takeover,    c->dead_after,       c->head_hold};
    char text[24];
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        snprintf(text, sizeof text, "%lld", (long long)number[i]);
        mix(&h, text);
    }
    mix_later(&h, "spread_over", c->spread_over, SPREAD_OVER_NODE);
    mix_later(&h, "spread_least", c->spread_least, 1);
    mix_list(&h, &c->divert);
    if (c->route.n)
        mix_list(&h, &c->route);
    for (size_t i = 0; i < c->dead.n; i++)
        if (!config_list_has(&c->forgotten, c->dead.v[i]))
            mix(&h, c->dead.v[i]);
    mix(&h, "");
    mix_nodes(c, &h);
    /* Whoever delivers, in the end a taker: all are to do it alike. */
    for (size_t i = 0; i < c->ndestinations; i++)
        mix_destination(&h, &c->destination[i]);
    mix_destination(&h, &c->other);
    mix_if(&h, "shape", c->shapes);
    config_classes_mix(c, mix, &h);
    for (size_t i = 0; i < c->nreplicas; i++)
        if (*c->replica[i].lmtp) {
            mix(&h, c->replica[i].lmtp);
            mix_later(&h, "id", c->replica[i].id, 0);
        }
    snprintf(out, CONFIG_DIGEST, "%016llx", (unsigned long long)h);
}

int config_address(const char *address, char *buf, size_t size, const char **host_r,
                   const char **port_r)
{
    size_t n = strlen(address);
    if (n + 1 > size)
        return -1;
    memcpy(buf, address, n + 1);
    if (!strncmp(buf, "unix:", 5)) {
        *host_r = buf + 5;
        *port_r = NULL;
        return buf[5] ? 0 : -1;
    }
    char *colon = strrchr(buf, ':');
    if (!colon || colon == buf)
        return -1;
    *colon = '\0';
    char *host = buf, *end;
    if (*host == '[') {
        if (colon[-1] != ']')
            return -1;
        colon[-1] = '\0';
        host++;
    } else if (strchr(host, ':')) {
        return -1;
    }
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (!*host || colon[1] < '0' || colon[1] > '9' || *end || port < 1 || port > 65535)
        return -1;
    *host_r = host;
    *port_r = colon + 1;
    return 0;
}

bool config_loopback(const char *address)
{
    char buf[512];
    const char *host, *port;
    unsigned char v4[4], v6[16];
    if (config_address(address, buf, sizeof buf, &host, &port) < 0)
        return false;
    if (!port || !strcmp(host, "localhost"))
        return true;
    if (inet_pton(AF_INET, host, v4) == 1)
        return v4[0] == 127;
    return inet_pton(AF_INET6, host, v6) == 1 && !memcmp(v6, &in6addr_loopback, sizeof v6);
}

static struct config_link link_to(const struct config *c, const char *address, const char *standby,
                                  const char *tls, const char *tls_name)
{
    return (struct config_link){.address = address,
                                .standby = standby,
                                .tls = !strcmp(tls, "yes"),
                                .tls_name = tls_name,
                                .ca_file = c->node_ca_file,
                                .cert_file = c->node_cert_file,
                                .key_file = c->node_key_file,
                                .user_file = c->node_user_file,
                                .path_timeout = config_far_time(c, FAR_PATH_TIMEOUT)};
}

struct config_link config_node_link(const struct config *c, size_t node)
{
    const struct config_node *n = &c->node[node];
    return link_to(c, n->redis, n->standby, n->tls, n->tls_name);
}

struct config_link config_replica_link(const struct config *c, size_t replica)
{
    const struct config_replica *r = &c->replica[replica];
    struct config_link l = link_to(c, r->redis, r->standby, r->tls, r->tls_name);
    if (*c->replica_user_file) {
        l.user_file = c->replica_user_file;
        l.at = r->name;
    }
    return l;
}

char *config_link_text(const struct config_link *l)
{
    return mem_printf("%s %s %d %s %s %s %s %s %s %g %g", l->address, l->standby, l->tls,
                      l->tls_name, l->ca_file, l->cert_file, l->key_file, l->user_file,
                      l->at ? l->at : "", l->path_timeout.least, l->path_timeout.most);
}

const char *config_socket_at(const struct config *c, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < c->socket_at.n; i++) {
        const char *pair = c->socket_at.v[i];
        if (!strncmp(pair, name, n) && pair[n] == '=')
            return pair + n + 1;
    }
    return NULL;
}

bool config_name_ok(const char *name)
{
    size_t len = strlen(name);
    return len && len <= 64 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}

char *config_shape_text(const struct config *c)
{
    return mem_strdup(c->shapes);
}
