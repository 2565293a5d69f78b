/* Which sets of owners there are, and what the servers say that they are whole for. */
#include "relay/repair/resync_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/cluster/whole_sets.h"

#define SETS_MOST 1000 /* that are there without any lane */

static struct set *set_named(const struct resync *w, const char *name)
{
    struct set *s = w->sets;
    while (s && strcmp(s->name, name))
        s = s->next;
    return s;
}

/* NULL when we are none of the owners. */
static struct set *set_of(struct resync *w, const char *const *owner, size_t n)
{
    const struct config *c = w->relay->config;
    struct buf name = {0};
    bool ours = false;
    for (size_t i = 0; i < n; i++)
        ours |= !strcmp(owner[i], w->relay->node);
    whole_set_name(&name, owner, n);
    struct set *s = ours ? set_named(w, name.data) : NULL;
    if (ours && !s) {
        s = mem_zero(sizeof *s);
        s->name = mem_strdup(name.data);
        s->witness = -1;
        for (size_t i = 0; i < n; i++)
            if (strcmp(owner[i], w->relay->node) && s->n < OTHERS)
                s->other[s->n++] = config_node_index(c, owner[i]);
        s->next = w->sets;
        w->sets = s;
    }
    buf_free(&name);
    return s;
}

/* All sets of `copies` nodes that we belong to: new mail may be placed on any of them. */
static void configure(struct resync *w, const char **owner, size_t n, size_t from, size_t *budget)
{
    const struct config *c = w->relay->config;
    if (n == (size_t)c->copies) {
        if (*budget) {
            --*budget;
            set_of(w, owner, n)->configured = true;
        }
        return;
    }
    for (size_t i = from; i < c->nnodes && *budget; i++)
        if (i != w->self) {
            owner[n] = c->node[i].name;
            configure(w, owner, n + 1, i + 1, budget);
        }
}

void resync_configure_sets(struct resync *w)
{
    const char *owner[LANENAME_OWNERS_MAX] = {w->relay->node};
    size_t budget = SETS_MOST;
    for (struct set *s = w->sets; s; s = s->next)
        s->configured = false;
    if (w->relay->config->copies <= LANENAME_OWNERS_MAX)
        configure(w, owner, 1, 0, &budget);
}

void resync_find_owners(struct resync *w)
{
    for (struct set *s = w->sets; s; s = s->next) {
        char name[65];
        s->n = 0;
        for (const char *at = s->name, *end; *at; at = *end ? end + 1 : end) {
            end = at + strcspn(at, "+");
            snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
            if (strcmp(name, w->relay->node) && s->n < OTHERS)
                s->other[s->n++] = config_node_index(w->relay->config, name);
        }
    }
}

void resync_free_set(struct set *s)
{
    free(s->name);
    free(s);
}

/* Those that have no lane any more and get none. */
void resync_forget_sets(struct resync *w)
{
    for (struct set **at = &w->sets; *at;) {
        struct set *s = *at;
        if (s->configured || s->seen) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        resync_free_set(s);
    }
}

const char *resync_said(const struct site *site, const char *set)
{
    for (size_t i = 0; i + 1 < site->nsaid; i += 2)
        if (!strcmp(site->said[i], set))
            return site->said[i + 1];
    return NULL;
}

bool resync_node_is_whole(const struct relay *r, size_t node, const char *const *owner, size_t n)
{
    struct buf name = {0};
    whole_set_name(&name, owner, n);
    bool whole = node < r->resync->nsites && resync_said(&r->resync->site[node], name.data) != NULL;
    buf_free(&name);
    return whole;
}

bool resync_unknown_owners(const struct relay *r)
{
    for (const struct set *s = r->resync->sets; s; s = s->next)
        for (size_t i = 0; i < s->n; i++)
            if (s->other[i] < 0)
                return true;
    return false;
}

struct wire *resync_wire(const struct relay *r, size_t node)
{
    const struct resync *w = r->resync;
    return node < w->nsites && node_ready(w->site[node].node) ? node_wire(w->site[node].node)
                                                              : NULL;
}

void resync_forget_said(struct site *site)
{
    for (size_t i = 0; i < site->nsaid; i++)
        free(site->said[i]);
    free(site->said);
    site->said = NULL;
    site->nsaid = 0;
}

void resync_update_sets(struct resync *w)
{
    for (struct set *s = w->sets; s; s = s->next) {
        s->whole = resync_said(&w->site[w->self], s->name) != NULL;
        s->ever |= s->whole;
        s->checked &= s->whole;
        for (size_t i = 0; i < s->n; i++) {
            struct site *site = s->other[i] < 0 ? NULL : &w->site[s->other[i]];
            s->reach[i] = !site || !node_ready(site->node) ? REACH_NOT
                          : resync_said(site, s->name)     ? REACH_WHOLE
                                                           : REACH_NOT_WHOLE;
        }
    }
}

void resync_read_said(struct site *site, const redisReply *list)
{
    resync_forget_said(site);
    if (list->type != REDIS_REPLY_ARRAY || list->elements % 2)
        return;
    site->said = mem_zero((list->elements + 1) * sizeof *site->said);
    for (size_t i = 0; i < list->elements; i++)
        site->said[site->nsaid++] = mem_strdup(list->element[i]->str ? list->element[i]->str : "");
    if (site->index == site->w->self)
        whole_sets_said(site->w->relay, site->said, site->nsaid);
    resync_update_sets(site->w);
}

static void on_since(struct wire *wire, redisReply *reply, void *arg)
{
    struct resync *w = arg;
    if (reply && reply->type == REDIS_REPLY_ARRAY)
        whole_sets_since(w->relay, reply);
}

void resync_ask_since(struct resync *w)
{
    wire_sendf(node_wire(w->site[w->self].node), on_since, w, "LANE.WHOLE SINCE");
}

struct set *resync_set_of_lane(struct resync *w, const struct lanename *name)
{
    return set_of(w, (const char *const *)name->owner, name->nowners);
}

bool resync_uses(const struct set *s, size_t site)
{
    if (!s->active || s->failed)
        return false;
    if (s->witness >= 0)
        return (size_t)s->witness == site;
    for (size_t i = 0; i < s->n; i++)
        if (s->other[i] == (int)site)
            return s->unite && !s->without[i];
    return false;
}
