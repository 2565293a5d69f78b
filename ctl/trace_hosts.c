#include "ctl/trace_hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ctl/row.h"
#include "ctl/trace_line.h"
#include "lib/base/mem.h"

#define HOSTS_MOST 1000
#define ANY_SOURCE ((size_t)-1)

struct trace_host {
    char *name;
    bool is_log; /* Dovecot's own, whose lines name no host */
};

/* What a program said of itself at its start. */
struct trace_named {
    size_t source;
    bool replica;
    char *host; /* the log's path where lines name none */
    char *name; /* of the node, or of the replica; "": several, so nobody knows */
};

void trace_hosts_free(struct trace_hosts *t)
{
    for (size_t i = 0; i < t->nhosts; i++)
        free(t->host[i].name);
    for (size_t i = 0; i < t->nnamed; i++) {
        free(t->named[i].host);
        free(t->named[i].name);
    }
    free(t->host);
    free(t->named);
}

/* ---- hosts ---- */

static void hear(struct trace_hosts *t, const char *name, size_t len, bool is_log)
{
    for (size_t i = 0; i < t->nhosts; i++)
        if (!strncmp(t->host[i].name, name, len) && !t->host[i].name[len])
            return;
    if (!len || t->nhosts == HOSTS_MOST)
        return;
    t->host = mem_grow(t->host, (t->nhosts + 1) * sizeof *t->host);
    t->host[t->nhosts++] = (struct trace_host){mem_strndup(name, len), is_log};
}

void trace_hosts_hear(struct trace_hosts *t, const char *host, size_t len)
{
    hear(t, host, len, false);
}

/* By their first labels. */
static bool is_same_host(const char *a, const char *b)
{
    size_t len = strcspn(a, ".");
    return strcspn(b, ".") == len && !strncasecmp(a, b, len);
}

static void hear_member(struct trace_hosts *t, const char *line, size_t len, const char *key)
{
    const char *at = memmem(line, len, key, strlen(key));
    const char *end =
        at ? memchr(at + strlen(key), '"', len - (size_t)(at - line) - strlen(key)) : NULL;
    if (end)
        trace_hosts_hear(t, at + strlen(key), (size_t)(end - at) - strlen(key));
}

/* ---- who they are ---- */

static struct trace_named *named_at(const struct trace_hosts *t, size_t source, const char *host,
                                    bool replica)
{
    for (size_t i = 0; i < t->nnamed; i++)
        if ((t->named[i].source == source || t->named[i].source == ANY_SOURCE) &&
            t->named[i].replica == replica && !strcmp(t->named[i].host, host))
            return &t->named[i];
    return NULL;
}

static void learn(struct trace_hosts *t, size_t source, const char *host, bool replica,
                  const char *name, size_t len)
{
    struct trace_named *known = named_at(t, source, host, replica);
    trace_hosts_hear(t, name, len);
    if (known && (strncmp(known->name, name, len) || known->name[len]))
        *known->name = '\0';
    if (known || !len || t->nnamed == HOSTS_MOST)
        return;
    t->named = mem_grow(t->named, (t->nnamed + 1) * sizeof *t->named);
    t->named[t->nnamed++] =
        (struct trace_named){source, replica, mem_strdup(host), mem_strndup(name, len)};
}

/* What stands behind a beginning of s, or NULL. */
static const char *behind(const char *s, const char *beginning)
{
    return strncmp(s, beginning, strlen(beginning)) ? NULL : s + strlen(beginning);
}

/* "dovelane-relay VERSION for node mx1" */
static void hear_relay(struct trace_hosts *t, size_t source, const char *host, const char *text)
{
    const char *at = behind(text, "dovelane-relay ");
    const char *name = at ? behind(at + strcspn(at, " "), " for node ") : NULL;
    if (name)
        learn(t, source, host, false, name, strcspn(name, " ,"));
}

/* Through Dovecot, whose own logs have a level: "[Info: ]replica site-a, site 1, of 2 ..." */
static void hear_replicator(struct trace_hosts *t, size_t source, const char *host,
                            const char *text)
{
    const char *at = behind(text, "dovelane-replicator: "), *info;
    if (!at)
        at = text;
    if ((info = behind(at, "Info: ")))
        at = info;
    const char *name = behind(at, "replica ");
    const char *end = name ? strstr(name, ", site ") : NULL;
    if (end && isdigit((unsigned char)end[7]))
        learn(t, source, host, true, name, (size_t)(end - name));
}

static void hear_start(struct trace_hosts *t, size_t source, const char *path, const char *line,
                       size_t len)
{
    bool relay = memmem(line, len, "dovelane-relay ", 15);
    if (!relay &&
        !(memmem(line, len, "dovelane-replicator", 19) && memmem(line, len, ", site ", 7)))
        return;
    struct trace_line l;
    trace_line_parse(&l, line, len, 0);
    const char *host = *l.host ? l.host : path;
    size_t n = strlen(l.program);
    if (relay && n >= 14 && !strcmp(l.program + n - 14, "dovelane-relay"))
        hear_relay(t, source, host, l.text);
    else if (!strcmp(l.program, "dovecot") || strstr(l.program, "dovelane-replicator"))
        hear_replicator(t, source, host, l.text);
    trace_line_free(&l);
}

void trace_hosts_hear_own(struct trace_hosts *t)
{
    char host[256] = "", line[256];
    gethostname(host, sizeof host - 1);
    trace_hosts_hear(t, host, strlen(host));
    FILE *f = fopen("/etc/default/dovelane", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *name = behind(line, "DOVELANE_NODE=");
        if (name)
            learn(t, ANY_SOURCE, host, false, name, strcspn(name, "\r\n"));
    }
    if (f)
        fclose(f);
}

void trace_hosts_hear_line(struct trace_hosts *t, size_t source, const char *path, const char *line,
                           size_t len)
{
    if (memmem(line, len, "\"time\":", 7)) {
        hear_member(t, line, len, "\"host\":\"");
        hear_member(t, line, len, "\"node\":\"");
    } else if (*line == '{') {
        hear_member(t, line, len, "\"_HOSTNAME\":\"");
        hear_member(t, line, len, "\"DOVELANE_NODE\":\"");
    } else if (len > 30 && line[10] == 'T') {
        const char *host = memchr(line, ' ', len);
        const char *end = host ? memchr(host + 1, ' ', len - (size_t)(host - line) - 1) : NULL;
        if (end)
            trace_hosts_hear(t, host + 1, (size_t)(end - host) - 1);
    } else if (len > 20 && line[3] == ' ' && line[15] == ' ') {
        const char *end = memchr(line + 16, ' ', len - 16);
        if (end && end[-1] != ':' && !memchr(line + 16, '(', (size_t)(end - line) - 16))
            trace_hosts_hear(t, line + 16, (size_t)(end - line) - 16);
        else if (end)
            hear(t, path, strlen(path), true);
    }
    hear_start(t, source, path, line, len);
}

/* ---- answers ---- */

bool trace_hosts_heard(const struct trace_hosts *t, const char *name)
{
    for (size_t i = 0; i < t->nhosts; i++)
        if (is_same_host(t->host[i].name, name))
            return true;
    return false;
}

const char *trace_hosts_name(const struct trace_hosts *t, size_t source, const char *host,
                             bool replica)
{
    const struct trace_named *n = named_at(t, source, host, replica);
    return n && *n->name ? n->name : NULL;
}

static bool is_stranger(const struct trace_hosts *t, const struct config *c, const char *host,
                        bool replica)
{
    for (size_t i = 0; i < t->nnamed; i++)
        if (t->named[i].replica == replica && !strcmp(t->named[i].host, host))
            return false;
    for (size_t i = 0; i < c->nnodes; i++)
        if (is_same_host(c->node[i].name, host))
            return replica;
    for (size_t i = 0; i < c->nreplicas; i++)
        if (is_same_host(c->replica[i].name, host))
            return !replica;
    return true;
}

json_t *trace_hosts_strangers(const struct trace_hosts *t, const struct config *c, bool replica)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->nhosts; i++)
        if ((replica || !t->host[i].is_log) && is_stranger(t, c, t->host[i].name, replica))
            row_append_text(list, t->host[i].name);
    return list;
}
