#include "tests/bench/next_hop.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 4096, ROOM = 65536 };

/* Bytes are kept until their line is complete; of a content only the last few, and its header. */
struct connection {
    char in[ROOM];
    size_t len;
    bool content;
    char out[4096]; /* answers to commands that came together leave together */
    size_t out_len;
    uint64_t mail; /* plus 1; 0: its id was not seen */
};

static struct {
    int listener, loop;
    const char *run;
    size_t run_len;
    uint64_t mails;
    _Atomic uint64_t *answered;
    atomic_ullong count, twice;
    struct connection *connection[CONNECTIONS];
} hop;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool flush(int fd, struct connection *c)
{
    size_t n = c->out_len;
    c->out_len = 0;
    return !n || send(fd, c->out, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static bool say(int fd, struct connection *c, const char *text)
{
    size_t n = strlen(text);
    if (c->out_len + n > sizeof c->out && !flush(fd, c))
        return false;
    memcpy(c->out + c->out_len, text, n);
    c->out_len += n;
    return true;
}

static void note_id(struct connection *c, const char *line)
{
    static const char name[] = "X-Oracle-Id: ";
    if (strncmp(line, name, sizeof name - 1) ||
        strncmp(line + sizeof name - 1, hop.run, hop.run_len))
        return;
    char *end;
    unsigned long long mail = strtoull(line + sizeof name - 1 + hop.run_len + 1, &end, 10);
    if (!strncmp(end, "-first", 6) && mail < hop.mails)
        c->mail = mail + 1;
}

static void note_answer(struct connection *c)
{
    if (!c->mail)
        return;
    uint64_t before = 0;
    if (atomic_compare_exchange_strong(&hop.answered[c->mail - 1], &before, now()))
        atomic_fetch_add(&hop.count, 1);
    else
        atomic_fetch_add(&hop.twice, 1);
    c->mail = 0;
}

/* False: the connection ends. */
static bool one_line(int fd, struct connection *c, const char *line)
{
    if (c->content) {
        if (strcmp(line, ".") != 0) {
            if (!c->mail)
                note_id(c, line);
            return true;
        }
        c->content = false;
        bool said = say(fd, c, "250 2.0.0 Ok\r\n") && flush(fd, c);
        note_answer(c);
        return said;
    }
    if (!strncasecmp(line, "DATA", 4)) {
        c->content = true;
        return say(fd, c, "354 go on\r\n");
    }
    if (!strncasecmp(line, "EHLO", 4))
        return say(fd, c, "250-next.example\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE\r\n");
    if (!strncasecmp(line, "QUIT", 4)) {
        say(fd, c, "221 2.0.0 bye\r\n");
        flush(fd, c);
        return false;
    }
    return say(fd, c, "250 2.0.0 Ok\r\n");
}

static bool serve(int fd, struct connection *c)
{
    ssize_t n = recv(fd, c->in + c->len, sizeof c->in - c->len, 0);
    if (n <= 0)
        return false;
    c->len += (size_t)n;
    char *line = c->in, *end;
    while ((end = memchr(line, '\n', c->len - (size_t)(line - c->in)))) {
        *(end > line && end[-1] == '\r' ? end - 1 : end) = '\0';
        if (!one_line(fd, c, line))
            return false;
        line = end + 1;
    }
    c->len -= (size_t)(line - c->in);
    memmove(c->in, line, c->len);
    return flush(fd, c) && c->len < sizeof c->in;
}

static void take_connection(void)
{
    int fd = accept4(hop.listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= CONNECTIONS || !(hop.connection[fd] = calloc(1, sizeof *hop.connection[fd]))) {
        close(fd);
        return;
    }
    epoll_ctl(hop.loop, EPOLL_CTL_ADD, fd, &event);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    say(fd, hop.connection[fd], "220 next.example ESMTP\r\n");
    flush(fd, hop.connection[fd]);
}

static void *run(void *arg)
{
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(hop.loop, events, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == hop.listener) {
                take_connection();
            } else if (!serve(fd, hop.connection[fd])) {
                free(hop.connection[fd]);
                hop.connection[fd] = NULL;
                close(fd);
            }
        }
    }
    return arg;
}

const char *next_hop_open(const struct sockaddr_in *address, const char *run_name, uint64_t mails)
{
    pthread_t thread;
    int one = 1;
    hop.run = run_name;
    hop.run_len = strlen(run_name);
    hop.mails = mails;
    hop.answered = calloc(mails, sizeof *hop.answered);
    hop.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    hop.loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = hop.listener};
    if (!hop.answered || hop.listener < 0 || hop.loop < 0)
        return strerror(errno);
    setsockopt(hop.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(hop.listener, (const struct sockaddr *)address, sizeof *address) < 0 ||
        listen(hop.listener, 1024) < 0 ||
        epoll_ctl(hop.loop, EPOLL_CTL_ADD, hop.listener, &event) < 0)
        return strerror(errno);
    int failed = pthread_create(&thread, NULL, run, NULL);
    return failed ? strerror(failed) : NULL;
}

uint64_t next_hop_count(void)
{
    return atomic_load(&hop.count);
}

uint64_t next_hop_twice(void)
{
    return atomic_load(&hop.twice);
}

uint64_t next_hop_answered(uint64_t mail)
{
    return atomic_load(&hop.answered[mail]);
}
