#include "relay/heartbeat/membership_join.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/heartbeat/heartbeat.h"

struct greeted {
    struct greeted *next;
    char *name;
    unsigned long long serial;
    /* NULL: it cannot be one of the group, or this relay knows it by another address; the log
     * says why */
    struct node *node;
    bool seen;
};

struct membership_join {
    struct relay *relay;
    struct greeted *first;
};

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
}

static struct greeted *find(const struct membership_join *j, const struct member *m)
{
    struct greeted *g = j->first;
    while (g && (g->serial != m->serial || strcmp(g->name, m->name)))
        g = g->next;
    return g;
}

/* The connections to a node that has a place, and what is under way on them, stay with the
 * address that it has had from the beginning. */
static char *reached_otherwise(const struct config_node *n, const struct member *m)
{
    return mem_printf(
        "node %s joins, reached otherwise (redis, standby, tls, tls_name: %s) than it is known "
        "here (%s%s). This relay stays with that. Where that no longer leads to the node, it "
        "cannot join: %srestart this relay",
        m->name, m->redis,
        n->learned ? "from before it was taken out: " : "its section in the file: ", n->redis,
        n->learned ? "" : "mend the section, or take it out, and ");
}

static struct greeted *add(struct membership_join *j, const struct member *m)
{
    struct config_link link;
    struct config *c = j->relay->config;
    int known = config_node_index(c, m->name);
    struct greeted *g = mem_zero(sizeof *g);
    g->name = mem_strdup(m->name);
    g->serial = m->serial;
    g->next = j->first;
    j->first = g;
    char *wrong = known < 0 ? config_newcomer(c, m, &link) : reached_otherwise(&c->node[known], m);
    if (wrong)
        log_warning("%s", wrong);
    else
        g->node = node_open(j->relay->loop, &(struct node_options){.name = g->name,
                                                                   .link = link,
                                                                   .purpose = "relay-join",
                                                                   .ping_every = NODE_PING,
                                                                   .settle = c->settle,
                                                                   .state = on_state,
                                                                   .arg = g});
    free(wrong);
    return g;
}

static void leave(struct greeted **at)
{
    struct greeted *g = *at;
    *at = g->next;
    if (g->node)
        node_close(g->node);
    free(g->name);
    free(g);
}

void membership_join_look(struct membership_join *j, const struct members *table)
{
    for (struct greeted *g = j->first; g; g = g->next)
        g->seen = false;
    for (size_t i = 0; i < table->n; i++) {
        const struct member *m = &table->v[i];
        int known = config_node_index(j->relay->config, m->name);
        if (!m->joining || !strcmp(m->name, j->relay->node) ||
            (known >= 0 && config_node_is(&j->relay->config->node[known], m)))
            continue; /* a known one gets a beat anyhow */
        struct greeted *g = find(j, m);
        if (!g)
            g = add(j, m);
        g->seen = true;
        if (g->node && node_ready(g->node))
            heartbeat_greet(j->relay, node_wire(g->node));
    }
    for (struct greeted **at = &j->first; *at;)
        if ((*at)->seen)
            at = &(*at)->next;
        else
            leave(at);
}

bool membership_join_reaches(const struct membership_join *j, const char *node)
{
    for (const struct greeted *g = j->first; g; g = g->next)
        if (!strcmp(g->name, node) && g->node && node_ready(g->node))
            return true;
    return false;
}

struct membership_join *membership_join_open(struct relay *r)
{
    struct membership_join *j = mem_zero(sizeof *j);
    j->relay = r;
    return j;
}

void membership_join_close(struct membership_join *j)
{
    while (j->first)
        leave(&j->first);
    free(j);
}
