/* Parsing by libconfuse; the options table is made from settings.def. Times and sizes are texts to libconfuse and get their
 * units here, so that an error names the line. */
#include "config.h"

#include <confuse.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

/* ---- units ---- */

struct unit {
    const char *name;
    double factor;
};

static const struct unit time_units[] = {{"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0}};
static const struct unit size_units[] = {{"", 1}, {"B", 1}, {"kB", 1024}, {"MB", 1048576}, {"GB", 1073741824}, {NULL, 0}};

static bool with_unit(const char *text, const struct unit *units, int64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    double v = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (; units->name; units++) {
        if (strcasecmp(end, units->name))
            continue;
        v *= units->factor;
        if (!(v < 9e18))
            return false;
        *out = (int64_t)(v + 0.5);
        return true;
    }
    return false;
}

/* ---- the table ---- */

enum kind { KIND_INT, KIND_TIME, KIND_SIZE, KIND_WORD, KIND_OTHER };

struct setting {
    const char *name;
    enum kind kind;
    int64_t least, most;
    const char *words;
};

static const struct setting settings[] = {
#define INT(name, unit, def, least, most, help) {#name, KIND_INT, least, most, NULL},
#define TIME(name, def, least, most, help) {#name, KIND_TIME, least, most, NULL},
#define SIZE(name, def, least, most, help) {#name, KIND_SIZE, least, most, NULL},
#define WORD(name, def, words, help) {#name, KIND_WORD, 0, 0, words},
#include "settings.def"
    {NULL, KIND_OTHER, 0, 0, NULL}};

static const struct setting *setting_named(const char *name)
{
    for (const struct setting *s = settings; s->name; s++)
        if (!strcmp(s->name, name))
            return s;
    return NULL;
}

static int word_index(const char *words, const char *text)
{
    size_t n = strlen(text);
    int i = 0;
    for (const char *w = words;; i++) {
        size_t len = strcspn(w, "|");
        if (len == n && !strncmp(w, text, n))
            return i;
        if (!w[len])
            return -1;
        w += len + 1;
    }
}

static int check_value(cfg_t *cfg, cfg_opt_t *opt)
{
    const struct setting *s = setting_named(cfg_opt_name(opt));
    if (!s)
        return 0;
    if (s->kind == KIND_INT) {
        long v = cfg_opt_getnint(opt, cfg_opt_size(opt) - 1);
        if (v >= s->least && v <= s->most)
            return 0;
        cfg_error(cfg, "%s = %ld, allowed is %lld to %lld", s->name, v, (long long)s->least, (long long)s->most);
        return -1;
    }
    const char *text = cfg_opt_getnstr(opt, cfg_opt_size(opt) - 1);
    if (s->kind == KIND_WORD) {
        if (word_index(s->words, text) >= 0)
            return 0;
        cfg_error(cfg, "%s = %s, allowed is one of %s", s->name, text, s->words);
        return -1;
    }
    int64_t v;
    bool time = s->kind == KIND_TIME;
    if (!with_unit(text, time ? time_units : size_units, &v)) {
        cfg_error(cfg, "%s = %s is no %s, write it like %s", s->name, text, time ? "time" : "size", time ? "400ms, 1.5s, 10min, 1h" : "512, 256kB, 25MB, 1GB (no blank before the unit)");
        return -1;
    }
    if (v < s->least || v > s->most) {
        cfg_error(cfg, "%s = %s, allowed is %lld to %lld %s", s->name, text, (long long)s->least, (long long)s->most, time ? "ms" : "bytes");
        return -1;
    }
    return 0;
}

/* ---- errors: libconfuse reports through a callback; the first one is kept ---- */

static _Thread_local char *first_error;

static void keep_error(cfg_t *cfg, const char *format, va_list ap)
{
    char text[512];
    vsnprintf(text, sizeof text, format, ap);
    if (first_error)
        return;
    if (cfg && cfg->filename && cfg->line)
        first_error = mem_printf("%s:%d: %s", cfg->filename, cfg->line, text);
    else if (cfg && cfg->filename)
        first_error = mem_printf("%s: %s", cfg->filename, text);
    else
        first_error = mem_strdup(text);
}

/* ---- reading ---- */

/* libconfuse's own words for these would be those of its scanner. */
static char *unreadable(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mem_printf("%s: %s", path, strerror(errno));
    bool file = fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode);
    close(fd);
    return file ? NULL : mem_printf("%s: is a directory", path);
}

static void parse(const char *path, cfg_t **cfg_r)
{
    first_error = unreadable(path);
    if (first_error)
        return;
    cfg_opt_t node_opts[] = {
#define NODE_TEXT(name, def, help) CFG_STR(#name, def, CFGF_NONE),
#include "settings.def"
        CFG_END()};
    cfg_opt_t opts[] = {
#define INT(name, unit, def, least, most, help) CFG_INT(#name, def, CFGF_NONE),
#define TIME(name, def, least, most, help) CFG_STR(#name, #def "ms", CFGF_NONE),
#define SIZE(name, def, least, most, help) CFG_STR(#name, #def, CFGF_NONE),
#define WORD(name, def, words, help) CFG_STR(#name, NULL, CFGF_NODEFAULT),
#define TEXT(name, def, help) CFG_STR(#name, def, CFGF_NONE),
#define LIST(name, help) CFG_STR_LIST(#name, "{}", CFGF_NONE),
#include "settings.def"
        CFG_SEC("node", node_opts, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES), CFG_END()};
    cfg_t *cfg = cfg_init(opts, CFGF_NONE);
    if (!cfg)
        return;
    cfg_set_error_function(cfg, keep_error);
    for (const struct setting *s = settings; s->name; s++)
        cfg_set_validate_func(cfg, s->name, check_value);
    int r = cfg_parse(cfg, path);
    if (r == CFG_SUCCESS && !first_error) {
        *cfg_r = cfg;
        return;
    }
    if (r == CFG_FILE_ERROR)
        first_error = mem_printf("%s: %s", path, strerror(errno));
    else if (!first_error)
        first_error = mem_printf("%s: syntax error", path);
    cfg_free(cfg);
}

static struct config_list copy_list(cfg_t *cfg, const char *name)
{
    struct config_list l = {cfg_size(cfg, name), NULL};
    l.v = mem_zero(l.n * sizeof *l.v);
    for (size_t i = 0; i < l.n; i++)
        l.v[i] = mem_strdup(cfg_getnstr(cfg, name, (unsigned)i));
    return l;
}

static int64_t unit_value(const char *text, const struct unit *units)
{
    int64_t v = 0;
    with_unit(text, units, &v);
    return v;
}

static void fill(struct config *c, cfg_t *cfg)
{
#define INT(name, unit, def, least, most, help) c->name = cfg_getint(cfg, #name);
#define TIME(name, def, least, most, help) c->name = unit_value(cfg_getstr(cfg, #name), time_units);
#define SIZE(name, def, least, most, help) c->name = unit_value(cfg_getstr(cfg, #name), size_units);
#define WORD(name, def, words, help)                                                                                   \
    c->name = cfg_getstr(cfg, #name) ? word_index(words, cfg_getstr(cfg, #name)) : def;
#define TEXT(name, def, help) c->name = mem_strdup(cfg_getstr(cfg, #name));
#define LIST(name, help) c->name = copy_list(cfg, #name);
#include "settings.def"
    c->nnodes = cfg_size(cfg, "node");
    c->node = mem_zero(c->nnodes * sizeof *c->node);
    for (size_t i = 0; i < c->nnodes; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "node", (unsigned)i);
        struct config_node *n = &c->node[i];
        n->name = mem_strdup(cfg_title(sec));
#define NODE_TEXT(name, def, help) n->name = mem_strdup(cfg_getstr(sec, #name));
#include "settings.def"
    }
}

/* ---- what one setting alone cannot tell ---- */

static char *check_nodes(const struct config *c, const char *path)
{
    char buf[512];
    const char *host, *port;
    for (size_t i = 0; i < c->nnodes; i++) {
        const struct config_node *n = &c->node[i];
        size_t len = strlen(n->name);
        if (!len || len > 64 || strspn(n->name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != len)
            return mem_printf("%s: node \"%s\": a node's name has 1 to 64 of the characters a-z 0-9 . -", path, n->name);
        if (!*n->redis)
            return mem_printf("%s: node %s has no address: add redis = \"host:port\" or \"unix:/path\"", path, n->name);
        if (config_address(n->redis, buf, sizeof buf, &host, &port) < 0)
            return mem_printf("%s: node %s: redis = %s is no address, write it like 10.0.0.1:6379, [fd00::1]:6379 or unix:/path", path, n->name, n->redis);
        for (size_t j = 0; j < i; j++)
            if (!strcmp(c->node[j].redis, n->redis))
                return mem_printf("%s: nodes %s and %s have the same redis = %s: two copies in one server are one copy", path, c->node[j].name, n->name,
                                  n->redis);
    }
    for (size_t i = 0; i < c->dead.n; i++)
        if (config_node_index(c, c->dead.v[i]) < 0)
            return mem_printf("%s: dead names %s, but there is no node of that name", path, c->dead.v[i]);
    return NULL;
}

static char *check_next_hop(const char *d, const char *path)
{
    char buf[512];
    const char *host, *port, *hop = strchr(d, ':');
    if (strncmp(d, "smtp:", 5) && strncmp(d, "relay:", 6) && strncmp(d, "lmtp:", 5))
        return mem_printf("%s: divert has \"%s\": it must begin with smtp:, relay: or lmtp:", path, d);
    hop++;
    if (!strncmp(hop, "unix:", 5)) {
        if (hop[5] == '/')
            return NULL;
        return mem_printf("%s: divert has \"%s\": the socket's path must be absolute, in Postfix's transport too: the relay knows no queue_directory", path, d);
    }
    size_t n = strlen(hop);
    if (hop[0] != '[')
        return mem_printf("%s: divert has \"%s\": only next hops with an address can be diverted to: [host]:port or unix:/path", path, d);
    /* "[10.0.0.5]:24" as "10.0.0.5:24" for the check; without a port it is the transport's own. */
    if (hop[n - 1] == ']' && n > 2)
        return NULL;
    if (strchr(hop, ']') && config_address(hop, buf, sizeof buf, &host, &port) == 0)
        return NULL;
    return mem_printf("%s: divert has \"%s\": write the next hop like [10.0.0.5]:24", path, d);
}

static char *check_places(const struct config *c, const char *path)
{
    char buf[512];
    const char *host, *port;
    if (*c->bounce_port && config_address(c->bounce_port, buf, sizeof buf, &host, &port) < 0)
        return mem_printf("%s: bounce_port = %s is no address, write it like 127.0.0.1:10026 or unix:/path", path, c->bounce_port);
    if (c->milter_socket[0] != '/')
        return mem_printf("%s: milter_socket = %s must be the absolute path of a UNIX socket", path, c->milter_socket);
    if (*c->metrics_socket && c->metrics_socket[0] != '/')
        return mem_printf("%s: metrics_socket = %s must be the absolute path of a UNIX socket", path, c->metrics_socket);
    if (strcmp(c->log, "stderr") && strcmp(c->log, "syslog") && strncmp(c->log, "file:/", 6))
        return mem_printf("%s: log = %s, allowed is stderr, syslog or file:/path", path, c->log);
    return NULL;
}

static char *check_whole(const struct config *c, const char *path)
{
    char *error = check_nodes(c, path);
    if (error)
        return error;
    if (c->nnodes && (size_t)c->copies > c->nnodes)
        return mem_printf("%s: copies = %lld, but only %zu nodes are configured: add node sections or lower copies", path, (long long)c->copies,
                          c->nnodes);
    /* A copy may be compared, and dropped where the other owner has none, once it is older than settle: no promise may come later. */
    int64_t slowest = c->store_deadline + c->max_entry / 10000 + 500;
    if (c->settle < slowest)
        return mem_printf("%s: settle = %lldms must be at least store_deadline + 1 s per 10 MB of max_entry + 500 ms = %lldms: raise settle here "
                          "and lane.settle-ms in each node's redis.conf", path, (long long)c->settle, (long long)slowest);
    for (size_t i = 0; i < c->divert.n; i++) {
        char *wrong = check_next_hop(c->divert.v[i], path);
        if (wrong)
            return wrong;
    }
    if (c->retry_first > c->retry_most)
        return mem_printf("%s: retry_first = %lldms is more than retry_most = %lldms", path, (long long)c->retry_first, (long long)c->retry_most);
    return check_places(c, path);
}

struct config *config_read(const char *path, char **error_r)
{
    cfg_t *cfg = NULL;
    first_error = NULL;
    parse(path, &cfg);
    if (!cfg) {
        *error_r = first_error ? first_error : mem_printf("%s: cannot be parsed", path);
        first_error = NULL;
        return NULL;
    }
    struct config *c = mem_zero(sizeof *c);
    fill(c, cfg);
    cfg_free(cfg);
    char *error = check_whole(c, path);
    if (error) {
        config_free(c);
        *error_r = error;
        return NULL;
    }
    return c;
}

static void list_free(struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->nnodes; i++) {
        struct config_node *n = &c->node[i];
#define NODE_TEXT(name, def, help) free(n->name);
#include "settings.def"
        free(n->name);
    }
    free(c->node);
#define TEXT(name, def, help) free(c->name);
#define LIST(name, help) list_free(&c->name);
#include "settings.def"
    free(c);
}

/* ---- small questions ---- */

int config_node_index(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->nnodes; i++)
        if (!strcmp(c->node[i].name, name))
            return (int)i;
    return -1;
}

bool config_list_has(const struct config_list *l, const char *text)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], text))
            return true;
    return false;
}

int config_address(const char *address, char *buf, size_t size, const char **host_r, const char **port_r)
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
