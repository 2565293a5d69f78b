/* naming - see naming.h. */
#include "relay/delivery/naming.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/postfix/ourname.h"

/* A thread's own copy of the settings: the config may be replaced while it asks. */
struct question {
    char *host_name, *postfix_config;
    /* of the reload: an answer to an earlier one, that comes later, does not count */
    unsigned number;
};

static struct {
    struct ourname *name;
    struct ev_loop *loop;
    ev_async answered;
    unsigned asked;
    pthread_mutex_t lock; /* of what follows */
    struct ourname *answer;
    unsigned number;
} naming = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void adopt(struct ourname *name)
{
    bool same = naming.name && !strcmp(ourname_for(naming.name, NULL), ourname_for(name, NULL));
    if (ourname_wrong(name) && !(same && ourname_wrong(naming.name)))
        log_warning("%s", ourname_wrong(name));
    else if (!same)
        log_info("this host calls itself %s to next hops (by %s)", ourname_for(name, NULL),
                 ourname_source(name));
    ourname_free(naming.name);
    naming.name = name;
}

static void on_answered(struct ev_loop *loop, ev_async *w, int events)
{
    pthread_mutex_lock(&naming.lock);
    struct ourname *name = naming.answer;
    naming.answer = NULL;
    pthread_mutex_unlock(&naming.lock);
    if (name)
        adopt(name);
}

static void *ask(void *arg)
{
    struct question *q = arg;
    struct ourname *name = ourname_find(q->host_name, q->postfix_config), *late = name;
    pthread_mutex_lock(&naming.lock);
    if (q->number > naming.number) {
        late = naming.answer;
        naming.answer = name;
        naming.number = q->number;
    }
    pthread_mutex_unlock(&naming.lock);
    ourname_free(late);
    ev_async_send(naming.loop, &naming.answered);
    free(q->host_name);
    free(q->postfix_config);
    free(q);
    return NULL;
}

void naming_open(struct relay *r)
{
    naming.loop = r->loop;
    ev_async_init(&naming.answered, on_answered);
    ev_async_start(r->loop, &naming.answered);
    adopt(ourname_find(r->config->host_name, r->config->postfix_config));
}

void naming_close(void)
{
    ev_async_stop(naming.loop, &naming.answered);
    ourname_free(naming.name);
    naming.name = NULL;
}

/* Signals are for the loop's thread. */
void naming_reload(struct relay *r)
{
    struct question *q = mem_zero(sizeof *q);
    sigset_t all, before;
    pthread_t thread;
    *q = (struct question){mem_strdup(r->config->host_name), mem_strdup(r->config->postfix_config),
                           ++naming.asked};
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool started = !pthread_create(&thread, NULL, ask, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    else
        ask(q);
}

const char *naming_for(const char *destination)
{
    return ourname_for(naming.name, destination);
}
