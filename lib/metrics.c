#include "metrics.h"

#include <stdbool.h>
#include <stdint.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

atomic_llong metrics[METRICS];

static const struct {
    const char *name, *type, *help;
} table[METRICS] = {
#define COUNTER(name, help) {#name "_total", "counter", help},
#define GAUGE(name, help) {#name, "gauge", help},
#include "metrics.def"
#undef COUNTER
#undef GAUGE
};

void metrics_print(struct buf *out)
{
    for (int i = 0; i < METRICS; i++)
        buf_printf(out, "# HELP dovelane_%s %s\n# TYPE dovelane_%s %s\ndovelane_%s %lld\n", table[i].name, table[i].help, table[i].name,
                   table[i].type, table[i].name, (long long)atomic_load_explicit(&metrics[i], memory_order_relaxed));
}

static void *serve(void *arg)
{
    int listener = (int)(intptr_t)arg;
    for (;;) {
        int c = accept(listener, NULL, NULL);
        if (c < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            sleep(1); /* out of descriptors: the program itself comes first */
            continue;
        }
        struct buf out = {0};
        metrics_print(&out);
        struct timeval patience = {5, 0};
        setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        for (size_t done = 0; done < out.len;) {
            ssize_t n = send(c, out.data + done, out.len - done, MSG_NOSIGNAL);
            if (n <= 0)
                break;
            done += (size_t)n;
        }
        buf_free(&out);
        close(c);
    }
    return NULL;
}

static void expand(const char *path, const char *program, struct buf *out)
{
    for (; *path; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            buf_adds(out, program);
            path++;
        } else {
            buf_addc(out, *path);
        }
    }
}

int metrics_serve(const char *path, const char *program)
{
    if (!*path)
        return 0;
    struct buf name = {0};
    expand(path, program, &name);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    bool fits = name.len < sizeof a.sun_path;
    if (fits)
        memcpy(a.sun_path, name.data, name.len + 1);
    buf_free(&name);
    if (!fits) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -1;
    unlink(a.sun_path);
    pthread_t t;
    if (bind(s, (struct sockaddr *)&a, sizeof a) < 0 || listen(s, 16) < 0 ||
        (errno = pthread_create(&t, NULL, serve, (void *)(intptr_t)s))) {
        int e = errno;
        close(s);
        errno = e;
        return -1;
    }
    pthread_detach(t);
    return 0;
}
