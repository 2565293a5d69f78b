#include "lib/base/log_journal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/log_json.h"

#define USUAL "/run/systemd/journal/socket"

static int fd = -1;
static struct sockaddr_un to = {.sun_family = AF_UNIX};

int log_journal_open(const char *path)
{
    if (!path)
        path = USUAL;
    if (strlen(path) >= sizeof to.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(to.sun_path, path);
    if (fd < 0)
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* Only to see whether it is there. Each datagram names the path anew: a journal that is
     * restarted has another socket. */
    int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int failed = fd < 0 || probe < 0 || connect(probe, (struct sockaddr *)&to, sizeof to) < 0;
    int error = errno;
    if (probe >= 0)
        close(probe);
    errno = error;
    return failed ? -1 : 0;
}

struct datagram {
    size_t n;
    char data[2 * LOG_TEXT_MAX + 2500];
};

static void add(struct datagram *d, const char *s, size_t n)
{
    if (n > sizeof d->data - d->n)
        n = sizeof d->data - d->n;
    memcpy(d->data + d->n, s, n);
    d->n += n;
}

static void add_mark(struct datagram *d, const char *text, const struct log_mark *m)
{
    char name[64];
    int n = snprintf(name, sizeof name, "DOVELANE_%s=", log_field_name(m->field));
    for (char *p = name; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    add(d, name, (size_t)n);
    add(d, text + m->from, m->len);
    add(d, "\n", 1);
}

bool log_journal_send(int priority, const char *identifier, const char *node, const char *before,
                      const char *text, const struct log_marks *m)
{
    struct datagram d;
    ssize_t sent;
    d.n = (size_t)snprintf(
        d.data, 300, "PRIORITY=%d\nSYSLOG_FACILITY=2\nSYSLOG_IDENTIFIER=%.200s\nMESSAGE=", priority,
        identifier);
    add(&d, before, strlen(before));
    add(&d, text, strlen(text));
    add(&d, "\n", 1);
    if (node) {
        add(&d, "DOVELANE_NODE=", 14);
        add(&d, node, strlen(node));
        add(&d, "\n", 1);
    }
    for (unsigned i = 0; i < m->n; i++)
        add_mark(&d, text, &m->mark[i]);
    do
        sent = sendto(fd, d.data, d.n, MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)d.n;
}
