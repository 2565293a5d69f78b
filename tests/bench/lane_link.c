#include "tests/bench/lane_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct buffer {
    char *bytes;
    size_t len, size, at;
};

/* the pipe by which large bodies go to the socket without being copied; 0: none */
static int fd = -1, through[2];
static size_t in_pipe;
static struct buffer out, in;
static char *body;
static size_t body_size;

void link_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "lane_load: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

double link_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Requests with large bodies go by reference: copied by the client, and allocated and freed by
 * the kernel, they would measure those. */
#define LARGE 4096
static bool by_reference(void)
{
    return body_size >= LARGE && through[1];
}

static char *room(struct buffer *b, size_t more)
{
    /* what the kernel has by reference is not written again */
    bool again = b != &out || !by_reference();
    if (again && b->at && b->at == b->len)
        b->at = b->len = 0;
    if (again && b->len + more > b->size && b->at > b->size / 2) {
        memmove(b->bytes, b->bytes + b->at, b->len - b->at);
        b->len -= b->at;
        b->at = 0;
    }
    if (b->len + more > b->size) {
        b->size = (b->len + more) * 2;
        b->bytes = realloc(b->bytes, b->size);
        if (!b->bytes)
            link_fail("out of memory");
    }
    return b->bytes + b->len;
}

void link_put(const void *bytes, size_t len)
{
    memcpy(room(&out, len), bytes, len);
    out.len += len;
}

/* A large body stands in the stream behind so many bytes of `out`, counted from the beginning of
 * time. */
#define BODIES (1u << 16)
static uint64_t behind[BODIES], bodies_put, bodies_sent, out_sent;
static size_t body_sent; /* bytes of the first that is not sent */

void link_print(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    out.len += (size_t)vsnprintf(room(&out, 128), 128, format, list);
    va_end(list);
}

void link_put_body(void)
{
    if (body_size < LARGE)
        link_put(body, body_size);
    else if (bodies_put - bodies_sent == BODIES)
        link_fail("too many bodies wait to be sent");
    else
        behind[bodies_put++ % BODIES] = out_sent + (out.len - out.at);
}

#define PIECES 64

/* What is to be sent next; how many pieces. */
static int pieces(struct iovec *v)
{
    const char *from = out.bytes + out.at;
    size_t left = out.len - out.at, skip = body_sent;
    uint64_t at = out_sent;
    int n = 0;
    for (uint64_t b = bodies_sent; b < bodies_put && n + 2 < PIECES; b++, skip = 0) {
        size_t head = (size_t)(behind[b % BODIES] - at);
        if (head)
            v[n++] = (struct iovec){(void *)(uintptr_t)from, head};
        from += head, left -= head, at += head;
        v[n++] = (struct iovec){body + skip, body_size - skip};
    }
    if (left && n + 2 < PIECES)
        v[n++] = (struct iovec){(void *)(uintptr_t)from, left};
    return n;
}

static void were_sent(size_t n)
{
    while (n) {
        uint64_t head =
            bodies_sent < bodies_put ? behind[bodies_sent % BODIES] - out_sent : out.len - out.at;
        size_t part = head < n ? (size_t)head : n;
        out.at += part, out_sent += part, n -= part;
        if (!n || bodies_sent == bodies_put)
            continue;
        part = body_size - body_sent < n ? body_size - body_sent : n;
        body_sent += part, n -= part;
        if (body_sent == body_size)
            body_sent = 0, bodies_sent++;
    }
}

static bool unsent(void)
{
    return out.len > out.at || bodies_put > bodies_sent || in_pipe;
}

size_t link_waiting(void)
{
    return out.len - out.at;
}

const char *link_came(const char **end)
{
    *end = in.bytes + in.len;
    return in.bytes + in.at;
}

void link_take(const char *up_to)
{
    in.at = (size_t)(up_to - in.bytes);
}

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

static bool receive(void)
{
    char *to = room(&in, 1 << 20);
    ssize_t n = recv(fd, to, in.size - in.len, MSG_DONTWAIT);
    if (n > 0)
        in.len += (size_t)n;
    else if (n == 0)
        link_fail("the server closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        link_fail("recv: %s", strerror(errno));
    return n > 0;
}

static bool not_now(ssize_t n, const char *what)
{
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        link_fail("%s: %s", what, strerror(errno));
    return n <= 0;
}

/* The pages themselves go into the socket, as with sendfile. */
static void send_by_reference(void)
{
    struct iovec v[PIECES];
    int count = pieces(v);
    ssize_t n = count ? vmsplice(through[1], v, (size_t)count, SPLICE_F_NONBLOCK) : 0;
    if (!not_now(n, "vmsplice"))
        were_sent((size_t)n), in_pipe += (size_t)n;
    if (in_pipe) {
        n = splice(through[0], NULL, fd, NULL, in_pipe, SPLICE_F_NONBLOCK);
        if (!not_now(n, "splice"))
            in_pipe -= (size_t)n;
    }
}

static void send_without_copies(void)
{
    if (pipe2(through, O_NONBLOCK) || fcntl(through[1], F_SETPIPE_SZ, 1 << 20) < 0)
        link_fail("a pipe of 1 MB: %s", strerror(errno));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    /* so large that to grow is to be mapped elsewhere: the pages stay those that the kernel has */
    room(&out, 32 << 20);
}

static void send_some(void)
{
    struct iovec v[PIECES];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)pieces(v)};
    ssize_t n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!not_now(n, "send"))
        were_sent((size_t)n);
}

bool link_turn(bool spin)
{
    if (unsent()) {
        if (by_reference())
            send_by_reference();
        else
            send_some();
    }
    if (spin) {
        static double since;
        if (receive())
            since = 0;
        else if (!since)
            since = link_now();
        else if (link_now() - since > 60)
            return false;
        for (int i = 0; i < 50; i++)
            relax();
        return true;
    }
    struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (unsent() ? POLLOUT : 0))};
    if (poll(&p, 1, 60000) == 0)
        return false;
    if (p.revents & (POLLIN | POLLHUP | POLLERR))
        receive();
    return true;
}

static void connect_to(const char *path, int port)
{
    if (path) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        if (strlen(path) >= sizeof a.sun_path)
            link_fail("%s: path too long", path);
        strcpy(a.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
            link_fail("%s: %s", path, strerror(errno));
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        fd = socket(AF_INET, SOCK_STREAM, 0);
        int one = 1;
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
            link_fail("port %d: %s", port, strerror(errno));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
}

/* Lines as in mail: 76 characters that compress like base64. */
static void make_body(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t x = 88172645463325252ULL;
    body = malloc(body_size + 1);
    for (uint64_t i = 0; i < body_size; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        body[i] = i % 78 == 76 ? '\r' : i % 78 == 77 ? '\n' : digits[x & 63];
    }
}

void link_open(const char *path, int port, size_t size)
{
    body_size = size;
    make_body();
    connect_to(path, port);
    if (body_size >= LARGE)
        send_without_copies();
}
