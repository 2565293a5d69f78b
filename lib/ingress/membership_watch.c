#include "lib/ingress/membership_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/redis/beat_reader.h"
#include "lib/base/clock.h"
#include "lib/cluster/liveness.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/cluster/members.h"
#include "lib/redis/control_keys.h"

#define LOOK 1.    /* seconds between two looks into one node */
#define AGAIN 600. /* seconds until a reload that came to nothing is tried again */

struct server {
    struct membership_watch *all;
    struct beat_reader reader;
    double asked;  /* clock_monotonic; 0: never */
    unsigned open; /* answers that are owed */
    unsigned turn; /* of the table, when it told what the relays know */
    bool all_know;
};

struct membership_watch {
    const struct config *config;
    char *file;
    struct members table;
    unsigned turn;   /* counts what the table learned since the start */
    double reloaded; /* clock_monotonic; 0: not yet */
    bool unkept;
    struct server *server; /* per node of the config */
};

/* ---- what is new ---- */

static bool is_new(const struct membership_watch *n, const struct member *m)
{
    return !m->gone && !m->joining && config_node_index(n->config, m->name) < 0;
}

static bool matters(const struct membership_watch *n, const struct member *m)
{
    int i = config_node_index(n->config, m->name);
    const struct config_node *node = i < 0 ? NULL : &n->config->node[i];
    if (!node)
        return is_new(n, m);
    return node->learned && (member_out(m) || !config_node_is(node, m));
}

static bool knows_all(const struct membership_watch *n, const char *name, const char *text)
{
    for (size_t i = 0; i < n->table.n; i++)
        if (is_new(n, &n->table.v[i]) && strcmp(n->table.v[i].name, name) &&
            !beat_names(text, n->table.v[i].name))
            return false;
    return true;
}

/* ---- what follows ---- */

static void use(struct membership_watch *n)
{
    bool due = false, told = false, known = true;
    for (size_t i = 0; i < n->table.n; i++)
        due |= matters(n, &n->table.v[i]);
    for (size_t i = 0; i < n->config->nnodes; i++) {
        told |= n->server[i].turn == n->turn;
        known &= n->server[i].turn != n->turn || n->server[i].all_know;
    }
    double now = clock_monotonic();
    if (!n->turn || !due || !told || !known || (n->reloaded > 0. && now - n->reloaded < AGAIN))
        return;
    n->reloaded = now;
    if (members_save(&n->table, n->file) < 0) {
        if (!n->unkept)
            log_error("%s: %s: nodes that join are not used until it can be read and written",
                      n->file, strerror(errno));
        n->unkept = true;
        return;
    }
    for (size_t i = 0; i < n->table.n; i++)
        if (matters(n, &n->table.v[i]))
            log_info("node %s %s: a new process takes over", n->table.v[i].name,
                     member_out(&n->table.v[i]) ? "was taken out of the group"
                                                : "is one of the group now");
    kill(getpid(), SIGUSR1);
}

/* ---- asking ---- */

static void on_table(struct wire *w, redisReply *reply, void *arg)
{
    struct server *s = arg;
    s->open--;
    if (reply && reply->type == REDIS_REPLY_STRING && reply->len <= MEMBERS_TEXT_MOST &&
        members_read(&s->all->table, reply->str))
        s->all->turn++;
}

static void on_beats(struct wire *w, redisReply *reply, void *arg)
{
    struct server *s = arg;
    s->open--;
    if (reply &&
        beat_reader_turns(&s->reader, reply->type == REDIS_REPLY_ERROR ? reply->str : NULL))
        s->open += wire_sendf(w, on_beats, s, beat_reader_command(&s->reader));
    if (!reply || reply->type != REDIS_REPLY_ARRAY || !reply->elements ||
        reply->element[0]->type != REDIS_REPLY_ARRAY)
        return;
    s->all_know = true;
    for (size_t i = 0; i < reply->element[0]->elements; i++) {
        const redisReply *b = reply->element[0]->element[i];
        if (b->type == REDIS_REPLY_ARRAY && b->elements >= 5 && b->element[0]->str &&
            b->element[4]->str && b->element[3]->integer < s->all->config->dead_after)
            s->all_know &= knows_all(s->all, b->element[0]->str, b->element[4]->str);
    }
    s->turn = s->all->turn;
    use(s->all);
}

void membership_watch_look(struct membership_watch *n, size_t node, struct wire *w)
{
    double now = clock_monotonic();
    if (!n || n->server[node].open ||
        (n->server[node].asked > 0. && now - n->server[node].asked < LOOK))
        return;
    struct server *s = &n->server[node];
    s->asked = now;
    s->open += wire_sendf(w, on_table, s, "GET " CONTROL_NODES);
    s->open += wire_sendf(w, on_beats, s, beat_reader_command(&s->reader));
}

struct membership_watch *membership_watch_open(const struct config *c, const char *program)
{
    if (c->membership != MEMBERSHIP_LEARNED)
        return NULL;
    struct membership_watch *n = mem_zero(sizeof *n);
    n->config = c;
    n->file = members_file(c->state_directory, program);
    /* if it cannot be read, config_learn() has found that: unlearned */
    members_load(&n->table, n->file);
    n->server = mem_zero(c->nnodes * sizeof *n->server);
    for (size_t i = 0; i < c->nnodes; i++)
        n->server[i].all = n;
    if (c->unlearned)
        log_warning("%s", c->unlearned);
    return n;
}
