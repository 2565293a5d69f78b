#include "relay/heartbeat/membership_contact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "relay/heartbeat/membership.h"
#include "relay/acks/owners.h"

/* One that beats, or that a beat names. Times are clock_monotonic. */
struct seen {
    struct seen *next;
    char name[65];
    /* its last beat, or the last of another one that hears it, or when it was named first */
    double heard;
    double comes; /* its last beat at the own server; 0: none */
    /* whom its last beat names and this relay did not know, "mx3,mx4"; NULL: nobody */
    char *strangers;
    double told; /* the time of that beat; 0: there was none */
};

struct contact {
    struct relay *relay;
    struct seen *first;
};

static struct seen *find(const struct contact *m, const char *name)
{
    struct seen *s = m->first;
    while (s && strcmp(s->name, name))
        s = s->next;
    return s;
}

static struct seen *find_or_add(struct contact *m, const char *name)
{
    struct seen *s = find(m, name);
    if (s || strlen(name) >= sizeof s->name)
        return s;
    s = mem_zero(sizeof *s);
    strcpy(s->name, name);
    s->heard = clock_monotonic();
    s->next = m->first;
    m->first = s;
    return s;
}

/* ---- what beats say ---- */

/* The next name of "mx2:alive,mx3:silent+"; false: there is none. */
static bool next_name(const char **at, char *name, size_t size, bool *heard)
{
    size_t len = strcspn(*at, ":, "), all = strcspn(*at, ", ");
    snprintf(name, size, "%.*s", (int)len, *at);
    *heard = strncmp(*at + len, ":silent", 7) != 0 && strncmp(*at + len, ":unknown", 8) != 0;
    *at += all;
    *at += **at == ',';
    return len > 0;
}

/* Who was taken out and joins again is a stranger like any other that joins: it may count where
 * it has a section. */
static bool is_known(const struct relay *r, const char *name)
{
    return config_node_index(r->config, name) >= 0 ||
           (config_list_has(&r->config->forgotten, name) && !membership_joins(r, name));
}

static void read_names(struct contact *m, struct seen *from, const char *text, double when)
{
    struct buf names = {0};
    char name[65];
    bool heard;
    const char *at = strstr(text, "hears=");
    for (at = at ? at + 6 : ""; next_name(&at, name, sizeof name, &heard);) {
        struct seen *s = find_or_add(m, name);
        if (heard && when > s->heard)
            s->heard = when;
        if (!is_known(m->relay, name))
            buf_printf(&names, "%s%s", names.len ? "," : "", name);
    }
    /* an older one may lie in a server that its relay does not reach any more */
    if (when >= from->told) {
        free(from->strangers);
        from->strangers = names.len ? mem_strdup(names.data) : NULL;
        from->told = when;
    }
    buf_free(&names);
}

void contact_beat(struct contact *m, const char *name, const char *text, double at, bool own_server)
{
    struct seen *s = find_or_add(m, name);
    if (!s)
        return;
    if (at > s->heard)
        s->heard = at;
    if (own_server && at > s->comes)
        s->comes = at;
    read_names(m, s, text, at);
}

/* ---- who is missing ---- */

struct reached {
    const char *node;
    bool is;
};

static void is_reached(struct node *node, void *arg)
{
    struct reached *r = arg;
    r->is |= node_ready(node) && !strcmp(node_name(node), r->node);
}

static bool lives(const struct contact *m, const struct seen *s, double now)
{
    return s && now - s->heard < (double)m->relay->config->dead_after / 1000.;
}

static bool comes(const struct contact *m, const struct seen *s, double now)
{
    return s && s->comes > 0. && now - s->comes < (double)m->relay->config->dead_after / 1000.;
}

/* Who is named by others, and unknown here, joins itself, perhaps together with this one: then
 * the two must reach each other, too, but neither waits until the other is one of the group. Or
 * those whose files name each other in a ring would wait for ever. */
static struct unmet_node stranger_unmet(const struct contact *m, const char *name, const char *by,
                                        double now)
{
    const struct relay *r = m->relay;
    const struct seen *s = find(m, name);
    if (is_known(r, name) || config_list_has(&r->config->dead, name))
        return (struct unmet_node){NULL};
    if (!membership_joins(r, name))
        return (struct unmet_node){"it has not learned of node", s->name, by};
    if (!lives(m, s, now))
        return (struct unmet_node){NULL};
    if (!membership_reaches(r, name))
        return (struct unmet_node){"it does not reach node", s->name, NULL};
    return comes(m, s, now) ? (struct unmet_node){NULL}
                            : (struct unmet_node){"it is not reached by node", s->name, NULL};
}

static struct unmet_node node_unmet(const struct contact *m, const struct liveness *l, size_t i,
                                    double now)
{
    const struct relay *r = m->relay;
    const char *node = r->config->node[i].name;
    const struct seen *s = find(m, node);
    struct reached there = {node, false};
    struct unmet_node u = {NULL};
    char name[65];
    bool heard;
    for (const char *at = s && s->strangers ? s->strangers : "";
         !u.why && next_name(&at, name, sizeof name, &heard);)
        u = stranger_unmet(m, name, node, now);
    bool has_us =
        !membership_again(r) && liveness_knows(l, i, (size_t)config_node_index(r->config, r->node));
    if (u.why || has_us)
        return u;
    owners_each_peer((struct relay *)r, is_reached, &there);
    if (!there.is)
        return (struct unmet_node){"it does not reach node", node, NULL};
    if (!comes(m, s, now) || liveness_state(l, i, now) == STATE_UNKNOWN)
        return (struct unmet_node){"it is not reached by node", node, NULL};
    return u;
}

struct unmet_node contact_unmet(const struct contact *m, const struct liveness *l, double now)
{
    const struct config *c = m->relay->config;
    struct unmet_node u = {NULL};
    for (size_t i = 0; i < c->nnodes && !u.why; i++) {
        const char *node = c->node[i].name;
        bool silent = liveness_state(l, i, now) == STATE_SILENT && !lives(m, find(m, node), now);
        if (strcmp(node, m->relay->node) && !config_list_has(&c->dead, node) && !silent)
            u = node_unmet(m, l, i, now);
    }
    return u;
}

struct contact *contact_open(struct relay *r)
{
    struct contact *m = mem_zero(sizeof *m);
    m->relay = r;
    return m;
}

void contact_free(struct contact *m)
{
    for (struct seen *s; (s = m->first);) {
        m->first = s->next;
        free(s->strangers);
        free(s);
    }
    free(m);
}
