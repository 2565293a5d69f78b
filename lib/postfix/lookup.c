#include "lib/postfix/lookup.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/postfix/postfix.h"

#define THREADS 8

struct lookup {
    struct lookup *next;
    lookup_fn *fn; /* NULL: forgotten; the loop's thread alone looks at it */
    atomic_bool forgotten;
    void *arg;
    int64_t until; /* from when it was asked for: waiting for a thread counts */
    char *sender, **recipient;
    size_t n;
};

struct queue {
    struct lookup *first, **last;
};

static struct {
    struct ev_loop *loop;
    ev_async answered;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct queue asked, done;
    bool threads;
} lookups = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void put(struct queue *q, struct lookup *l)
{
    l->next = NULL;
    if (!q->first)
        q->last = &q->first;
    *q->last = l;
    q->last = &l->next;
}

static struct lookup *take(struct queue *q)
{
    struct lookup *l = q->first;
    if (l)
        q->first = l->next;
    return l;
}

static void ask(struct lookup *l)
{
    char detail[600];
    int64_t until = l->until;
    if (l->forgotten || maps_over(until))
        return;
    if (postfix_changes(MAPS_SENDER, l->sender, until, detail, sizeof detail))
        return; /* enough is known */
    for (size_t i = 0; i < l->n && !l->forgotten && !maps_over(until); i++)
        postfix_changes(MAPS_RECIPIENT, l->recipient[i], until, detail, sizeof detail);
}

static void *serve(void *arg)
{
    for (;;) {
        pthread_mutex_lock(&lookups.lock);
        while (!lookups.asked.first)
            pthread_cond_wait(&lookups.more, &lookups.lock);
        struct lookup *l = take(&lookups.asked);
        pthread_mutex_unlock(&lookups.lock);
        ask(l);
        pthread_mutex_lock(&lookups.lock);
        put(&lookups.done, l);
        pthread_mutex_unlock(&lookups.lock);
        ev_async_send(lookups.loop, &lookups.answered);
    }
    return arg;
}

static void release(struct lookup *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->recipient[i]);
    free(l->recipient);
    free(l->sender);
    free(l);
}

static void on_answered(struct ev_loop *loop, ev_async *a, int events)
{
    for (;;) {
        pthread_mutex_lock(&lookups.lock);
        struct lookup *l = take(&lookups.done);
        pthread_mutex_unlock(&lookups.lock);
        if (!l)
            return;
        lookup_fn *fn = l->fn;
        void *arg = l->arg;
        release(l);
        if (fn)
            fn(arg);
    }
}

void lookup_open(struct ev_loop *loop)
{
    lookups.loop = loop;
    ev_async_init(&lookups.answered, on_answered);
    ev_async_start(loop, &lookups.answered);
}

static void start_threads(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, NULL))
            log_fatal("no threads to ask Postfix's maps");
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    lookups.threads = true;
}

struct lookup *lookup_start(const char *sender, const char *const *recipient, size_t n,
                            lookup_fn *fn, void *arg)
{
    bool known = postfix_knows(MAPS_SENDER, sender);
    for (size_t i = 0; known && i < n; i++)
        known = postfix_knows(MAPS_RECIPIENT, recipient[i]);
    if (known)
        return NULL;
    if (!lookups.threads)
        start_threads();
    struct lookup *l = mem_zero(sizeof *l);
    *l = (struct lookup){.fn = fn,
                         .arg = arg,
                         .until = maps_patience(),
                         .sender = mem_strdup(sender),
                         .recipient = mem_zero(n * sizeof(char *)),
                         .n = n};
    for (size_t i = 0; i < n; i++)
        l->recipient[i] = mem_strdup(recipient[i]);
    pthread_mutex_lock(&lookups.lock);
    put(&lookups.asked, l);
    pthread_cond_signal(&lookups.more);
    pthread_mutex_unlock(&lookups.lock);
    return l;
}

void lookup_forget(struct lookup *l)
{
    l->fn = NULL;
    l->forgotten = true;
}
