/* dovelane-replicator - a Dovecot service: takes hints and admins' requests, talks to Redis, and
 * has the workers look at and change mailboxes. All that it does stands in replicator.h; here it
 * becomes a service of Dovecot's master.
 *
 *   -C FILE  dovelane.conf, default /etc/dovelane/dovelane.conf       -n NAME  which replica this is
 *   -t       check it and exit                                       -V       print the version and exit
 *
 * (-c is Dovecot's own option: the path of dovecot.conf.) */
#include "dovecot-plugin/compat.h"

#include <ioloop.h>
#include <lib-signals.h>
#include <master-interface.h>
#include <restrict-access.h>
#include <str.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/admin/admin.h"
#include "dovecot-plugin/replicator/admin/gauges.h"
#include "dovecot-plugin/replicator/bridge.h"
#include "dovecot-plugin/replicator/site/replicator_dir.h"
#include "lib/base/program_name.h"
#include "lib/base/clock.h"
#include "lib/redis/endpoint.h"
#include "dovecot-plugin/replicator/users/commits.h"
#include "dovecot-plugin/replicator/users/hints.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "lib/daemon/metrics_http.h"
#include "dovecot-plugin/replicator/replicator.h"

#define WORKER_SOCKET "dovelane-worker"
#define COMMIT_SOCKET "dovelane-commit"
#define DEFAULT_CONFIG "/etc/dovelane/dovelane.conf"
#define OPTIONS "C:n:"
#define START_AGAIN 10  /* seconds */
#define LISTENERS_MAX 8 /* that the service has in dovecot.conf; asked of no other */

static struct replicator *replicator;
static struct bridge *bridge;
static bool started;

/* Tells one who asked what doveadm prints. His request is read first: he may be writing it still.
 * False: it is none that anybody connects to, but the FIFO of hints. */
static bool send_away(int listener)
{
    static const char reply[] = "-dovelane-replicator cannot start, and tries again every 10 "
                                "seconds: Dovecot's log says why (doveadm log find)\n=\t75\n";
    char request[4096];
    int fd = accept(listener, NULL, NULL);
    struct pollfd asks = {fd, POLLIN, 0};

    if (fd < 0)
        return errno != ENOTSOCK;
    if (poll(&asks, 1, 1000) > 0 && recv(fd, request, sizeof request, MSG_DONTWAIT) > 0)
        (void)send(fd, reply, sizeof reply - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
    return TRUE;
}

/* Where a process ends before init_finish, the master starts no other one until somebody connects:
 * till then nothing would come from other sites. What is wrong may pass, so another process tries
 * again. A signal ends the wait. Admins who ask meanwhile are answered. */
static void end_of_process(void)
{
    if (started || getenv(MASTER_IS_PARENT_ENV) == NULL)
        return;
    started = TRUE;
    master_service_init_finish(master_service);
    lib_set_clean_exit(TRUE); /* which that took back: the error was logged */
    struct pollfd listener[LISTENERS_MAX];
    nfds_t n = I_MIN(master_service_get_socket_count(master_service), LISTENERS_MAX);
    for (nfds_t i = 0; i < n; i++)
        listener[i] = (struct pollfd){MASTER_LISTEN_FD_FIRST + (int)i, POLLIN, 0};
    double end = clock_monotonic() + START_AGAIN, left;
    while ((left = end - clock_monotonic()) > 0 && poll(listener, n, (int)(left * 1000) + 1) > 0) {
        for (nfds_t i = 0; i < n; i++) {
            if (listener[i].revents != 0 && !send_away(listener[i].fd))
                listener[i].fd = -1; /* poll() passes over it */
        }
    }
}

static void to_dovecots_log(enum log_level level, const char *line)
{
    switch (level) {
    case LOG_LEVEL_ERROR: i_error("%s", line); break;
    case LOG_LEVEL_WARNING: i_warning("%s", line); break;
    case LOG_LEVEL_INFO: i_info("%s", line); break;
    case LOG_LEVEL_DEBUG: i_debug("%s", line); break;
    }
}

static void client_connected(struct master_service_connection *conn)
{
    master_service_client_connection_accept(conn);
    if (conn->fifo)
        hints_fifo(replicator->hints, conn->fd);
    else {
        if (strcmp(conn->name, COMMIT_SOCKET) == 0)
            commits_client(replicator->commits, conn->fd);
        else
            admin_client(replicator->admin, conn->fd);
        /* They are counted there; for the master this process has room for ever. */
        master_service_client_connection_destroyed(master_service);
    }
    bridge_wake(bridge);
}

static void stopped(void *arg)
{
    io_loop_stop(arg);
}

static const char *replica_names(const struct config *c)
{
    string_t *text = t_str_new(64);
    for (size_t i = 0; i < c->nreplicas; i++)
        str_printfa(text, "%s %s", i > 0 ? "," : "", c->replica[i].name);
    return c->nreplicas > 0 ? str_c(text) : " none";
}

static struct config *read_config(const char *path, const char *name, int *self_r)
{
    char *error;
    struct config *c = config_read(path, &error);

    if (c == NULL)
        i_fatal("%s", error);
    if (name == NULL)
        i_fatal("-n is needed: the name of the replica that this is (executable = "
                "dovelane-replicator -n NAME)");
    *self_r = config_replica_index(c, name);
    if (*self_r < 0)
        i_fatal("-n %s: %s has no replica of that name; it has%s", name, path, replica_names(c));
    return c;
}

static char *missing_directory(const struct config *c, const char *directory)
{
    const struct {
        const char *setting, *path, *way_out;
    } needed[] = {{"replicator_dir", directory, "make it, for the user that the service runs as"},
                  {"dirty_dir", c->dirty_dir, "make it, mode 1733"}};
    struct stat st;
    for (size_t i = 0; i < N_ELEMENTS(needed); i++) {
        int bad = stat(needed[i].path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        if (bad)
            return mem_printf("%s = %s: %s%s%s%s", needed[i].setting, needed[i].path, strerror(bad),
                              bad == ENOENT ? "; " : "", bad == ENOENT ? needed[i].way_out : "",
                              bad == ENOENT ? " (systemd-tmpfiles --create makes the usual ones)"
                                            : "");
    }
    return NULL;
}

/* What would keep this replica from starting here; the text is the caller's. */
static char *unfit_for(const struct config *c, const char *name)
{
    char *why, *directory = replicator_dir_find(c->replicator_dir, REPLICATOR_DIR_OWN,
                                                REPLICATOR_DIR_OLDER, &why);
    if (directory != NULL && (why = missing_directory(c, directory)) == NULL)
        why = ledger_of_another_site(directory, name,
                                     (uint64_t)c->replica[config_replica_index(c, name)].id);
    free(directory);
    return why;
}

/* -t and -V are for a shell, where there is no master to be a service of. What it returns is the
 * exit status, as of the other programs (lib/daemon/program.h); -1: neither was given. */
static int shell_options(int argc, char **argv)
{
    const char *path = DEFAULT_CONFIG, *name = NULL;
    bool check = false, version = false, wrong = false;
    char *error = NULL;
    int opt;
    for (int i = 1; i < argc; i++)
        check = check || strcmp(argv[i], "-t") == 0 || strcmp(argv[i], "-V") == 0;
    if (!check)
        return -1;
    check = false;
    while ((opt = getopt(argc, argv, OPTIONS "tV")) != -1) {
        switch (opt) {
        case 'C': path = optarg; break;
        case 'n': name = optarg; break;
        case 't': check = true; break;
        case 'V': version = true; break;
        default: wrong = true;
        }
    }
    if (wrong || optind != argc) {
        fprintf(stderr, "usage: dovelane-replicator [-C dovelane.conf] [-n replica] -t | -V\n");
        return 2;
    }
    if (version) {
        printf("dovelane-replicator " DOVELANE_VERSION "\n");
        return 0;
    }
    struct config *c = config_read(path, &error);
    if (c == NULL) {
        fprintf(stderr, "dovelane-replicator: %s\n", error);
        return 2;
    }
    program_name_set("dovelane-replicator");
    endpoint_replica(name);
    if (c->nreplicas == 0)
        fprintf(stderr,
                "dovelane-replicator: %s: has no replica: nothing would be replicated; a section "
                "replica \"NAME\" { } names each\n",
                path);
    else if (name != NULL && config_replica_index(c, name) < 0)
        fprintf(stderr, "dovelane-replicator: -n %s: %s has no replica of that name; it has%s\n",
                name, path, replica_names(c));
    else if ((error = endpoint_check_replicas(c)) != NULL ||
             (name != NULL && (error = unfit_for(c, name)) != NULL))
        fprintf(stderr, "dovelane-replicator: %s: %s\n", path, error);
    else
        printf("dovelane-replicator: %s is good%s%s\n", path,
               name == NULL ? "; which replica this host is (-n) was not asked, nor whether its "
                              "directories are there"
                            : "",
               c->nreplicas == 1 ? "; it has one replica, with nobody to replicate to" : "");
    bool good =
        c->nreplicas > 0 && (name == NULL || config_replica_index(c, name) >= 0) && error == NULL;
    free(error);
    config_free(c);
    return good ? 0 : 2;
}

static void open_log(const struct config *c)
{
    if (strcmp(c->log, "stderr") == 0)
        log_stderr_to(to_dovecots_log);
    log_as_json(c->log_format == LOG_FORMAT_JSON);
    char *where = endpoint_file_of(c->log, "dovelane-replicator");
    if (log_open("dovelane-replicator", where, (enum log_level)c->log_level) < 0)
        i_fatal("log = %s: %m", where);
    free(where);
}

static void reopen_log(const siginfo_t *si, void *arg)
{
    if (log_reopen() < 0)
        i_error("the log cannot be opened anew, and stays as it is: %m");
}

static void serve_metrics(const struct config *c)
{
    if (metrics_serve(c->metrics_socket, "dovelane-replicator") < 0)
        i_error("metrics_socket = %s: %m: nobody can ask for the counters; its directory must be "
                "the service's user's",
                c->metrics_socket);
}

/* The master has told us to stop (or is gone): the users' states are closed before we are. */
static void stop_in_order(struct ioloop *ioloop)
{
    replicator_stop(replicator, stopped, ioloop);
    bridge_wake(bridge);
    io_loop_run(ioloop);
}

int main(int argc, char *argv[])
{
    const char *path = DEFAULT_CONFIG, *name = NULL, *error;
    int opt, self, done = shell_options(argc, argv);

    if (done >= 0)
        return done;

    master_service =
        master_service_init("dovelane-replicator",
                            MASTER_SERVICE_FLAG_NO_IDLE_DIE | COMPAT_SERVICE_FLAG_DISABLE_SSL_SET |
                                MASTER_SERVICE_FLAG_NO_SSL_INIT,
                            &argc, &argv, OPTIONS);
    while ((opt = master_getopt(master_service)) > 0) {
        switch (opt) {
        case 'C': path = optarg; break;
        case 'n': name = optarg; break;
        default: return 64;
        }
    }
    if (compat_settings_read_simple(master_service, NULL, &error) < 0)
        i_fatal("%s", error);
    master_service_init_log(master_service);
    /* The service's "user =": the master leaves it to us to become him. */
    restrict_access_by_env(RESTRICT_ACCESS_FLAG_ALLOW_ROOT, NULL);
    restrict_access_allow_coredumps(TRUE);
    atexit(end_of_process);
    struct config *config = read_config(path, name, &self);
    program_name_set("dovelane-replicator");
    log_node(name);
    open_log(config);
    lib_signals_set_handler(SIGHUP, LIBSIG_FLAG_DELAYED | LIBSIG_FLAG_RESTART, reopen_log, NULL);
    /* libc's: mail clients go first. */
    if (setpriority(PRIO_PROCESS, 0, (int)config->replicator_nice) < 0)
        i_warning("replicator_nice = %d: %m", (int)config->replicator_nice);

    bridge = bridge_open();
    serve_metrics(config); /* it has a thread, and before the bridge none may run (bridge.h) */
    const char *base_dir = compat_base_dir(master_service);
    replicator = replicator_open(bridge_loop(bridge), config, (size_t)self,
                                 t_strconcat(base_dir, "/" WORKER_SOCKET, NULL));
    if (replicator == NULL)
        i_fatal("cannot start, see above");
    started = TRUE;
    master_service_init_finish(master_service);
    bridge_start(bridge);
    replicator_gauges_open(replicator);

    master_service_run(master_service, client_connected);
    stop_in_order(current_ioloop);
    metrics_http_stop();

    replicator_close(replicator);
    bridge_close(&bridge);
    config_free(config);
    master_service_deinit(&master_service);
    return 0;
}
