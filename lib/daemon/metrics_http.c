/* metrics_http - a thread that serves HTTP, and asks the loop for what it shows. */
#include "lib/daemon/metrics_http.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "lib/base/metrics_text.h"
#include "lib/redis/endpoint.h"

#define CONNECTIONS 16 /* at one time; the others wait in the kernel, or are refused by it */
#define BACKLOG 16
#define PATIENCE 10.       /* seconds that a connection has, from the first byte to the last */
#define REQUEST_MOST 16384 /* bytes that a request may have */
#define WAIT 3.            /* seconds for the loop's answer */
#define FRESH .1           /* seconds for which what was collected is good for another request */
#define AGAIN 500          /* ms between two attempts to get the port */
#define COMPLAIN 10        /* the attempt after which a line says so: a handover's needs some */
#define LOOK 10.           /* seconds between two looks at the files of TLS */
#define NICE 10
#define FILE_MOST 65536

#define OPENMETRICS "application/openmetrics-text"

/* What the thread goes by: its own copy of what the config says. */
struct settings {
    char *listen, *cert_file, *key_file, *user_file;
};

struct connection {
    struct connection *next, **back;
    int fd;
    double since;
};

static struct {
    struct metrics_http of;
    unsigned program;
    bool started;
    ev_io asked;    /* on the loop */
    int wake, quit; /* eventfds: for the loop, for the thread */
    pthread_t thread;

    pthread_mutex_t lock; /* for all below, to the blank line */
    pthread_cond_t done;
    struct settings next;
    bool changed, ended;
    bool wants_turn, wants_collect, collecting;
    unsigned long turns, collections;
    double collected;
    char not_ready[256];
    char *line; /* to be logged by the loop */
    enum log_level level;

    /* the thread's own */
    struct settings now;
    struct MHD_Daemon *daemon;
    struct connection *connections;
    bool closed; /* one was */
    char *key, *cert;
    struct timespec stamp[2]; /* of the files of TLS */
    unsigned failures;
    double looked;
} http = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = -1, .quit = -1};

/* ---- settings ---- */

static void settings_free(struct settings *s)
{
    free(s->listen);
    free(s->cert_file);
    free(s->key_file);
    free(s->user_file);
    *s = (struct settings){0};
}

static struct settings settings_of(const struct config *c, const char *program)
{
    const char *key = *c->metrics_tls_key_file ? c->metrics_tls_key_file : c->metrics_tls_cert_file;
    return (struct settings){
        mem_strdup(c->metrics_listen), endpoint_file_of(c->metrics_tls_cert_file, program),
        endpoint_file_of(key, program), endpoint_file_of(c->metrics_user_file, program)};
}

/* The programs have ports one after the other, so that one file serves all of a host. */
static unsigned port_of(unsigned program, const char *port)
{
    unsigned n = (unsigned)atoi(port);
    return program == METRIC_PROXY        ? n + 1
           : program == METRIC_RELAY      ? n + 2
           : program == METRIC_REPLICATOR ? n + 3
                                          : n;
}

/* ---- to the loop ---- */

static void wake(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* full: it is awake */
}

/* The loop logs it; what was not logged yet is replaced. */
static void say(enum log_level level, char *line)
{
    pthread_mutex_lock(&http.lock);
    free(http.line);
    http.line = line;
    http.level = level;
    pthread_mutex_unlock(&http.lock);
    wake(http.wake);
}

/* With the lock: until *count is above `before`. False: the loop did not answer in time. */
static bool await(const unsigned long *count, unsigned long before)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)WAIT;
    wake(http.wake);
    while (*count <= before && !http.ended)
        if (pthread_cond_timedwait(&http.done, &http.lock, &until) == ETIMEDOUT)
            break;
    return *count > before;
}

/* Gauges are what they are now, or what they were when the loop does not answer. */
static void collect(void)
{
    pthread_mutex_lock(&http.lock);
    if (http.of.collect && clock_monotonic() - http.collected > FRESH) {
        http.wants_collect = true;
        await(&http.collections, http.collections);
    }
    pthread_mutex_unlock(&http.lock);
}

/* Whether the loop turns, and why it is not ready ("": it is). */
static bool turns(char why[sizeof http.not_ready])
{
    pthread_mutex_lock(&http.lock);
    http.wants_turn = true;
    bool turned = await(&http.turns, http.turns);
    snprintf(why, sizeof http.not_ready, "%s",
             turned ? http.not_ready : "the event loop does not turn");
    pthread_mutex_unlock(&http.lock);
    return turned;
}

/* ---- a request ---- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
                              struct buf *body)
{
    bool asks = status == MHD_HTTP_UNAUTHORIZED;
    if (!body->data)
        buf_reserve(body, 1);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        buf_free(body);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = asks ? MHD_queue_basic_auth_fail_response(c, "dovelane", r)
                                  : MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result answer_line(struct MHD_Connection *c, unsigned status, const char *line)
{
    struct buf body = {0};
    buf_printf(&body, "%s\n", line);
    return answer(c, status, "text/plain; charset=utf-8", &body);
}

/* In a time that does not tell where they differ. */
static bool same(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char differs = n != m;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(a[i] ^ (m ? b[i % m] : 1));
    return !differs;
}

/* 0, or the status that says why not. The file is read each time: a new password needs no
 * restart. */
static unsigned refused(struct MHD_Connection *c)
{
    struct endpoint_user user;
    char *error = NULL, *password = NULL;
    if (!*http.now.user_file)
        return 0;
    if (endpoint_read_metrics_user(http.now.user_file, &user, &error) <= 0) {
        say(LOG_LEVEL_WARNING, error);
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
    char *name = MHD_basic_auth_get_username_password(c, &password);
    bool good = name && password && same(user.name, name) & same(user.password, password);
    explicit_bzero(&user, sizeof user);
    if (name)
        MHD_free(name);
    if (password)
        MHD_free(password);
    return good ? 0 : MHD_HTTP_UNAUTHORIZED;
}

static enum MHD_Result metrics_page(struct MHD_Connection *c)
{
    const char *accept = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    bool openmetrics = accept && strstr(accept, OPENMETRICS);
    struct buf body = {0};
    collect();
    metrics_text(&body, http.program, openmetrics ? METRICS_OPENMETRICS : METRICS_CLASSIC);
    return answer(c, MHD_HTTP_OK,
                  openmetrics ? OPENMETRICS "; version=1.0.0; charset=utf-8"
                              : "text/plain; version=0.0.4; charset=utf-8",
                  &body);
}

static enum MHD_Result probe(struct MHD_Connection *c, bool ready)
{
    char why[sizeof http.not_ready];
    bool good = turns(why) && (!ready || !*why);
    return answer_line(c, good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, good ? "ok" : why);
}

/* A body is read and thrown away: no request needs one. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **seen)
{
    static char begun;
    (void)arg, (void)version, (void)data;
    if (!*seen) {
        *seen = &begun;
        return MHD_YES;
    }
    if (*len) {
        *len = 0;
        return MHD_YES;
    }
    unsigned status = refused(c);
    if (status)
        return answer_line(c, status,
                           status == MHD_HTTP_UNAUTHORIZED ? "name and password, please"
                                                           : "metrics_user_file cannot be read");
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return answer_line(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD are answered");
    if (!strcmp(url, "/metrics"))
        return metrics_page(c);
    if (!strcmp(url, "/healthz") || !strcmp(url, "/readyz"))
        return probe(c, !strcmp(url, "/readyz"));
    return answer_line(c, MHD_HTTP_NOT_FOUND, "/metrics, /healthz and /readyz are answered");
}

/* ---- connections ---- */

static void on_connection(void *arg, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct connection *mine = *context;
    (void)arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        mine = mem_alloc(sizeof *mine);
        *mine = (struct connection){http.connections, &http.connections,
                                    info ? info->connect_fd : -1, clock_monotonic()};
        if (mine->next)
            mine->next->back = &mine->next;
        http.connections = *context = mine;
    } else if (mine) {
        *mine->back = mine->next;
        if (mine->next)
            mine->next->back = mine->back;
        free(mine);
        *context = NULL;
        http.closed = true;
    }
}

/* libmicrohttpd's own timeout begins anew with each byte. */
static void drop_slow(void)
{
    double now = clock_monotonic();
    for (struct connection *c = http.connections; c; c = c->next)
        if (now - c->since > PATIENCE)
            shutdown(c->fd, SHUT_RDWR);
}

/* ---- the port ---- */

static int listen_on(const struct settings *s, unsigned program, char **error_r)
{
    char at[512], port[16];
    const char *host, *base;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM},
                    *found = NULL;
    int one = 1, fd = -1;
    if (config_address(s->listen, at, sizeof at, &host, &base) < 0 || !base) {
        *error_r = mem_printf("%s is no address and port", s->listen);
        return -1;
    }
    snprintf(port, sizeof port, "%u", port_of(program, base));
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed) {
        *error_r = mem_printf("%s: %s", host, gai_strerror(failed));
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG)) {
        *error_r = mem_printf("%s port %s: %s", host, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static char *read_file(const char *path, struct timespec *stamp, char **error_r)
{
    struct stat st;
    struct buf b = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= FILE_MOST;
    if (good) {
        buf_reserve(&b, (size_t)st.st_size + 1);
        ssize_t n = read(fd, b.data, (size_t)st.st_size);
        good = n == st.st_size;
        b.data[good ? n : 0] = '\0';
        *stamp = st.st_mtim;
    }
    if (!good)
        *error_r = mem_printf("%s: %s", path, fd < 0 ? strerror(errno) : "cannot be read");
    if (fd >= 0)
        close(fd);
    if (good)
        return b.data;
    buf_free(&b);
    return NULL;
}

static void silent(void *arg, const char *format, va_list args)
{
    (void)arg, (void)format, (void)args;
}

static struct MHD_Daemon *start_daemon(int fd)
{
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_KEY, 0, http.key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, http.cert},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon((unsigned)MHD_USE_EPOLL | (http.key ? (unsigned)MHD_USE_TLS : 0), 0,
                            NULL, NULL, on_request, NULL, MHD_OPTION_EXTERNAL_LOGGER, silent, NULL,
                            MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)PATIENCE, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)REQUEST_MOST, MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL,
                            MHD_OPTION_ARRAY, http.key ? tls : none, MHD_OPTION_END);
}

static void forget_files(void)
{
    if (http.key)
        explicit_bzero(http.key, strlen(http.key));
    free(http.key);
    free(http.cert);
    http.key = http.cert = NULL;
}

static void close_port(void)
{
    if (http.daemon)
        MHD_stop_daemon(http.daemon); /* the socket, too */
    http.daemon = NULL;
    forget_files();
}

static bool try_open(char **error_r)
{
    const struct settings *s = &http.now;
    if (*s->cert_file && (!(http.cert = read_file(s->cert_file, &http.stamp[0], error_r)) ||
                          !(http.key = read_file(s->key_file, &http.stamp[1], error_r))))
        return false;
    int fd = listen_on(s, http.program, error_r);
    if (fd < 0)
        return false;
    http.daemon = start_daemon(fd);
    if (http.daemon)
        return true;
    close(fd);
    *error_r =
        mem_printf("libmicrohttpd cannot serve%s", http.key ? ": see the certificate and key" : "");
    return false;
}

static void open_port(void)
{
    char *error = NULL;
    if (try_open(&error)) {
        if (http.failures >= COMPLAIN)
            say(LOG_LEVEL_INFO, mem_printf("metrics_listen = %s: served now", http.now.listen));
        http.failures = 0;
        http.looked = clock_monotonic();
        return;
    }
    forget_files();
    if (++http.failures == COMPLAIN)
        say(LOG_LEVEL_WARNING,
            mem_printf("metrics_listen = %s: %s: no metrics until that passes; mail goes on",
                       http.now.listen, error));
    free(error);
}

/* A renewed certificate is one of another time. */
static void look_at_files(void)
{
    struct stat cert, key;
    double now = clock_monotonic();
    if (!http.key || now - http.looked < LOOK)
        return;
    http.looked = now;
    if (!stat(http.now.cert_file, &cert) && !stat(http.now.key_file, &key) &&
        (memcmp(&cert.st_mtim, &http.stamp[0], sizeof cert.st_mtim) ||
         memcmp(&key.st_mtim, &http.stamp[1], sizeof key.st_mtim)))
        close_port();
}

/* ---- the thread ---- */

static bool ended(void)
{
    pthread_mutex_lock(&http.lock);
    bool end = http.ended, changed = http.changed && !end;
    struct settings next = http.next;
    if (changed) {
        http.changed = false;
        http.next = (struct settings){0};
    }
    pthread_mutex_unlock(&http.lock);
    if (changed) {
        close_port();
        settings_free(&http.now);
        http.now = next;
        http.failures = 0;
    }
    return end;
}

static void wait_for_events(void)
{
    struct pollfd p[2] = {{http.quit, POLLIN, 0}, {-1, POLLIN, 0}};
    int ms = *http.now.listen ? AGAIN : -1;
    unsigned long long timeout;
    if (http.daemon) {
        p[1].fd = MHD_get_daemon_info(http.daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        ms = http.connections ? 1000 : http.key ? (int)LOOK * 1000 : -1;
        if (MHD_get_timeout(http.daemon, &timeout) == MHD_YES && (ms < 0 || timeout < (unsigned)ms))
            ms = (int)timeout;
    }
    poll(p, 2, ms);
    uint64_t told;
    if (p[0].revents && read(http.quit, &told, sizeof told) < 0)
        return;
    /* Where there were as many connections as may be, the next turn looks at the port again. */
    for (http.closed = true; http.daemon && http.closed;) {
        http.closed = false;
        MHD_run(http.daemon);
    }
}

static void *serve(void *arg)
{
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* where the unit lets it */
    while (!ended()) {
        if (!http.daemon && *http.now.listen)
            open_port();
        wait_for_events();
        drop_slow();
        look_at_files();
    }
    close_port();
    return arg;
}

/* libmicrohttpd found itself in a state that it does not know. Mail has nothing to do with it. */
static void on_panic(void *arg, const char *file, unsigned line, const char *reason)
{
    (void)arg, (void)file;
    say(LOG_LEVEL_ERROR, mem_printf("metrics_listen: libmicrohttpd, line %u: %s: no metrics until "
                                    "the next start",
                                    line, reason ? reason : "panic"));
    pthread_exit(NULL);
}

/* ---- the loop ---- */

static void tell_loop(void)
{
    pthread_mutex_lock(&http.lock);
    char *line = http.line;
    enum log_level level = http.level;
    http.line = NULL;
    pthread_mutex_unlock(&http.lock);
    if (!line)
        return;
    if (level == LOG_LEVEL_ERROR)
        log_error("%s", line);
    else if (level == LOG_LEVEL_WARNING)
        log_warning("%s", line);
    else
        log_info("%s", line);
    free(line);
}

static void on_asked(struct ev_loop *loop, ev_io *w, int events)
{
    uint64_t told;
    (void)loop, (void)events;
    if (read(w->fd, &told, sizeof told) < 0)
        return;
    tell_loop();
    pthread_mutex_lock(&http.lock);
    bool turn = http.wants_turn, begin = http.wants_collect && !http.collecting;
    http.wants_turn = http.wants_collect = false;
    http.collecting = http.collecting || begin;
    pthread_mutex_unlock(&http.lock);
    if (begin)
        http.of.collect(http.of.arg);
    if (!turn)
        return;
    const char *why = http.of.ready ? http.of.ready(http.of.arg) : NULL;
    pthread_mutex_lock(&http.lock);
    snprintf(http.not_ready, sizeof http.not_ready, "%s", why ? why : "");
    http.turns++;
    pthread_cond_broadcast(&http.done);
    pthread_mutex_unlock(&http.lock);
}

void metrics_http_collected(void)
{
    pthread_mutex_lock(&http.lock);
    http.collecting = false;
    http.collected = clock_monotonic();
    http.collections++;
    pthread_cond_broadcast(&http.done);
    pthread_mutex_unlock(&http.lock);
}

/* ---- start and stop ---- */

static void warn_open(const struct config *c)
{
    if (*c->metrics_listen && !config_loopback(c->metrics_listen) &&
        (!*c->metrics_user_file || !*c->metrics_tls_cert_file))
        log_warning("metrics_listen = %s: other hosts reach it%s%s", c->metrics_listen,
                    *c->metrics_user_file ? "" : ", without a password (metrics_user_file)",
                    *c->metrics_tls_cert_file ? "" : ", without TLS (metrics_tls_cert_file)");
}

static bool start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&http.thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return !failed;
}

void metrics_http_start(const struct metrics_http *of, const struct config *c)
{
    pthread_condattr_t clock;
    if (http.started)
        return;
    http.of = *of;
    http.program = metrics_program(of->program);
    http.now = settings_of(c, of->program);
    http.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    http.quit = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&http.done, &clock);
    pthread_condattr_destroy(&clock);
    MHD_set_panic_func(on_panic, NULL);
    if (http.wake < 0 || http.quit < 0 || !start_thread()) {
        log_warning("metrics_listen = %s: %s: no metrics", c->metrics_listen, strerror(errno));
        return;
    }
    http.started = true;
    ev_io_init(&http.asked, on_asked, http.wake, EV_READ);
    ev_io_start(of->loop, &http.asked);
    warn_open(c);
}

void metrics_http_reload(const struct config *c)
{
    if (!http.started)
        return;
    pthread_mutex_lock(&http.lock);
    settings_free(&http.next);
    http.next = settings_of(c, http.of.program);
    http.changed = true;
    pthread_mutex_unlock(&http.lock);
    wake(http.quit);
    warn_open(c);
}

void metrics_http_stop(void)
{
    pthread_mutex_lock(&http.lock);
    bool first = http.started && !http.ended;
    http.ended = true;
    if (first)
        pthread_cond_broadcast(&http.done);
    pthread_mutex_unlock(&http.lock);
    if (!first)
        return;
    wake(http.quit);
    pthread_join(http.thread, NULL);
}

char *metrics_http_check(const struct config *c, const char *program)
{
    struct settings s = settings_of(c, program);
    struct endpoint_user user;
    struct timespec stamp;
    char *error = NULL;
    if (*s.listen && *s.cert_file) {
        free(read_file(s.cert_file, &stamp, &error));
        if (!error)
            free(read_file(s.key_file, &stamp, &error));
    }
    if (*s.listen && !error && *s.user_file)
        endpoint_read_metrics_user(s.user_file, &user, &error);
    settings_free(&s);
    return error;
}
