#include "lib/redis/path.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "lib/base/mem.h"
#include "lib/redis/reader.h"
#include "lib/base/resolve.h"

#define ANSWERS_MOST 65536 /* bytes of those to AUTH and PING (reader.h) */
#define RECORD 16384       /* what one read of TLS gives at most */

enum stage { LOOKING_UP, CONNECTING, HANDSHAKE, ASKING, OPEN, FAILED };

struct path {
    struct ev_loop *loop;
    struct endpoint *to;
    size_t index;
    bool ask, refused;
    path_done_fn *done;
    void *arg;
    enum stage stage;
    double wait;
    /* while the name is looked up; that ends by itself, and patience begins behind it */
    struct resolve *lookup;
    int fd;
    struct tls *tls;
    ev_io io; /* until it is open */
    ev_timer patience;
    /* of AUTH and PING */
    struct buf question;
    size_t asked; /* bytes that are written */
    int owed;     /* answers */
    bool names_user;
    struct reader *reader;
    char why[640]; /* from the start: when it cannot even be begun */
};

static void stop_watching(struct path *p)
{
    ev_io_stop(p->loop, &p->io);
    ev_timer_stop(p->loop, &p->patience);
    reader_close(p->reader);
    p->reader = NULL;
    if (p->question.data)
        explicit_bzero(p->question.data, p->question.len);
    buf_free(&p->question);
}

static void end(struct path *p, enum stage stage, const char *why)
{
    stop_watching(p);
    p->stage = stage;
    p->done(p, why, p->arg);
}

static void fail(struct path *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(struct path *p, const char *format, ...)
{
    char why[1200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    end(p, FAILED, why);
}

/* ---- AUTH and PING ---- */

static void put(struct buf *b, int argc, const char **argv)
{
    char *data = NULL;
    long long len = redisFormatCommandArgv(&data, argc, argv, NULL);
    if (len < 0)
        abort();
    buf_add(b, data, (size_t)len);
    explicit_bzero(data, (size_t)len);
    free(data);
}

/* False: it has failed. */
static bool put_user(struct path *p)
{
    struct endpoint_user user;
    char *error = NULL;
    int found = endpoint_user(p->to, &user, &error);
    if (found > 0) {
        put(&p->question, 3, (const char *[]){"AUTH", user.name, user.password});
        p->names_user = true;
        p->owed++;
    }
    explicit_bzero(&user, sizeof user);
    if (found >= 0)
        return true;
    p->refused = true;
    fail(p, "%s", error);
    free(error);
    return false;
}

static void begin_to_ask(struct path *p)
{
    p->stage = ASKING;
    if (!put_user(p))
        return;
    /* Over TLS 1.3 a server that refuses our certificate says so only behind the handshake, in
     * the place of its first answer. */
    if (p->ask || p->tls) {
        put(&p->question, 1, (const char *[]){"PING"});
        p->owed++;
    }
    if (!p->owed) {
        end(p, OPEN, NULL);
        return;
    }
    p->reader = reader_open(ANSWERS_MOST);
    ev_io_stop(p->loop, &p->io);
    ev_io_set(&p->io, p->fd, EV_READ | EV_WRITE);
    ev_io_start(p->loop, &p->io);
}

/* False: it has failed. */
static bool one_answer(struct path *p, const redisReply *reply)
{
    bool about_user = p->names_user;
    p->names_user = false;
    p->owed--;
    if (!about_user || reply->type != REDIS_REPLY_ERROR)
        return true; /* whatever PING is answered: the server answers */
    p->refused = true;
    /* A server that does not know AUTH (rename-command) repeats the words behind it. */
    const char *args = strstr(reply->str, " with args");
    int len = args ? (int)(args - reply->str) : (int)strlen(reply->str);
    while (len && reply->str[len - 1] == ',')
        len--;
    fail(p,
         "AUTH as the user of %s: %.*s: mend that file, or the user in that server's ACL file "
         "(`dovelane acl` prints what belongs there)",
         endpoint_user_file(p->to), len, reply->str);
    return false;
}

static void read_answers(struct path *p)
{
    char input[4096];
    ssize_t n = path_read(p, input, sizeof input);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 && p->tls) {
        int e = errno;
        endpoint_forget_tls(p->to, p->index); /* its files may be others when we come again */
        errno = e;
    }
    if (n < 0 && errno == EPROTO && p->tls) {
        p->refused = true;
        fail(p, "TLS: %s: does the server take our certificate (node_cert_file)?", path_error(p));
        return;
    }
    if (n <= 0) {
        fail(p, "%s",
             n        ? path_error(p)
             : p->tls ? "closed by the server"
                      : "closed by the server (does it want TLS there?)");
        return;
    }
    bool good = reader_feed(p->reader, input, (size_t)n);
    while (p->owed) {
        redisReply *reply = NULL;
        if (!good || !reader_next(p->reader, &reply)) {
            fail(p, "no Redis answers there: %s", reader_error(p->reader));
            return;
        }
        if (!reply)
            return;
        good = one_answer(p, reply);
        freeReplyObject(reply);
        if (!good)
            return;
    }
    end(p, OPEN, NULL);
}

static void on_asking(struct path *p)
{
    while (p->asked < p->question.len) {
        struct iovec v = {p->question.data + p->asked, p->question.len - p->asked};
        ssize_t n = path_writev(p, &v, 1);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            fail(p, "%s", path_error(p));
            return;
        }
        if (n <= 0)
            return;
        p->asked += (size_t)n;
    }
    ev_io_stop(p->loop, &p->io);
    ev_io_set(&p->io, p->fd, EV_READ | (path_wants_write(p) ? EV_WRITE : 0));
    ev_io_start(p->loop, &p->io);
    read_answers(p);
}

/* ---- TLS ---- */

static void handshake_failed(struct path *p)
{
    const char *shown = tls_shown(p->tls), *error = tls_error(p->tls);
    bool plain = strstr(error, "wrong version number") != NULL;
    p->refused = true;
    endpoint_forget_tls(p->to, p->index); /* its files may be others when we come again */
    if (*shown)
        fail(p, "TLS: %s; it shows %s: mend that certificate, or tls_name, or node_ca_file", error,
             shown);
    else
        fail(p, "TLS: %s%s", error,
             plain ? " (that port speaks no TLS: name the tls-port of its redis.conf, or write tls "
                     "= no)"
                   : "");
}

static void on_handshake(struct path *p)
{
    int done = tls_handshake(p->tls);
    if (done < 0) {
        handshake_failed(p);
        return;
    }
    if (done) {
        begin_to_ask(p);
        return;
    }
    ev_io_stop(p->loop, &p->io);
    ev_io_set(&p->io, p->fd, EV_READ | (tls_wants_write(p->tls) ? EV_WRITE : 0));
    ev_io_start(p->loop, &p->io);
}

/* ---- connecting ---- */

static void on_connected(struct path *p)
{
    int e = 0;
    socklen_t len = sizeof e;
    char *error = NULL;
    getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &e, &len);
    if (e) {
        fail(p, "connect: %s", strerror(e));
        return;
    }
    struct tls_peer *peer = endpoint_tls(p->to, p->index, &error);
    if (error) {
        p->refused = true;
        fail(p, "TLS: %s", error);
        free(error);
    } else if (peer) {
        p->tls = tls_open(peer, p->fd);
        p->stage = HANDSHAKE;
        on_handshake(p);
    } else {
        begin_to_ask(p);
    }
}

static void on_io(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    struct path *p = io->data;
    switch (p->stage) {
    case CONNECTING: on_connected(p); break;
    case HANDSHAKE: on_handshake(p); break;
    case ASKING: on_asking(p); break;
    default: break;
    }
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct path *p = t->data;
    if (*p->why)
        fail(p, "%s", p->why);
    else
        fail(p, "%s",
             p->stage == CONNECTING  ? "connect: timed out"
             : p->stage == HANDSHAKE ? "TLS: no answer (does that port speak TLS?)"
                                     : "PING: timed out");
}

static void set_options(int fd)
{
    int one = 1, dead_after = 10000, idle = 5, every = 2;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_after, sizeof dead_after);
    /* For connections that wait in silence: READY BLOCK. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
}

/* Said by the timer: never from within path_open. */
static void cannot_begin(struct path *p, const char *host, const char *why)
{
    snprintf(p->why, sizeof p->why, "%s: %s", host, why);
    ev_timer_set(&p->patience, 0., 0.);
    ev_timer_start(p->loop, &p->patience);
}

static void on_found(const struct addresses *found, const char *error, void *arg)
{
    struct path *p = arg;
    p->lookup = NULL;
    if (error) {
        cannot_begin(p, endpoint_address(p->to, p->index), error);
        return;
    }
    const struct socket_address *a = &found->v[0];
    p->stage = CONNECTING;
    p->fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->fd >= 0 && a->sa.ss_family != AF_UNIX)
        set_options(p->fd);
    if (p->fd < 0 ||
        (connect(p->fd, (const struct sockaddr *)&a->sa, a->len) < 0 && errno != EINPROGRESS)) {
        cannot_begin(p, "connect", strerror(errno));
        return;
    }
    ev_io_set(&p->io, p->fd, EV_WRITE);
    ev_io_start(p->loop, &p->io);
    ev_timer_set(&p->patience, p->wait, 0.);
    ev_timer_start(p->loop, &p->patience);
}

struct path *path_open(struct ev_loop *loop, struct endpoint *to, size_t i, bool ask,
                       double patience, path_done_fn *done, void *arg)
{
    char text[512];
    const char *host, *port, *address = endpoint_address(to, i);
    struct path *p = mem_zero(sizeof *p);
    p->loop = loop;
    p->to = to;
    p->index = i;
    p->ask = ask;
    p->done = done;
    p->arg = arg;
    p->wait = patience;
    p->fd = -1;
    ev_init(&p->io, on_io);
    ev_init(&p->patience, on_patience);
    p->io.data = p->patience.data = p;
    if (config_address(address, text, sizeof text, &host, &port) < 0)
        cannot_begin(p, "bad address", address);
    else
        resolve_start(loop, host, port, RESOLVE_NODE, on_found, p, &p->lookup);
    return p;
}

void path_close(struct path *p, bool forget)
{
    struct linger at_once = {1, 0};
    if (!p)
        return;
    resolve_cancel(p->lookup);
    stop_watching(p);
    if (forget && p->fd >= 0)
        setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    tls_close(p->tls);
    if (p->fd >= 0)
        close(p->fd);
    free(p);
}

/* ---- open ---- */

bool path_is_open(const struct path *p)
{
    return p->stage == OPEN;
}

bool path_refused(const struct path *p)
{
    return p->refused;
}

size_t path_index(const struct path *p)
{
    return p->index;
}

int path_fd(const struct path *p)
{
    return p->fd;
}

ssize_t path_read(struct path *p, void *data, size_t size)
{
    size_t got = 0;
    if (!p->tls)
        return read(p->fd, data, size);
    /* A read gives one record; more of them may be here. An end or error comes again at the next
     * call. */
    do {
        ssize_t n = tls_read(p->tls, (char *)data + got, size - got);
        if (n <= 0)
            return got ? (ssize_t)got : n;
        got += (size_t)n;
    } while (size - got >= RECORD);
    return (ssize_t)got;
}

ssize_t path_writev(struct path *p, const struct iovec *iov, int n)
{
    struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    return p->tls ? tls_writev(p->tls, iov, n) : sendmsg(p->fd, &m, MSG_NOSIGNAL);
}

bool path_wants_write(const struct path *p)
{
    return p->tls && tls_wants_write(p->tls);
}

int64_t path_until(const struct path *p, bool own)
{
    return !p->tls ? 0 : own ? tls_own_until(p->tls) : tls_until(p->tls);
}

const char *path_error(const struct path *p)
{
    return p->tls && *tls_error(p->tls) ? tls_error(p->tls) : strerror(errno);
}

size_t path_unconfirmed(const struct path *p)
{
    int n = 0;
    return ioctl(p->fd, SIOCOUTQ, &n) == 0 && n > 0 ? (size_t)n : 0;
}
