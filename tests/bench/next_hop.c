#include "tests/bench/next_hop.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/hop_lines.h"

enum { CONNECTIONS = 4096, ROOM = 65536 };

struct connection {
    struct hop_lines *lines;
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

static void note_id(void *arg, const char *line)
{
    struct connection *c = arg;
    static const char name[] = "X-Oracle-Id: ";
    if (c->mail || strncmp(line, name, sizeof name - 1) ||
        strncmp(line + sizeof name - 1, hop.run, hop.run_len))
        return;
    char *end;
    unsigned long long mail = strtoull(line + sizeof name - 1 + hop.run_len + 1, &end, 10);
    if (!strncmp(end, "-first", 6) && mail < hop.mails)
        c->mail = mail + 1;
}

static void note_answer(void *arg)
{
    struct connection *c = arg;
    if (!c->mail)
        return;
    uint64_t before = 0;
    if (atomic_compare_exchange_strong(&hop.answered[c->mail - 1], &before, now()))
        atomic_fetch_add(&hop.count, 1);
    else
        atomic_fetch_add(&hop.twice, 1);
    c->mail = 0;
}

static const struct hop_calls calls = {note_id, note_answer};

static struct connection *open_connection(int fd)
{
    struct connection *c = calloc(1, sizeof *c);
    if (c && !(c->lines = hop_lines_new(fd, ROOM, &calls, c))) {
        free(c);
        return NULL;
    }
    return c;
}

static void end_connection(int fd)
{
    free(hop.connection[fd]->lines);
    free(hop.connection[fd]);
    hop.connection[fd] = NULL;
    close(fd);
}

static void take_connection(void)
{
    int fd = accept4(hop.listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= CONNECTIONS || !(hop.connection[fd] = open_connection(fd))) {
        close(fd);
        return;
    }
    epoll_ctl(hop.loop, EPOLL_CTL_ADD, fd, &event);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    hop_lines_greet(hop.connection[fd]->lines);
}

static void *run(void *arg)
{
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(hop.loop, events, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == hop.listener)
                take_connection();
            else if (!hop_lines_serve(hop.connection[fd]->lines))
                end_connection(fd);
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
