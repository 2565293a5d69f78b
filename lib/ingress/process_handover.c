/* process_handover - starts the next process at SIGUSR1, hears that it is ready, and tells the
 * service manager. */
#include "lib/ingress/process_handover.h"

#include <dirent.h>
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/daemon/metrics_http.h"
#include "lib/daemon/notify.h"
#include "lib/base/subprocess.h"

#define READY_FD "DOVELANE_READY_FD"
#define START_WITHIN 20000 /* ms; the watchdog of our unit waits for 30 s */
#define ABLE_WITHIN 5.     /* seconds of them */

extern char **environ;
static char **arguments;
static char program[4096]; /* by its path: an upgrade puts another file there */
static struct store *store;
static struct listener *listener;
static long long (*sessions)(void);

static sigset_t the_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return set;
}

void handover_prepare(char **argv)
{
    sigset_t set = the_signal();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    arguments = argv;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
}

bool handover_takes_over(void)
{
    return getenv(READY_FD) != NULL;
}

/* ---- the new one ---- */

/* The store's watch turns the loop ten times a second. */
void handover_await(struct ev_loop *loop, struct store *s, const bool *stop)
{
    double until = clock_monotonic() + ABLE_WITHIN;
    while (handover_takes_over() && !*stop && !store_able(s) && clock_monotonic() < until)
        ev_run(loop, EVRUN_ONCE);
}

static void tell_the_old_one(void)
{
    const char *fd = getenv(READY_FD);
    if (!fd)
        return;
    if (write(atoi(fd), "1", 1) != 1)
        log_warning("the process before this one is gone");
    close(atoi(fd));
    unsetenv(READY_FD);
}

/* ---- the old one ---- */

static bool new_file_is_good(void)
{
    size_t n = 0;
    while (arguments[n])
        n++;
    const char **argv = mem_zero((n + 2) * sizeof *argv);
    argv[0] = program;
    for (size_t i = 1; i < n; i++)
        argv[i] = arguments[i];
    argv[n] = "-t";
    struct subprocess_result r = subprocess_run(argv, NULL, 0, START_WITHIN);
    if (r.err.data)
        r.err.data[strcspn(r.err.data, "\n")] = '\0';
    if (r.status != 0)
        log_error("reload: nothing is changed: %s", r.failure ? r.failure
                                                    : r.err.data
                                                        ? r.err.data
                                                        : "the new program ended without a word");
    bool good = r.status == 0;
    subprocess_free(&r);
    free(argv);
    return good;
}

/* What libraries have opened without close-on-exec is not the new process': it would hand it on
 * in its turn. */
static void keep_descriptors(int but)
{
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = atoi(e->d_name);
        if (fd > 2 && fd != but)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (d)
        closedir(d);
}

static pid_t start_new(int *ready)
{
    int fd[2];
    pid_t pid;
    sigset_t none, usual;
    posix_spawnattr_t how;
    if (pipe2(fd, O_CLOEXEC))
        return -1;
    keep_descriptors(fd[1]);
    fcntl(fd[1], F_SETFD, 0);
    sigemptyset(&none);
    sigfillset(&usual);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &usual);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char *text = mem_printf("%d", fd[1]);
    setenv(READY_FD, text, 1);
    unsetenv("WATCHDOG_PID"); /* the manager follows MAINPID */
    int failed = posix_spawn(&pid, program, NULL, &how, arguments, environ);
    unsetenv(READY_FD);
    free(text);
    posix_spawnattr_destroy(&how);
    close(fd[1]);
    if (failed) {
        errno = failed;
        close(fd[0]);
        return -1;
    }
    *ready = fd[0];
    return pid;
}

static bool said_ready(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    char byte;
    bool said = poll(&p, 1, START_WITHIN) == 1 && read(fd, &byte, 1) == 1;
    close(fd);
    return said;
}

/* Returns the process that has taken over, or 0. */
static pid_t hand_over(void)
{
    int ready;
    notify("WATCHDOG=1");
    if (!new_file_is_good())
        return 0;
    notify("WATCHDOG=1");
    pid_t pid = start_new(&ready);
    if (pid < 0) {
        log_error("reload: nothing is changed: %s cannot be started: %s", program, strerror(errno));
        return 0;
    }
    if (said_ready(ready)) {
        metrics_http_stop(); /* the new one tries until the port is free */
        log_info("process %d has taken over", (int)pid);
        return pid;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    log_error("reload: nothing is changed: the new process did not come up; its own lines say why");
    return 0;
}

/* Sessions are counted before their listener says that it has left. */
static bool at_rest(bool left)
{
    return left && sessions() == 0 && store_pending_revokes(store) == 0;
}

/* Who found the old socket by its path before the rename still connects to it. That takes a
 * moment: so it is there for a second of quiet. Then it refuses, and who is in its queue is
 * served. A reload that the manager sent while the successor came up reached this process. The
 * successor may have read the file before that, so it is passed on. The successor is a child
 * that nobody waits for: its id is no other's. */
static void leave(pid_t successor)
{
    struct timespec tick = {0, 100000000};
    sigset_t set = the_signal();
    time_t told = time(NULL);
    for (unsigned quiet = 0; !at_rest(listener_left(listener));) {
        if (sigtimedwait(&set, NULL, &tick) == SIGUSR1)
            kill(successor, SIGUSR1);
        quiet = at_rest(true) ? quiet + 1 : 0;
        if (quiet >= 10)
            listener_leave(listener);
        if (time(NULL) - told >= 60) {
            told = time(NULL);
            log_info("leaving after %lld more sessions, %zu owed revocations", sessions(),
                     store_pending_revokes(store));
        }
    }
    log_info("ended after its last session");
    _exit(0);
}

static void *serve(void *arg)
{
    sigset_t set = the_signal();
    int period = notify_watchdog();
    unsigned long seen = 0;
    for (;;) {
        struct timespec wait = {period / 1000, (period % 1000) * 1000000L};
        int got = period ? sigtimedwait(&set, NULL, &wait) : sigwaitinfo(&set, NULL);
        unsigned long beat = store_tick(store);
        if (period && beat != seen)
            notify("WATCHDOG=1");
        seen = beat;
        pid_t successor = got == SIGUSR1 ? hand_over() : 0;
        if (successor)
            leave(successor);
    }
    return arg;
}

void handover_ready(struct store *s, struct listener *l, long long (*how_many)(void))
{
    pthread_t thread;
    store = s;
    listener = l;
    sessions = how_many;
    tell_the_old_one();
    notify("MAINPID=%d\nREADY=1", (int)getpid());
    if (pthread_create(&thread, NULL, serve, NULL) == 0)
        pthread_detach(thread);
    else
        log_error("no thread for SIGUSR1: this process cannot be reloaded");
}
