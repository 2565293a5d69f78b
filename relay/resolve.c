#include "resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/un.h>

#define THREADS_MAX 32 /* names that are looked up at a time; with thousands of next hops and a dead name server the others wait their turn */

struct resolve {
    STAILQ_ENTRY(resolve) next;
    char *host, *port;
    resolve_fn *fn;
    void *arg;
    ev_async over;
    struct ev_loop *loop;
    int error;
    struct addrinfo *found;
};

/* The loop's alone; the threads know only their own. */
static STAILQ_HEAD(, resolve) waiting = STAILQ_HEAD_INITIALIZER(waiting);
static unsigned threads;

static void copy_found(const struct addrinfo *ai, struct addresses *out)
{
    out->n = 0;
    for (; ai && out->n < ADDRESSES_MAX; ai = ai->ai_next) {
        struct smtp_address *a = &out->v[out->n];
        if (ai->ai_addrlen > sizeof a->sa)
            continue;
        memcpy(&a->sa, ai->ai_addr, ai->ai_addrlen);
        a->len = ai->ai_addrlen;
        if (!getnameinfo(ai->ai_addr, ai->ai_addrlen, a->text, sizeof a->text, NULL, 0, NI_NUMERICHOST))
            out->n++;
    }
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

static void *look_up(void *arg)
{
    struct resolve *r = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    r->error = getaddrinfo(r->host, r->port, &hints, &r->found);
    ev_async_send(r->loop, &r->over);
    return NULL;
}

static void begin(struct resolve *r)
{
    pthread_t thread;
    threads++;
    if (pthread_create(&thread, NULL, look_up, r)) {
        /* Tried again with the next connection; said by the loop, as any other answer. */
        r->error = EAI_AGAIN;
        ev_async_send(r->loop, &r->over);
    } else {
        pthread_detach(thread);
    }
}

static void begin_waiting(void)
{
    while (!STAILQ_EMPTY(&waiting) && threads < THREADS_MAX) {
        struct resolve *r = STAILQ_FIRST(&waiting);
        STAILQ_REMOVE_HEAD(&waiting, next);
        begin(r);
    }
}

static void on_over(struct ev_loop *loop, ev_async *w, int events)
{
    struct resolve *r = w->data;
    ev_async_stop(loop, w);
    threads--;
    begin_waiting();
    struct addresses found;
    copy_found(r->error ? NULL : r->found, &found);
    const char *error = r->error ? gai_strerror(r->error) : found.n ? NULL : "no address";
    r->fn(&found, error, r->arg);
    if (r->found)
        freeaddrinfo(r->found);
    free(r->host);
    free(r->port);
    free(r);
}

bool resolve_start(struct ev_loop *loop, const struct nexthop *hop, resolve_fn *fn, void *arg,
                   struct resolve **out)
{
    if (!hop->port) {
        local_socket(hop->host, fn, arg);
        return true;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *ai;
    if (!getaddrinfo(hop->host, hop->port, &hints, &ai)) {
        struct addresses found;
        copy_found(ai, &found);
        freeaddrinfo(ai);
        fn(&found, found.n ? NULL : "no address", arg);
        return true;
    }
    struct resolve *r = mem_zero(sizeof *r);
    r->host = mem_strdup(hop->host);
    r->port = mem_strdup(hop->port);
    r->fn = fn;
    r->arg = arg;
    r->loop = loop;
    ev_async_init(&r->over, on_over);
    r->over.data = r;
    ev_async_start(loop, &r->over);
    STAILQ_INSERT_TAIL(&waiting, r, next);
    begin_waiting();
    *out = r;
    return false;
}
