/* Which sets of owners there are, and what the servers say that they are whole for. */
#include "relay/repair/resync_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"

#define SETS_MOST 1000 /* that are there without any lane */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static struct set *set_named(const struct resync *w, const char *name)
{
    struct set *s = w->sets;
    while (s && strcmp(s->name, name))
        s = s->next;
    return s;
}

/* "mx1+mx2" */
static void name_set(struct buf *name, const char *const *owner, size_t n)
{
    const char *sorted[LANENAME_OWNERS_MAX];
    memcpy(sorted, owner, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n; i++)
        buf_printf(name, "%s%s", i ? "+" : "", sorted[i]);
}

/* NULL when we are none of the owners. */
static struct set *set_of(struct resync *w, const char *const *owner, size_t n)
{
    const struct config *c = w->relay->config;
    struct buf name = {0};
    bool ours = false;
    for (size_t i = 0; i < n; i++)
        ours |= !strcmp(owner[i], w->relay->node);
    name_set(&name, owner, n);
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
    name_set(&name, owner, n);
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
    resync_update_sets(site->w);
}

void resync_forget_since(struct resync *w)
{
    for (size_t i = 0; i < w->nsince; i++)
        free(w->since[i].set);
    free(w->since);
    w->since = NULL;
    w->nsince = 0;
    w->latest = 0.;
}

static void on_since(struct wire *wire, redisReply *reply, void *arg)
{
    struct resync *w = arg;
    double now = clock_boottime();
    if (!reply || reply->type != REDIS_REPLY_ARRAY)
        return;
    resync_forget_since(w);
    w->since = mem_zero((reply->elements / 2 + 1) * sizeof *w->since);
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        if (!reply->element[i]->str || reply->element[i + 1]->type != REDIS_REPLY_INTEGER)
            continue;
        struct whole_since s = {mem_strdup(reply->element[i]->str),
                                now - (double)reply->element[i + 1]->integer / 1000.};
        w->since[w->nsince++] = s;
        w->latest = s.at > w->latest ? s.at : w->latest;
    }
}

void resync_ask_since(struct resync *w)
{
    wire_sendf(node_wire(w->site[w->self].node), on_since, w, "LANE.WHOLE SINCE");
}

bool resync_brought(struct relay *r, const struct lanename *name, double stored_at)
{
    struct resync *w = r->resync;
    if (!w || stored_at > w->latest)
        return false;
    const struct set *s = resync_set_of_lane(w, name);
    for (size_t i = 0; s && i < w->nsince; i++)
        if (!strcmp(w->since[i].set, s->name))
            return stored_at <= w->since[i].at;
    return false;
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
