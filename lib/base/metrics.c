#include "lib/base/metrics.h"

#include <stdbool.h>
#include <stdint.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/metrics_text.h"
#include "lib/base/socket_swap.h"

atomic_llong metrics[METRICS];

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
        metrics_text(&out, METRIC_ALL, METRICS_ALONE);
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

static mode_t mask(void)
{
    mode_t m = umask(077);
    umask(m);
    return m;
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

static struct {
    struct socket_swap at;
    char path[SOCKET_SWAP_PATH_MOST + 1];
} served = {{-1, -1, "", NULL}, ""};

int metrics_bind(const char *path, const char *program)
{
    struct buf name = {0};
    if (!*path)
        return 0;
    expand(path, program, &name);
    bool fits = name.len < sizeof served.path;
    snprintf(served.path, sizeof served.path, "%s", name.data);
    buf_free(&name);
    if (!fits) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (socket_swap_bind(&served.at, served.path, SOCK_STREAM) < 0)
        return -1;
    if (fchmodat(served.at.directory, served.at.name, 0777 & ~mask(), 0) == 0 &&
        listen(served.at.fd, 16) == 0)
        return 0;
    socket_swap_drop(&served.at);
    return -1;
}

int metrics_begin(void)
{
    pthread_t t;
    if (served.at.fd < 0)
        return 0;
    if (socket_swap_place(&served.at) < 0)
        return -1;
    int error = pthread_create(&t, NULL, serve, (void *)(intptr_t)served.at.fd);
    if (!error) {
        pthread_detach(t);
        return 0;
    }
    close(served.at.fd);
    served.at.fd = -1;
    errno = error;
    return -1;
}

void metrics_drop(void)
{
    socket_swap_drop(&served.at);
}

int metrics_serve(const char *path, const char *program)
{
    return metrics_bind(path, program) < 0 || metrics_begin() < 0 ? -1 : 0;
}
