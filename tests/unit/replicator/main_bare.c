/* main_bare - dovelane-replicator without Dovecot: the same code on a plain libev loop, with
 * sockets of its own in a directory, for tests. usage: replicator-bare CONFIG REPLICA DIRECTORY
 * (of dovelane-hint, dovelane-admin, dovelane-commit, dovelane-worker) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/admin/admin.h"
#include "lib/base/program_name.h"
#include "dovecot-plugin/replicator/users/commits.h"
#include "dovecot-plugin/replicator/users/hints.h"
#include "lib/base/log.h"
#include "dovecot-plugin/replicator/admin/gauges.h"
#include "lib/base/metrics.h"
#include "lib/daemon/metrics_http.h"
#include "dovecot-plugin/replicator/replicator.h"

static struct replicator *r;

static void stopped(void *arg)
{
    ev_break(arg, EVBREAK_ALL);
}

static void on_signal(struct ev_loop *loop, ev_signal *s, int events)
{
    (void)s, (void)events;
    replicator_stop(r, stopped, loop);
}

static void on_client(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    int fd = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        admin_client(r->admin, fd);
}

static void on_mail_process(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    int fd = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        commits_client(r->commits, fd);
}

/* As the example of Dovecot's services has it: mode 0666 for mail processes. */
static int listen_at(const char *dir, const char *name, mode_t mode)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, name);
    unlink(a.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 100) < 0 ||
        chmod(a.sun_path, mode) < 0)
        log_fatal("%s: %s", a.sun_path, strerror(errno));
    return fd;
}

/* Dovecot's master holds the FIFO open like this, so that writers find a reader while we are
 * away. */
static int hint_fifo(const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/dovelane-hint", dir);
    if (mkfifo(path, 0600) < 0 && errno != EEXIST)
        log_fatal("%s: %s", path, strerror(errno));
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        log_fatal("%s: %s", path, strerror(errno));
    return fd;
}

int main(int argc, char **argv)
{
    char *error, worker[200];
    ev_signal term;
    ev_io admin, commit;
    if (argc != 4)
        return 64;
    struct config *c = config_read(argv[1], &error);
    if (!c) {
        fprintf(stderr, "%s\n", error);
        return 64;
    }
    program_name_set("dovelane-replicator");
    log_open("replicator", c->log, (enum log_level)c->log_level);
    metrics_serve(c->metrics_socket, "replicator");
    snprintf(worker, sizeof worker, "%s/dovelane-worker", argv[3]);
    struct ev_loop *loop = ev_default_loop(0);
    int self = config_replica_index(c, argv[2]);
    r = self < 0 ? NULL : replicator_open(loop, c, (size_t)self, worker);
    if (!r)
        return 1;
    ev_signal_init(&term, on_signal, SIGTERM);
    ev_signal_start(loop, &term);
    ev_io_init(&admin, on_client, listen_at(argv[3], "dovelane-admin", 0600), EV_READ);
    ev_io_start(loop, &admin);
    ev_io_init(&commit, on_mail_process, listen_at(argv[3], "dovelane-commit", 0666), EV_READ);
    ev_io_start(loop, &commit);
    hints_fifo(r->hints, hint_fifo(argv[3]));
    replicator_gauges_open(r);
    ev_run(loop, 0);
    metrics_http_stop();
    replicator_close(r);
    config_free(c);
    return 0;
}
