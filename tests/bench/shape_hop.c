/* shape_hop - next hops of a shaped group, all in one process: takes mails, and writes down when.
 *
 *   shape_hop FILE PORT RECORDS MOST ADDRESS...
 *
 * Each address of 127.0.0.0/8 is a next hop. RECORDS: room for so many mails. MOST: a connection
 * beyond so many of one next hop gets 421 and is closed; 0: no bound. FILE, as others may map it:
 * a word with the number of mails, then for each next hop two words (refused connections, most
 * open ones), then for each mail two words: the time of its 250 (ns, CLOCK_MONOTONIC), and the next
 * hop's number times 2^32 plus the number in the mail's header X-Number. */
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/hop_lines.h"

enum { ROOM = 16384, FDS = 65536 };

struct connection {
    uint32_t hop, number;
    struct hop_lines *lines;
};

static struct {
    int loop, hops;
    unsigned most, *open;
    uint64_t room, *words;  /* the file */
    uint32_t listener[FDS]; /* of a listening socket: its next hop's number plus 1 */
    struct connection *connection[FDS];
} all;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "shape_hop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void note_number(void *arg, const char *line)
{
    static const char name[] = "X-Number: ";
    struct connection *c = arg;
    if (!strncmp(line, name, sizeof name - 1))
        c->number = (uint32_t)strtoul(line + sizeof name - 1, NULL, 10);
}

static void note_mail(void *arg)
{
    const struct connection *c = arg;
    struct timespec t;
    uint64_t at = all.words[0];
    if (at == all.room) {
        fprintf(stderr, "shape_hop: more mails than RECORDS (%llu)\n", (unsigned long long)at);
        exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t *record = all.words + 1 + 2 * (uint64_t)all.hops + 2 * at;
    record[0] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    record[1] = (uint64_t)c->hop << 32 | c->number;
    __atomic_store_n(&all.words[0], at + 1, __ATOMIC_RELEASE);
}

static const struct hop_calls calls = {note_number, note_mail};

static void take_connection(int listener)
{
    static const char refusal[] = "421 4.7.0 too many connections\r\n";
    uint32_t hop = all.listener[listener] - 1;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (all.most && all.open[hop] >= all.most) {
        all.words[1 + 2 * hop]++;
        send(fd, refusal, sizeof refusal - 1, MSG_NOSIGNAL);
        close(fd);
        return;
    }
    struct connection *c = fd < FDS ? calloc(1, sizeof *c) : NULL;
    if (!c || !(c->lines = hop_lines_new(fd, ROOM, &calls, c)))
        fail("a connection");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    c->hop = hop;
    all.connection[fd] = c;
    if (++all.open[hop] > all.words[2 + 2 * hop])
        all.words[2 + 2 * hop] = all.open[hop];
    epoll_ctl(all.loop, EPOLL_CTL_ADD, fd, &event);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    hop_lines_greet(c->lines);
}

static void listen_at(const char *address, uint16_t port, uint32_t hop)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd >= FDS || inet_pton(AF_INET, address, &at.sin_addr) != 1)
        fail(address);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 128) < 0 ||
        epoll_ctl(all.loop, EPOLL_CTL_ADD, fd, &event) < 0)
        fail(address);
    all.listener[fd] = hop + 1;
}

static void map_file(const char *path)
{
    size_t size = sizeof(uint64_t) * (1 + 2 * (size_t)all.hops + 2 * all.room);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        fail(path);
    all.words = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all.words == MAP_FAILED)
        fail(path);
    close(fd);
}

static void ready(int fd)
{
    if (all.listener[fd]) {
        take_connection(fd);
    } else if (!hop_lines_serve(all.connection[fd]->lines)) {
        all.open[all.connection[fd]->hop]--;
        free(all.connection[fd]->lines);
        free(all.connection[fd]);
        all.connection[fd] = NULL;
        close(fd);
    }
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fputs("usage: shape_hop FILE PORT RECORDS MOST ADDRESS...\n", stderr);
        return 2;
    }
    all.hops = argc - 5;
    all.room = strtoull(argv[3], NULL, 10);
    all.most = (unsigned)strtoul(argv[4], NULL, 10);
    all.open = calloc((size_t)all.hops, sizeof *all.open);
    all.loop = epoll_create1(EPOLL_CLOEXEC);
    if (!all.open || all.loop < 0)
        fail("start");
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){FDS, FDS});
    map_file(argv[1]);
    for (int i = 0; i < all.hops; i++)
        listen_at(argv[5 + i], (uint16_t)atoi(argv[2]), (uint32_t)i);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(all.loop, events, 64, -1);
        for (int i = 0; i < n; i++)
            ready(events[i].data.fd);
    }
}
