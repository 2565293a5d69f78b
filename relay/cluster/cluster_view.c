#include "relay/cluster/cluster_view.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"

enum ownership cluster_judge(const struct relay *r, const struct lanename *name, size_t *place_r)
{
    int before[LANENAME_OWNERS_MAX];
    if (!r->view)
        return ownership_judge(r->config, r->node, name, place_r);
    *place_r = 0;
    for (size_t i = 0; i < name->nowners; i++) {
        if (!strcmp(name->owner[i], r->node)) {
            *place_r = i;
            return role_serves(r->role, before, i, r->view->called_dead, clock_monotonic())
                       ? OWNERSHIP_OURS
                       : OWNERSHIP_LATER;
        }
        before[i] = config_node_index(r->config, name->owner[i]);
    }
    return OWNERSHIP_NONE;
}

bool cluster_away(const struct relay *r, size_t node, double now)
{
    int before = (int)node;
    ASSERT(r->view && node < r->view->n);
    return role_serves(r->role, &before, 1, r->view->called_dead, now);
}

bool cluster_dead(const struct relay *r, const char *node)
{
    int i = config_node_index(r->config, node);
    if (!r->view || i < 0 || r->view->called_dead[i])
        return ownership_dead(r->config, node);
    return i != (int)r->view->self && cluster_away(r, (size_t)i, clock_monotonic());
}

bool cluster_alive(const struct relay *r, const char *node)
{
    int i = config_node_index(r->config, node);
    if (!r->view || i < 0)
        return true;
    return (size_t)i == r->view->self
               ? role_state(r->role) == STATE_ALIVE
               : liveness_state(r->view->liveness, (size_t)i, clock_monotonic()) == STATE_ALIVE;
}

bool cluster_lost_for_good(const struct relay *r, int node, double now)
{
    const struct cluster_view *v = r->view;
    const struct config *c = r->config;
    double alive = role_state(r->role) == STATE_ALIVE ? role_since(r->role, now) : 0.,
           least = (double)(c->dead_after + c->settle) / 1000.;
    ASSERT(v && node < (int)v->n);
    if (node < 0)
        return alive >= least;
    if (node == (int)v->self || liveness_state(v->liveness, (size_t)node, now) != STATE_SILENT ||
        liveness_others_hear(v->liveness, (size_t)node, now))
        return false;
    double silence = liveness_silence(v->liveness, (size_t)node, now),
           replace = (double)c->replace_after / 1000.;
    if (silence < 0.)
        silence = alive;
    if (v->called_dead[node])
        return silence >= least;
    return role_taken(r->role)[node] && replace > 0. &&
           silence >= (replace > least ? replace : least);
}

bool cluster_mutual(const struct relay *r, size_t node, double now)
{
    const struct cluster_view *v = r->view;
    ASSERT(v && node < v->n);
    return node != v->self && !v->called_dead[node] &&
           liveness_state_for_placement(v->liveness, node, now) == STATE_ALIVE &&
           !role_taken(r->role)[node] &&
           liveness_reported_state(v->liveness, node, v->self) == STATE_ALIVE &&
           !liveness_has_taken_over(v->liveness, node, v->self);
}

double cluster_known_age(const struct relay *r)
{
    ASSERT(r->view);
    return liveness_suspect_most(r->view->liveness);
}

void cluster_own_server(struct relay *r, bool restarted)
{
    double now = clock_monotonic();
    if (!r->view)
        return;
    r->view->up = true;
    if (restarted)
        role_return(r->role, "the node's Redis was restarted", now);
    else
        role_up(r->role, now);
    cluster_wake(r);
}

void cluster_stood_still(struct relay *r, bool ourselves, double seconds)
{
    double now = clock_monotonic();
    if (!r->view || seconds < (double)r->config->suspect_after / 1000.)
        return;
    if (ourselves)
        liveness_begin(r->view->liveness, now);
    if (ourselves || role_state(r->role) != STATE_RETURNING)
        role_return(r->role, ourselves ? "the relay stood still" : "the node's Redis stood still",
                    now);
    else
        role_up(r->role, now);
    cluster_wake(r);
}

void cluster_wake(struct relay *r)
{
    if (!r->view || r->view->awake)
        return;
    r->view->awake = true;
    ev_feed_event(r->loop, &r->view->tick, EV_TIMER);
}
