#include "lib/base/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/queue.h"

/* names of next hops that are looked up at a time; with thousands of them and a dead name server
 * the others wait their turn */
#define THREADS_MAX 32
#define THREADS_MORE 16 /* beyond that for nodes alone */

enum stage { WAITING, RUNNING, DONE };

struct resolve {
    STAILQ_ENTRY(resolve) next;
    char *host, *port;
    enum resolve_for purpose;
    resolve_fn *fn;
    void *arg;
    ev_io over; /* an eventfd: ev_async does not wake a loop that is part of another one */
    struct ev_loop *loop;
    enum stage stage;
    bool cancelled; /* while it runs: the thread frees it */
    int error;
    struct addrinfo *found;
};

STAILQ_HEAD(queue, resolve);

/* All of it, and the stage of each lookup, under the lock: there may be several loops. A thread
 * lives as long as there is something to look up. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue waiting[2] = {STAILQ_HEAD_INITIALIZER(waiting[RESOLVE_NODE]),
                                  STAILQ_HEAD_INITIALIZER(waiting[RESOLVE_HOP])};
static unsigned threads;

static void copy_found(const struct addrinfo *ai, struct addresses *out)
{
    out->n = 0;
    for (; ai && out->n < ADDRESSES_MAX; ai = ai->ai_next) {
        struct socket_address *a = &out->v[out->n];
        if (ai->ai_addrlen > sizeof a->sa)
            continue;
        memcpy(&a->sa, ai->ai_addr, ai->ai_addrlen);
        a->len = ai->ai_addrlen;
        if (!getnameinfo(ai->ai_addr, ai->ai_addrlen, a->text, sizeof a->text, NULL, 0,
                         NI_NUMERICHOST))
            out->n++;
    }
}

static void release(struct resolve *r)
{
    if (r->found)
        freeaddrinfo(r->found);
    free(r->host);
    free(r->port);
    free(r);
}

/* Under the lock. */
static void say_over(const struct resolve *r)
{
    static const uint64_t once = 1;
    if (write(r->over.fd, &once, sizeof once) < 0)
        abort(); /* it is the only one that was ever written there */
}

/* ---- threads ---- */

static struct resolve *take_next(void)
{
    struct queue *q = &waiting[RESOLVE_NODE];
    if (STAILQ_EMPTY(q) && threads <= THREADS_MAX)
        q = &waiting[RESOLVE_HOP];
    struct resolve *r = STAILQ_FIRST(q);
    if (r)
        STAILQ_REMOVE_HEAD(q, next);
    return r;
}

static void *look_up(void *arg)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                          .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *found;
    pthread_mutex_lock(&lock);
    for (struct resolve *r; (r = take_next());) {
        r->stage = RUNNING;
        pthread_mutex_unlock(&lock);
        int error = getaddrinfo(r->host, r->port, &hints, &found);
        pthread_mutex_lock(&lock);
        r->stage = DONE;
        r->error = error;
        r->found = error ? NULL : found;
        if (r->cancelled)
            release(r);
        else
            say_over(r);
    }
    threads--;
    pthread_mutex_unlock(&lock);
    return arg;
}

/* Signals are for the program's own threads. */
static bool start_thread(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool started = !pthread_create(&thread, NULL, look_up, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

/* ---- the loop's ---- */

static void on_over(struct ev_loop *loop, ev_io *w, int events)
{
    struct resolve *r = w->data;
    struct addresses found;
    (void)events;
    ev_io_stop(loop, w);
    pthread_mutex_lock(&lock); /* the thread has let go of it */
    close(w->fd);
    pthread_mutex_unlock(&lock);
    copy_found(r->found, &found);
    r->fn(&found, r->error ? gai_strerror(r->error) : found.n ? NULL : "no address", r->arg);
    release(r);
}

static void local_socket(const char *path, resolve_fn *fn, void *arg)
{
    struct addresses found = {.n = 1};
    struct sockaddr_un *un = (struct sockaddr_un *)&found.v[0].sa;
    if (strlen(path) >= sizeof un->sun_path) {
        fn(NULL, "path of the UNIX socket is too long", arg);
        return;
    }
    un->sun_family = AF_UNIX;
    strcpy(un->sun_path, path);
    found.v[0].len = sizeof *un;
    strncpy(found.v[0].text, path, sizeof found.v[0].text - 1);
    fn(&found, NULL, arg);
}

static void begin(struct resolve *r)
{
    pthread_mutex_lock(&lock);
    STAILQ_INSERT_TAIL(&waiting[r->purpose], r, next);
    bool more = threads < THREADS_MAX + (r->purpose == RESOLVE_NODE ? THREADS_MORE : 0);
    threads += more;
    if (more && !start_thread() && !--threads) {
        /* Nobody is left who could: tried again with the next connection; said by the loop, as
         * any other answer. */
        STAILQ_REMOVE(&waiting[r->purpose], r, resolve, next);
        r->stage = DONE;
        r->error = EAI_AGAIN;
        say_over(r);
    }
    pthread_mutex_unlock(&lock);
}

bool resolve_start(struct ev_loop *loop, const char *host, const char *port,
                   enum resolve_for purpose, resolve_fn *fn, void *arg, struct resolve **out)
{
    if (!port) {
        local_socket(host, fn, arg);
        return true;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
                    *ai;
    if (!getaddrinfo(host, port, &hints, &ai)) {
        struct addresses found;
        copy_found(ai, &found);
        freeaddrinfo(ai);
        fn(&found, found.n ? NULL : "no address", arg);
        return true;
    }
    int over = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (over < 0) {
        fn(NULL, strerror(errno), arg);
        return true;
    }
    struct resolve *r = mem_zero(sizeof *r);
    r->host = mem_strdup(host);
    r->port = mem_strdup(port);
    r->purpose = purpose;
    r->fn = fn;
    r->arg = arg;
    r->loop = loop;
    ev_io_init(&r->over, on_over, over, EV_READ);
    r->over.data = r;
    ev_io_start(loop, &r->over);
    *out = r;
    begin(r);
    return false;
}

void resolve_cancel(struct resolve *r)
{
    if (!r)
        return;
    ev_io_stop(r->loop, &r->over);
    pthread_mutex_lock(&lock);
    close(r->over.fd);
    r->cancelled = true;
    if (r->stage == WAITING)
        STAILQ_REMOVE(&waiting[r->purpose], r, resolve, next);
    if (r->stage != RUNNING)
        release(r);
    pthread_mutex_unlock(&lock);
}
