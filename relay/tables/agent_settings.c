/* agent_settings - asks on a thread, and swaps the settings when they differ. */
#include "relay/tables/agent_settings.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/tables/destinations.h"

#define LOOK_EVERY 2. /* seconds */

/* A thread's own copy of the settings: the config may be replaced while it asks. */
struct question {
    char *host_name, *postfix_config;
    bool expected; /* as agents_find has it */
    /* of the reload: an answer to an earlier one, that comes later, does not count */
    unsigned number;
};

static struct {
    struct relay *relay;
    struct agents *agents;
    ev_async answered;
    ev_stat main, master; /* of Postfix; not active without postfix_config */
    ev_timer again;       /* they could not be read */
    bool told;            /* of that */
    char *main_path, *master_path;
    unsigned asked;
    pthread_mutex_t lock; /* of what follows */
    struct agents *answer;
    unsigned number;
} settings = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Asks again, until there is an answer. */
static void cannot_read(struct agents *agents)
{
    bool never = !settings.agents || agents_unread(settings.agents);
    if (!settings.told)
        log_warning("Postfix's settings for next hops cannot be read, %s: %s",
                    never ? "and no mail is sent to any" : "those of before stay",
                    agents_unread(agents));
    settings.told = true;
    ev_timer_again(settings.relay->loop, &settings.again);
    if (never) {
        agents_free(settings.agents);
        settings.agents = agents;
    } else {
        agents_free(agents);
    }
}

/* Connections that are open stay as they are; new ones are made as it says now. */
static void adopt(struct agents *agents)
{
    if (agents_unread(agents)) {
        cannot_read(agents);
        return;
    }
    settings.told = false;
    ev_timer_stop(settings.relay->loop, &settings.again);
    const char *name = agents_for(agents, NULL)->name;
    bool same = settings.agents && !strcmp(agents_for(settings.agents, NULL)->name, name);
    if (agents_wrong(agents) && !(same && agents_wrong(settings.agents)))
        log_warning("%s", agents_wrong(agents));
    else if (!same)
        log_info("this host calls itself %s to next hops (by %s)", name, agents_source(agents));
    if (settings.agents)
        log_info("Postfix's settings for next hops read again");
    agents_free(settings.agents);
    settings.agents = agents;
    settings.relay->config_turn++;
    if (settings.relay->destinations) /* there may be a fallback relay for what waits */
        destinations_want_all(settings.relay);
}

static void on_answered(struct ev_loop *loop, ev_async *w, int events)
{
    pthread_mutex_lock(&settings.lock);
    struct agents *agents = settings.answer;
    settings.answer = NULL;
    pthread_mutex_unlock(&settings.lock);
    if (agents)
        adopt(agents);
}

static void *ask(void *arg)
{
    struct question *q = arg;
    struct agents *agents = agents_find(q->host_name, q->postfix_config, q->expected),
                  *late = agents;
    pthread_mutex_lock(&settings.lock);
    if (q->number > settings.number) {
        late = settings.answer;
        settings.answer = agents;
        settings.number = q->number;
    }
    pthread_mutex_unlock(&settings.lock);
    agents_free(late);
    ev_async_send(settings.relay->loop, &settings.answered);
    free(q->host_name);
    free(q->postfix_config);
    free(q);
    return NULL;
}

/* Signals are for the loop's thread. */
static void ask_aside(void)
{
    const struct config *c = settings.relay->config;
    struct question *q = mem_zero(sizeof *q);
    sigset_t all, before;
    pthread_t thread;
    /* Without Postfix's settings mail would go out without the TLS that they ask for. */
    bool expected = agents_by_postfix(settings.agents) || agents_unread(settings.agents);
    *q = (struct question){mem_strdup(c->host_name), mem_strdup(c->postfix_config), expected,
                           ++settings.asked};
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool started = !pthread_create(&thread, NULL, ask, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    else
        ask(q);
}

static void on_changed(struct ev_loop *loop, ev_stat *w, int events)
{
    ask_aside();
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    ev_timer_stop(loop, t);
    ask_aside();
}

static void look_away(void)
{
    ev_stat_stop(settings.relay->loop, &settings.main);
    ev_stat_stop(settings.relay->loop, &settings.master);
    free(settings.main_path);
    free(settings.master_path);
    settings.main_path = settings.master_path = NULL;
}

static void look(void)
{
    const char *directory = settings.relay->config->postfix_config;
    if (!*directory)
        return;
    settings.main_path = mem_printf("%s/main.cf", directory);
    settings.master_path = mem_printf("%s/master.cf", directory);
    ev_stat_set(&settings.main, settings.main_path, LOOK_EVERY);
    ev_stat_set(&settings.master, settings.master_path, LOOK_EVERY);
    ev_stat_start(settings.relay->loop, &settings.main);
    ev_stat_start(settings.relay->loop, &settings.master);
}

void agent_settings_open(struct relay *r)
{
    settings.relay = r;
    ev_async_init(&settings.answered, on_answered);
    ev_async_start(r->loop, &settings.answered);
    ev_timer_init(&settings.again, on_again, 0., LOOK_EVERY);
    ev_init(&settings.main, on_changed);
    ev_init(&settings.master, on_changed);
    look();
    adopt(agents_find(r->config->host_name, r->config->postfix_config, false));
}

void agent_settings_close(void)
{
    look_away();
    ev_timer_stop(settings.relay->loop, &settings.again);
    ev_async_stop(settings.relay->loop, &settings.answered);
    agents_free(settings.agents);
    settings.agents = NULL;
}

void agent_settings_reload(struct relay *r)
{
    look_away();
    look();
    ask_aside();
}

const struct agent *agent_settings_for(const char *destination)
{
    return agents_for(settings.agents, destination);
}

const char *agent_settings_unread(void)
{
    return agents_unread(settings.agents);
}
