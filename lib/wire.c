/* Requests are formatted by hiredis into one malloc'd string each, and that string itself waits in the output list until
 * writev has taken it: a mail's bytes are copied once on their way to the socket. */
#include "wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "config.h"
#include "clock.h"
#include "mem.h"

#define READ_SIZE (64 * 1024)
#define IOV_MOST 64
#define RECONNECT_FIRST 0.05
#define RECONNECT_MOST 2.0
#define CONNECT_PATIENCE 5.0
#define LASTED 2.0 /* a connection that lived so long was a good one: the next attempt comes at once */

struct request {
    struct request *next;
    wire_reply_fn *fn;
    void *arg;
};

struct chunk {
    struct chunk *next;
    char *data; /* from redisFormatCommandArgv */
    size_t len;
};

/* The bytes go through these two: TLS will put its own pair here. */
struct transport {
    ssize_t (*read)(struct wire *, void *, size_t);
    ssize_t (*writev)(struct wire *, const struct iovec *, int);
};

struct wire {
    struct ev_loop *loop;
    char *address;
    wire_state_fn *state;
    void *arg;
    const struct transport *transport;

    int fd; /* -1: not connected */
    bool connecting, up;
    bool in_replies; /* inside the loop over replies: a drop must leave the reader alone until it is over */
    ev_io reading, writing;
    ev_timer reconnect, patience;
    ev_prepare flush; /* what was sent in one turn of the loop leaves in one writev */
    double wait;     /* before the next attempt: doubles while connections do not last */
    double up_since; /* clock_monotonic */

    redisReader *reader;
    struct request *first, **last; /* open requests, oldest first */
    size_t nopen;
    struct chunk *out, **out_last;
    size_t out_done; /* bytes of the first chunk that are sent */
    size_t out_bytes;
    double owed_since;    /* last answer, or first request after nothing was open */
    unsigned generation;  /* of connections: tells a reply loop that its connection is gone */
};

/* ---- plain transport ---- */

static ssize_t plain_read(struct wire *w, void *p, size_t n)
{
    return read(w->fd, p, n);
}

static ssize_t plain_writev(struct wire *w, const struct iovec *iov, int n)
{
    struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    return sendmsg(w->fd, &m, MSG_NOSIGNAL);
}

static const struct transport plain = {plain_read, plain_writev};

/* ---- the life of a connection ---- */

static void start_connect(struct wire *w);

static void schedule_reconnect(struct wire *w)
{
    double jitter = 0.75 + 0.5 * (double)rand() / RAND_MAX;
    ev_timer_stop(w->loop, &w->reconnect);
    ev_timer_set(&w->reconnect, w->wait * jitter, 0.);
    ev_timer_start(w->loop, &w->reconnect);
    w->wait = w->wait * 2 > RECONNECT_MOST ? RECONNECT_MOST : w->wait * 2;
}

static void close_socket(struct wire *w)
{
    ev_io_stop(w->loop, &w->reading);
    ev_io_stop(w->loop, &w->writing);
    ev_timer_stop(w->loop, &w->patience);
    ev_prepare_stop(w->loop, &w->flush);
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    w->connecting = w->up = false;
    w->generation++;
    while (w->out) {
        struct chunk *c = w->out;
        w->out = c->next;
        free(c->data);
        free(c);
    }
    w->out_last = &w->out;
    w->out_done = w->out_bytes = 0;
    if (w->reader && !w->in_replies) {
        redisReaderFree(w->reader);
        w->reader = NULL;
    }
}

static void fail_requests(struct wire *w)
{
    while (w->first) {
        struct request *r = w->first;
        w->first = r->next;
        if (!w->first)
            w->last = &w->first;
        w->nopen--;
        r->fn(w, NULL, r->arg);
        free(r);
    }
}

static void lost(struct wire *w, const char *why)
{
    if (w->up && clock_monotonic() - w->up_since > LASTED)
        w->wait = RECONNECT_FIRST;
    close_socket(w);
    fail_requests(w);
    schedule_reconnect(w);
    w->state(w, false, why, w->arg);
}

static void established(struct wire *w)
{
    w->connecting = false;
    w->up = true;
    w->up_since = clock_monotonic();
    ev_timer_stop(w->loop, &w->patience);
    ev_io_stop(w->loop, &w->writing);
    ev_io_start(w->loop, &w->reading);
    w->reader = redisReaderCreate();
    if (!w->reader)
        abort();
    w->reader->maxbuf = 1024 * 1024;
    w->state(w, true, "connected", w->arg);
}

static int open_socket(const char *address, char *why, size_t size)
{
    char text[512];
    const char *host, *port;
    struct sockaddr_storage sa = {0};
    socklen_t len;
    if (config_address(address, text, sizeof text, &host, &port) < 0) {
        snprintf(why, size, "bad address %s", address);
        return -1;
    }
    if (!port) {
        struct sockaddr_un *un = (struct sockaddr_un *)&sa;
        un->sun_family = AF_UNIX;
        if (strlen(host) >= sizeof un->sun_path) {
            snprintf(why, size, "socket path too long: %s", host);
            return -1;
        }
        strcpy(un->sun_path, host);
        len = sizeof *un;
    } else {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *ai;
        int e = getaddrinfo(host, port, &hints, &ai);
        if (e) {
            snprintf(why, size, "%s: %s", host, gai_strerror(e));
            return -1;
        }
        memcpy(&sa, ai->ai_addr, ai->ai_addrlen);
        len = ai->ai_addrlen;
        freeaddrinfo(ai);
    }
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && port) {
        int one = 1, dead_after = 10000;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_after, sizeof dead_after);
    }
    if (fd < 0 || (connect(fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS)) {
        snprintf(why, size, "connect: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static void start_connect(struct wire *w)
{
    char why[640];
    w->fd = open_socket(w->address, why, sizeof why);
    if (w->fd < 0) {
        lost(w, why);
        return;
    }
    w->connecting = true;
    ev_io_set(&w->reading, w->fd, EV_READ);
    ev_io_set(&w->writing, w->fd, EV_WRITE);
    ev_io_start(w->loop, &w->writing);
    ev_timer_set(&w->patience, CONNECT_PATIENCE, 0.);
    ev_timer_start(w->loop, &w->patience);
}

static void on_reconnect(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    start_connect(t->data);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    lost(t->data, "connect: timed out");
}

/* ---- output ---- */

static void write_some(struct wire *w)
{
    while (w->out) {
        struct iovec iov[IOV_MOST];
        int n = 0;
        for (struct chunk *c = w->out; c && n < IOV_MOST; c = c->next, n++) {
            size_t skip = n ? 0 : w->out_done;
            iov[n].iov_base = c->data + skip;
            iov[n].iov_len = c->len - skip;
        }
        ssize_t done = w->transport->writev(w, iov, n);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                ev_io_start(w->loop, &w->writing);
                return;
            }
            lost(w, strerror(errno));
            return;
        }
        w->out_bytes -= (size_t)done;
        size_t left = (size_t)done + w->out_done;
        while (w->out && left >= w->out->len) {
            struct chunk *c = w->out;
            left -= c->len;
            w->out = c->next;
            free(c->data);
            free(c);
        }
        w->out_done = left;
    }
    w->out_last = &w->out;
    w->out_done = 0;
    ev_io_stop(w->loop, &w->writing);
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    struct wire *w = io->data;
    if (w->connecting) {
        int e = 0;
        socklen_t len = sizeof e;
        getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &e, &len);
        if (e) {
            char why[160];
            snprintf(why, sizeof why, "connect: %s", strerror(e));
            lost(w, why);
        } else {
            established(w);
        }
        return;
    }
    write_some(w);
}

static void on_flush(struct ev_loop *loop, ev_prepare *p, int events)
{
    (void)events;
    struct wire *w = p->data;
    ev_prepare_stop(loop, p);
    if (w->up && !ev_is_active(&w->writing))
        write_some(w);
}

/* ---- input ---- */

static void give_replies(struct wire *w)
{
    unsigned generation = w->generation;
    redisReader *reader = w->reader;
    const char *broken = NULL;
    w->in_replies = true;
    while (!broken && w->generation == generation) {
        void *reply = NULL;
        if (redisReaderGetReply(reader, &reply) != REDIS_OK) {
            broken = reader->errstr;
            break;
        }
        if (!reply)
            break;
        struct request *r = w->first;
        if (!r) {
            freeReplyObject(reply);
            broken = "an answer that nobody asked for";
            break;
        }
        w->first = r->next;
        if (!w->first)
            w->last = &w->first;
        w->nopen--;
        w->owed_since = clock_monotonic();
        r->fn(w, reply, r->arg);
        freeReplyObject(reply);
        free(r);
    }
    w->in_replies = false;
    if (broken && w->generation == generation) {
        char why[200];
        snprintf(why, sizeof why, "protocol: %s", broken);
        lost(w, why);
    }
    /* The connection was dropped by a callback: the reader was left for us to free. A new one cannot be there yet, since connecting
     * takes a turn of the loop. */
    if (w->generation != generation && w->reader == reader && reader) {
        redisReaderFree(reader);
        w->reader = NULL;
    }
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    struct wire *w = io->data;
    static _Thread_local char input[READ_SIZE];
    ssize_t n = w->transport->read(w, input, sizeof input);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        lost(w, n ? strerror(errno) : "closed by the server");
        return;
    }
    if (redisReaderFeed(w->reader, input, (size_t)n) != REDIS_OK) {
        lost(w, "out of memory for an answer");
        return;
    }
    give_replies(w);
}

/* ---- interface ---- */

struct wire *wire_open(struct ev_loop *loop, const char *address, wire_state_fn *state, void *arg)
{
    struct wire *w = mem_zero(sizeof *w);
    w->loop = loop;
    w->address = mem_strdup(address);
    w->state = state;
    w->arg = arg;
    w->transport = &plain;
    w->fd = -1;
    w->wait = RECONNECT_FIRST;
    w->last = &w->first;
    w->out_last = &w->out;
    ev_init(&w->reading, on_readable);
    ev_init(&w->writing, on_writable);
    ev_init(&w->reconnect, on_reconnect);
    ev_init(&w->patience, on_patience);
    ev_prepare_init(&w->flush, on_flush);
    w->reading.data = w->writing.data = w->reconnect.data = w->patience.data = w->flush.data = w;
    /* From the loop, so that state is never called from within wire_open. */
    ev_timer_set(&w->reconnect, 0., 0.);
    ev_timer_start(loop, &w->reconnect);
    return w;
}

void wire_close(struct wire *w)
{
    if (!w)
        return;
    ev_timer_stop(w->loop, &w->reconnect);
    close_socket(w);
    fail_requests(w);
    ev_timer_stop(w->loop, &w->reconnect);
    free(w->address);
    free(w);
}

void wire_drop(struct wire *w, const char *why)
{
    if (w->fd >= 0)
        lost(w, why);
}

bool wire_up(const struct wire *w)
{
    return w->up;
}

static bool enqueue(struct wire *w, wire_reply_fn *fn, void *arg, char *data, size_t len)
{
    struct chunk *c = mem_alloc(sizeof *c);
    *c = (struct chunk){NULL, data, len};
    *w->out_last = c;
    w->out_last = &c->next;
    w->out_bytes += len;
    struct request *r = mem_alloc(sizeof *r);
    *r = (struct request){NULL, fn, arg};
    *w->last = r;
    w->last = &r->next;
    if (!w->nopen++)
        w->owed_since = clock_monotonic();
    ev_prepare_start(w->loop, &w->flush);
    return true;
}

bool wire_send(struct wire *w, wire_reply_fn *fn, void *arg, int argc, const char **argv, const size_t *argvlen)
{
    if (!w->up)
        return false;
    char *data = NULL;
    long long len = redisFormatCommandArgv(&data, argc, argv, argvlen);
    if (len < 0)
        abort();
    return enqueue(w, fn, arg, data, (size_t)len);
}

bool wire_sendf(struct wire *w, wire_reply_fn *fn, void *arg, const char *format, ...)
{
    if (!w->up)
        return false;
    char *data = NULL;
    va_list ap;
    va_start(ap, format);
    int len = redisvFormatCommand(&data, format, ap);
    va_end(ap);
    if (len < 0)
        abort();
    return enqueue(w, fn, arg, data, (size_t)len);
}

double wire_silence(const struct wire *w)
{
    return w->nopen ? clock_monotonic() - w->owed_since : 0.;
}

size_t wire_open_requests(const struct wire *w)
{
    return w->nopen;
}

size_t wire_unsent_bytes(const struct wire *w)
{
    return w->out_bytes;
}
