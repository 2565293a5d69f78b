/* agent_settings - asks on a thread, and swaps the settings when they differ. */
#include "relay/tables/agent_settings.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/tables/destinations.h"

#define LOOK_EVERY 2.  /* seconds */
#define AGAIN_MOST 60. /* seconds between tries to read them */
/* seconds for which main.cf and master.cf stay as they are before what they say is believed: one
 * that is being written may be read without an error, and say less than it will */
#define QUIET 6

/* A thread's own copy of the settings: the config may be replaced while it asks. */
struct question {
    char *host_name, *postfix_config;
    bool expected; /* as agents_find has it */
    bool sure;     /* what is read now is to be believed */
    /* of the reload: an answer to an earlier one, that comes later, does not count */
    unsigned number;
};

static struct {
    struct relay *relay;
    struct agents *agents;
    ev_async answered;
    ev_stat main, master; /* of Postfix; not active without postfix_config */
    ev_statdata main_seen, master_seen;
    ev_timer again;  /* they could not be read */
    double again_in; /* seconds */
    ev_timer quiet;  /* since the last change */
    bool waits;      /* somebody was told of that */
    bool told;       /* that they could not be read */
    char *main_path, *master_path;
    unsigned asked;
    pthread_mutex_t lock; /* of what follows */
    struct agents *answer;
    bool answer_sure;
    unsigned number;
} settings = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct look {
    struct stat main, master;
};

static struct look look_at(const char *directory)
{
    struct look l = {0};
    char *main = mem_printf("%s/main.cf", directory),
         *master = mem_printf("%s/master.cf", directory);
    if (stat(main, &l.main))
        l.main = (struct stat){0};
    if (stat(master, &l.master))
        l.master = (struct stat){0};
    free(main);
    free(master);
    return l;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* In the future: written by a clock that is ahead of ours. st_ctime is by ours. */
static bool is_old(const struct stat *st)
{
    time_t now = time(NULL),
           at = st->st_mtim.tv_sec > now ? st->st_ctim.tv_sec : st->st_mtim.tv_sec;
    return at > now || now - at >= QUIET;
}

static struct agents *find_agents(const struct question *q, bool *sure)
{
    struct look before = look_at(q->postfix_config);
    struct agents *agents = agents_find(q->host_name, q->postfix_config, q->expected);
    struct look after = look_at(q->postfix_config);
    *sure = (q->sure || (is_old(&after.main) && is_old(&after.master))) &&
            same_file(&before.main, &after.main) && same_file(&before.master, &after.master);
    return agents;
}

/* Asks again, until there is an answer. */
static void cannot_read(struct agents *agents)
{
    bool never = !settings.agents || agents_unread(settings.agents);
    if (!settings.told)
        log_warning("Postfix's settings for next hops cannot be read, %s: %s",
                    never ? "and no mail is sent to any" : "the older ones stay",
                    agents_unread(agents));
    settings.told = true;
    settings.again.repeat = settings.again_in;
    ev_timer_again(settings.relay->loop, &settings.again);
    settings.again_in = settings.again_in * 2 < AGAIN_MOST ? settings.again_in * 2 : AGAIN_MOST;
    if (never) {
        agents_free(settings.agents);
        settings.agents = agents;
    } else {
        agents_free(agents);
    }
}

/* Somebody may be writing: believed when they are quiet. */
static void wait_for_quiet(struct agents *agents)
{
    if (!ev_is_active(&settings.quiet))
        ev_timer_again(settings.relay->loop, &settings.quiet);
    if (settings.agents) {
        if (!settings.waits)
            log_info("Postfix's settings for next hops changed just now: %s until the new ones "
                     "stay the same for %d s",
                     agents_unread(settings.agents) ? "no mail is sent to any"
                                                    : "the older ones stay",
                     QUIET);
        settings.waits = true;
        agents_free(agents);
        return;
    }
    log_info("Postfix's settings for next hops changed just now: no mail is sent to any until "
             "they stay the same for %d s",
             QUIET);
    agents_doubt(agents, mem_strdup("they changed just now"));
    settings.agents = agents;
}

/* What is stricter cannot do harm, and is not waited with. */
static void tighten(const struct agents *agents)
{
    if (!settings.agents || agents_unread(settings.agents) ||
        !agents_tighten(settings.agents, agents))
        return;
    log_info("Postfix's settings for next hops ask for more TLS: that counts at once");
    settings.relay->config_turn++;
}

/* Connections that are open get no further mail (connections.c). */
static void adopt(struct agents *agents, bool sure)
{
    if (agents_unread(agents)) {
        cannot_read(agents);
        return;
    }
    settings.told = false;
    settings.again_in = LOOK_EVERY;
    settings.waits &= !sure;
    if (!sure) {
        tighten(agents);
        wait_for_quiet(agents);
        return;
    }
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
    relay_kick(settings.relay, RELAY_WANT); /* there may be a fallback relay for what waits */
}

static void on_answered(struct ev_loop *loop, ev_async *w, int events)
{
    pthread_mutex_lock(&settings.lock);
    struct agents *agents = settings.answer;
    bool sure = settings.answer_sure;
    settings.answer = NULL;
    pthread_mutex_unlock(&settings.lock);
    if (agents)
        adopt(agents, sure);
}

static void *ask(void *arg)
{
    struct question *q = arg;
    bool sure;
    struct agents *agents = find_agents(q, &sure), *late = agents;
    pthread_mutex_lock(&settings.lock);
    if (q->number > settings.number) {
        late = settings.answer;
        settings.answer = agents;
        settings.answer_sure = sure;
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
static void ask_aside(bool sure)
{
    const struct config *c = settings.relay->config;
    struct question *q = mem_zero(sizeof *q);
    sigset_t all, before;
    pthread_t thread;
    /* Without Postfix's settings mail would go out without the TLS that they ask for. */
    bool expected = agents_by_postfix(settings.agents) || agents_unread(settings.agents);
    *q = (struct question){mem_strdup(c->host_name), mem_strdup(c->postfix_config), expected, sure,
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

/* That it was read (st_atime) is no change: postconf(1), which is asked then, reads it. */
static bool only_read(const ev_stat *w)
{
    const ev_statdata *is = &w->attr;
    ev_statdata *was = w->data;
    bool same = is->st_nlink && was->st_nlink && same_file(is, was) && is->st_dev == was->st_dev &&
                is->st_mode == was->st_mode && is->st_uid == was->st_uid &&
                is->st_gid == was->st_gid;
    *was = *is;
    return same;
}

static void on_changed(struct ev_loop *loop, ev_stat *w, int events)
{
    if (only_read(w))
        return;
    settings.again_in = LOOK_EVERY;
    ev_timer_again(loop, &settings.quiet);
    ask_aside(false);
}

static void on_quiet(struct ev_loop *loop, ev_timer *t, int events)
{
    ev_timer_stop(loop, t);
    ask_aside(true);
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    ev_timer_stop(loop, t);
    ask_aside(false);
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
    settings.main_seen = settings.main.attr;
    settings.master_seen = settings.master.attr;
}

void agent_settings_open(struct relay *r)
{
    bool sure;
    struct question q = {.host_name = r->config->host_name,
                         .postfix_config = r->config->postfix_config};
    settings.relay = r;
    settings.again_in = LOOK_EVERY;
    ev_async_init(&settings.answered, on_answered);
    ev_async_start(r->loop, &settings.answered);
    ev_timer_init(&settings.again, on_again, 0., LOOK_EVERY);
    ev_timer_init(&settings.quiet, on_quiet, 0., QUIET);
    ev_init(&settings.main, on_changed);
    ev_init(&settings.master, on_changed);
    settings.main.data = &settings.main_seen;
    settings.master.data = &settings.master_seen;
    look();
    struct agents *agents = find_agents(&q, &sure);
    adopt(agents, sure);
}

void agent_settings_close(void)
{
    look_away();
    ev_timer_stop(settings.relay->loop, &settings.again);
    ev_timer_stop(settings.relay->loop, &settings.quiet);
    ev_async_stop(settings.relay->loop, &settings.answered);
    agents_free(settings.agents);
    settings.agents = NULL;
}

void agent_settings_reload(struct relay *r)
{
    look_away();
    look();
    settings.again_in = LOOK_EVERY;
    ask_aside(true);
}

const struct agent *agent_settings_for(const char *destination)
{
    return agents_for(settings.agents, destination);
}

const char *agent_settings_unread(void)
{
    return agents_unread(settings.agents);
}
