#include "ctl/conn.h"

#include <errno.h>
#include <ev.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/redis/path.h"
#include "lib/redis/reader.h"

#define CONNECT 2. /* seconds, for each address */
#define ANSWER 5.
#define ANSWER_MOST ((size_t)1 << 30) /* bytes (reader.h) */

struct link {
    struct endpoint *to;
    struct path *path;
    struct reader *reader;
};

static bool fail(struct conn *c, const char *why)
{
    snprintf(c->trouble, sizeof c->trouble, "%s", why);
    conn_close(c);
    return false;
}

/* ---- connecting ---- */

struct dialling {
    struct ev_loop *loop;
    bool open;
    char *why;
    size_t size;
};

static void on_dialled(struct path *p, const char *why, void *arg)
{
    struct dialling *d = arg;
    (void)p;
    d->open = !why;
    snprintf(d->why, d->size, "%s", why ? why : "");
    ev_break(d->loop, EVBREAK_ALL);
}

/* NULL: c->path_trouble says why. */
static struct path *dial(struct conn *c, struct endpoint *to, size_t which)
{
    struct dialling d = {.loop = ev_default_loop(0),
                         .why = c->path_trouble[which],
                         .size = sizeof c->path_trouble[which]};
    /* OpenSSL writes without MSG_NOSIGNAL; for our output a closed pipe is to mean what it
     * always does. */
    void (*was)(int) = signal(SIGPIPE, SIG_IGN);
    struct path *p = path_open(d.loop, to, which, true, CONNECT, on_dialled, &d);
    ev_now_update(d.loop);
    ev_run(d.loop, 0);
    if (!d.open)
        path_close(p, false);
    signal(SIGPIPE, was);
    return d.open ? p : NULL;
}

/* The server must be the one that the config means: a mistyped address would show one node's
 * mails as two copies. */
static bool know(struct conn *c)
{
    redisReply *info = conn_call(c, "LANE.INFO");
    if (!info) {
        conn_close(c); /* it refused; the text is kept */
        return false;
    }
    char why[160] = "";
    if (info->type != REDIS_REPLY_ARRAY)
        snprintf(why, sizeof why, "LANE.INFO gave no list");
    else if (strcmp(conn_text(info, "node"), c->name))
        snprintf(why, sizeof why, "it says it is node \"%.60s\"", conn_text(info, "node"));
    else if (conn_number(info, "grammar") != 1)
        snprintf(why, sizeof why, "its lane.so speaks another grammar");
    c->used = conn_number(info, "used-memory");
    c->most = conn_number(info, "maxmemory");
    freeReplyObject(info);
    return *why ? fail(c, why) : true;
}

static bool use(struct conn *c, struct endpoint *to, struct path *p)
{
    c->link = mem_alloc(sizeof *c->link);
    *c->link = (struct link){to, p, reader_open(ANSWER_MOST)};
    return know(c);
}

enum conn_found conn_try(struct conn *c, const struct config *config, size_t node, size_t which)
{
    struct config_link l = config_node_link(config, node);
    struct endpoint *to = endpoint_new(&l);
    struct conn other = {.name = c->name};
    struct path *p = which < endpoint_addresses(to) ? dial(c, to, which) : NULL;
    if (!p) {
        endpoint_free(to);
        return CONN_SILENT;
    }
    bool good = use(&other, to, p);
    conn_close(&other);
    if (good)
        return CONN_RIGHT;
    snprintf(c->path_trouble[which], sizeof c->path_trouble[which], "%.399s", other.trouble);
    return CONN_WRONG;
}

static bool open_link(struct conn *c, const char *name, const struct config_link *link)
{
    struct config_link l = *link;
    struct endpoint *to = endpoint_new(&l);
    struct path *p = NULL;
    size_t n = endpoint_addresses(to);
    conn_close(c);
    *c = (struct conn){.name = name, .address = l.address};
    for (size_t i = 0; i < n && !p; i++) {
        p = dial(c, to, i);
        if (p && i)
            c->address = l.standby;
    }
    if (!p) {
        snprintf(c->trouble, sizeof c->trouble, "%s%s%s%s%s", c->path_trouble[0],
                 n > 1 ? "; at its standby address " : "", n > 1 ? l.standby : "",
                 n > 1 ? ": " : "", n > 1 ? c->path_trouble[1] : "");
        endpoint_free(to);
        return false;
    }
    return use(c, to, p);
}

bool conn_open(struct conn *c, const struct config *config, size_t node)
{
    struct config_link l = config_node_link(config, node);
    return open_link(c, config->node[node].name, &l);
}

bool conn_open_replica(struct conn *c, const struct config *config, size_t replica)
{
    const struct config_replica *r = &config->replica[replica];
    struct config_link l = config_replica_link(config, replica);
    l.at = NULL;
    l.user_file = config->node_user_file;
    return open_link(c, *r->node ? r->node : r->name, &l);
}

void conn_close(struct conn *c)
{
    struct link *l = c->link;
    c->link = NULL;
    if (!l)
        return;
    void (*was)(int) = signal(SIGPIPE, SIG_IGN);
    path_close(l->path, false);
    signal(SIGPIPE, was);
    endpoint_free(l->to);
    reader_close(l->reader);
    free(l);
}

bool conn_up(const struct conn *c)
{
    return c->link != NULL;
}

int64_t conn_until(const struct conn *c, bool own)
{
    return c->link ? path_until(c->link->path, own) : 0;
}

/* ---- asking ---- */

/* False: not ready until then. */
static bool wait_for(const struct link *l, short events, double until)
{
    struct pollfd fd = {path_fd(l->path),
                        (short)(events | (path_wants_write(l->path) ? POLLOUT : 0)), 0};
    for (;;) {
        double left = until - clock_monotonic();
        int n = left > 0 ? poll(&fd, 1, (int)(left * 1000) + 1) : 0;
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
        if (!n)
            return false;
    }
}

static bool again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static const char *send_all(struct link *l, char *data, size_t len, double until)
{
    while (len) {
        struct iovec v = {data, len};
        ssize_t n = path_writev(l->path, &v, 1);
        if (n < 0 && !again(n))
            return path_error(l->path);
        if (n < 0 && !wait_for(l, POLLOUT, until))
            return "no answer";
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return NULL;
}

/* The answer, or NULL with *why_r. */
static redisReply *receive(struct link *l, double until, const char **why_r)
{
    static char input[65536];
    redisReply *reply = NULL;
    for (;;) {
        if (!reader_next(l->reader, &reply)) {
            *why_r = reader_error(l->reader);
            return NULL;
        }
        if (reply)
            return reply;
        ssize_t n = path_read(l->path, input, sizeof input);
        *why_r = !n                                     ? "closed by the server"
                 : n < 0 && !again(n)                   ? path_error(l->path)
                 : n < 0 && !wait_for(l, POLLIN, until) ? "no answer"
                                                        : NULL;
        if (*why_r)
            return NULL;
        if (n > 0 && !reader_feed(l->reader, input, (size_t)n)) {
            *why_r = reader_error(l->reader);
            return NULL;
        }
    }
}

/* data: from hiredis, freed here. */
static redisReply *ask(struct conn *c, char *data, long long len)
{
    double until = clock_monotonic() + ANSWER;
    if (len < 0)
        abort();
    void (*was)(int) = signal(SIGPIPE, SIG_IGN); /* as in dial */
    const char *why = send_all(c->link, data, (size_t)len, until);
    signal(SIGPIPE, was);
    free(data);
    redisReply *reply = why ? NULL : receive(c->link, until, &why);
    if (!reply) {
        fail(c, why);
        return NULL;
    }
    if (reply->type != REDIS_REPLY_ERROR)
        return reply;
    snprintf(c->trouble, sizeof c->trouble, "%s", reply->str);
    freeReplyObject(reply);
    return NULL;
}

redisReply *conn_call(struct conn *c, const char *format, ...)
{
    char *data = NULL;
    if (!c->link)
        return NULL;
    va_list ap;
    va_start(ap, format);
    int len = redisvFormatCommand(&data, format, ap);
    va_end(ap);
    return ask(c, data, len);
}

redisReply *conn_call_words(struct conn *c, int n, const char **word, const size_t *len)
{
    char *data = NULL;
    if (!c->link)
        return NULL;
    long long size = redisFormatCommandArgv(&data, n, word, len);
    return ask(c, data, size);
}

bool conn_shaped(const redisReply *r, const char *shape)
{
    if (!r || r->type != REDIS_REPLY_ARRAY || r->elements < strlen(shape))
        return false;
    for (size_t i = 0; shape[i]; i++) {
        int type = r->element[i]->type;
        if ((shape[i] == 's' && type != REDIS_REPLY_STRING && type != REDIS_REPLY_STATUS) ||
            (shape[i] == 'i' && type != REDIS_REPLY_INTEGER) ||
            (shape[i] == 'l' && type != REDIS_REPLY_ARRAY))
            return false;
    }
    return true;
}

const redisReply *conn_field(const redisReply *list, const char *name)
{
    for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i + 1 < list->elements; i += 2)
        if (list->element[i]->str && !strcmp(list->element[i]->str, name))
            return list->element[i + 1];
    return NULL;
}

long long conn_number(const redisReply *list, const char *name)
{
    const redisReply *v = conn_field(list, name);
    return !v ? -1 : v->type == REDIS_REPLY_INTEGER ? v->integer : v->str ? atoll(v->str) : -1;
}

const char *conn_text(const redisReply *list, const char *name)
{
    const redisReply *v = conn_field(list, name);
    return v && v->str ? v->str : "";
}
