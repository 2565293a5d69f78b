/* The next hops of `divert`, and this host's Dovecot where there is one. */
#include "ctl/check.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/subprocess.h"
#include "lib/config/nexthop.h"

#define PATIENCE 3000  /* milliseconds */
#define GREETING 10000 /* of a server that is busy */

/* -1 with *why, else connected. */
static int connect_to(const struct sockaddr *a, socklen_t len, const char **why)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        error = fd < 0 ? errno : 0;
    if (fd >= 0 && connect(fd, a, len) < 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd p = {fd, POLLOUT, 0};
        socklen_t size = sizeof error;
        if (poll(&p, 1, PATIENCE) <= 0)
            error = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    *why = error ? strerror(error) : NULL;
    if (error && fd >= 0)
        close(fd);
    return error ? -1 : fd;
}

/* NULL when it listens, else why not. */
static const char *try_connect(const struct sockaddr *a, socklen_t len)
{
    const char *why;
    int fd = connect_to(a, len, &why);
    if (fd >= 0)
        close(fd);
    return why;
}

/* Its first line, without CRLF; "" when it says none in time. */
static void read_line(int fd, char *out, size_t size)
{
    size_t n = 0;
    struct pollfd p = {fd, POLLIN, 0};
    ssize_t got = 1;
    out[0] = '\0';
    while (got > 0 && n + 1 < size && !strchr(out, '\n') && poll(&p, 1, GREETING) > 0) {
        got = read(fd, out + n, size - n - 1);
        n += got > 0 ? (size_t)got : 0;
        out[n] = '\0';
    }
    out[strcspn(out, "\r\n")] = '\0';
}

const char *check_greeting(const char *host, const char *port, char *out, size_t size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    int e = getaddrinfo(host, port, &hints, &list);
    const char *why = e ? gai_strerror(e) : "no address";
    if (e)
        return why;
    int fd = connect_to(list->ai_addr, list->ai_addrlen, &why);
    freeaddrinfo(list);
    if (fd < 0)
        return why;
    read_line(fd, out, size);
    (void)!write(fd, "QUIT\r\n", 6);
    close(fd);
    return NULL;
}

static const char *try_host(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
    int e = getaddrinfo(host, port, &hints, &list);
    const char *why = e ? gai_strerror(e) : "no address";
    for (a = e ? NULL : list; a && why; a = a->ai_next)
        why = try_connect(a->ai_addr, a->ai_addrlen);
    if (!e)
        freeaddrinfo(list);
    return why;
}

static const char *try_path(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return "the path is too long for a socket";
    memcpy(a.sun_path, path, strlen(path) + 1);
    return try_connect((struct sockaddr *)&a, sizeof a);
}

const char *check_listens(const char *host, const char *port)
{
    return port ? try_host(host, port) : try_path(host);
}

/* list: what `divert` has, when the host is one of several in it. */
static void check_one_hop(struct ctl *ctl, const char *destination, const char *list)
{
    const char *hop = strchr(destination, ':') + 1, *why;
    struct nexthop to;
    char about[400];
    snprintf(about, sizeof about, "next hop %.160s%s%.200s", destination, list ? " of " : "",
             list ? list : "");
    if (!nexthop_parse(destination, &to))
        return;
    if (!to.port) {
        const char *elsewhere = config_socket_at(ctl->config, hop + 5),
                   *path = elsewhere ? elsewhere : hop + 5;
        why = try_path(path);
        if (why && !elsewhere && strstr(hop, "private/"))
            check_say(ctl, FINDING_CRITICAL, FOUND_HOP_PRIVATE, about,
                      "one more unix_listener in service lmtp for the relay's user, and socket_at "
                      "(admin guide)",
                      "%s (private/ is Postfix's alone)", why);
        else if (why)
            check_say(ctl, FINDING_CRITICAL, FOUND_HOP_SOCKET, about,
                      "start it, or mend its unix_listener", "%s: %s", path, why);
    } else {
        why = try_host(to.host, to.port);
        if (why)
            check_say(ctl, FINDING_WARNING, FOUND_HOP_SILENT, about,
                      "start it, or open the way to it",
                      list ? "%s: the list's mail is tried at its other hosts"
                           : "%s: its mail waits in lanes, or is tried at a fallback relay",
                      why);
    }
    if (!why)
        check_good(ctl, about, "answers");
    nexthop_free(&to);
}

static void check_hop(struct ctl *ctl, const char *destination)
{
    char *host, *second = nexthop_host(destination, 1);
    for (size_t i = 0; (host = nexthop_host(destination, i)); i++) {
        check_one_hop(ctl, host, second ? destination : NULL);
        free(host);
    }
    free(second);
}

/* Dovecot 2.4 takes only so many deliveries for one user at a time, and answers 451 to the rest. */
static void check_concurrency(struct ctl *ctl)
{
    const char *const argv[] = {"doveconf", "-h", "lmtp_user_concurrency_limit", NULL};
    struct subprocess_result r = subprocess_run(argv, NULL, 0, 10 * PATIENCE);
    long long limit = r.status == 0 && r.out.data ? atoll(r.out.data) : 0;
    if (r.status < 0 || r.status == 127)
        check_good(ctl, "dovecot", "is not on this host");
    else if (limit > 0 && limit < ctl->config->destination_concurrency)
        check_say(ctl, FINDING_WARNING, FOUND_USER_CONCURRENCY, "dovecot",
                  "lmtp_user_concurrency_limit = 0, or at least destination_concurrency",
                  "lmtp_user_concurrency_limit is %lld, destination_concurrency %lld: a burst for "
                  "one user is answered 451",
                  limit, (long long)ctl->config->destination_concurrency);
    else
        check_good(ctl, "dovecot", "takes enough deliveries at a time");
    subprocess_free(&r);
}

void check_dovecot(struct ctl *ctl)
{
    for (size_t i = 0; i < ctl->config->divert.n; i++)
        check_hop(ctl, ctl->config->divert.v[i]);
    check_concurrency(ctl);
    check_replicator(ctl);
}
