/* discard_milter - the floor under every number of dovelane-milter: takes in all of a mail as that
 * does, stores nothing, and has Postfix discard it.
 *
 *   discard_milter <socket>
 *
 * What Postfix and the UNIX socket cost between them is what this costs, and as little as we
 * know how beside: one thread, one read for what has come, one write for an answer. It agrees to
 * what dovelane-milter agrees to (milter/protocol.h): the same packets come, and only the end of
 * a message is answered. Packets are followed by their lengths, and not looked into. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* no EOH, unknown, DATA; no replies; header space */
enum { CONNECTIONS = 4096, HEAD = 5, AGREED_STEPS = 0x1ff3c0 };

/* What a connection is in the middle of: some bytes of a packet's head, then so many bytes to be
 * skipped. */
struct connection {
    unsigned char head[HEAD];
    unsigned nhead;
    uint32_t left;
};

static struct connection connections[CONNECTIONS];

static int fail(const char *what)
{
    fprintf(stderr, "discard_milter: %s: %s\n", what, strerror(errno));
    return 1;
}

static int say(int fd, const void *answer, size_t len)
{
    return send(fd, answer, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static int negotiate(int fd)
{
    struct {
        uint32_t length;
        char command[1];
        unsigned char data[12];
    } __attribute__((packed)) answer = {.length = htonl(13), .command = {'O'}};
    const uint32_t agreed[] = {htonl(6), htonl(0), htonl(AGREED_STEPS)};
    memcpy(answer.data, agreed, sizeof agreed);
    return say(fd, &answer, sizeof answer);
}

/* False: close it. */
static int packet_ended(int fd, unsigned char command)
{
    if (command == 'E')
        return say(fd, "\0\0\0\1d", HEAD);
    return command == 'O' ? negotiate(fd) : command != 'Q';
}

static int take(int fd, struct connection *c, const unsigned char *data, size_t len)
{
    while (len) {
        while (c->nhead < HEAD && len) {
            c->head[c->nhead++] = *data++;
            len--;
            if (c->nhead == HEAD) {
                memcpy(&c->left, c->head, sizeof c->left);
                c->left = ntohl(c->left) - 1;
            }
        }
        size_t skip = c->left < len ? c->left : len;
        data += skip;
        len -= skip;
        c->left -= (uint32_t)skip;
        if (c->nhead == HEAD && !c->left) {
            c->nhead = 0;
            if (!packet_ended(fd, c->head[4]))
                return 0;
        }
    }
    return 1;
}

static void serve(int fd)
{
    static unsigned char bytes[256 * 1024];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0 || !take(fd, &connections[fd], bytes, (size_t)n)) {
        memset(&connections[fd], 0, sizeof connections[fd]);
        close(fd);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    if (argc != 2 || argv[1][0] != '/' || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: discard_milter /path/of/socket (at most %zu bytes)\n",
                sizeof address.sun_path - 1);
        return 2;
    }
    strcpy(address.sun_path, argv[1]);
    unlink(argv[1]);
    umask(0);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
        epoll = epoll_create1(EPOLL_CLOEXEC);
    if (listener < 0 || epoll < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, CONNECTIONS) < 0)
        return fail(argv[1]);
    event.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                serve(events[i].data.fd);
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= CONNECTIONS)
                close(fd);
            else if (fd >= 0) {
                event.data.fd = fd;
                epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            }
        }
        if (n < 0 && errno != EINTR)
            return fail("epoll_wait");
    }
}
