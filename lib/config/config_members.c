/* The nodes that have no section of their own: those that this program has heard of (members.h). */
#include "lib/config/config_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/program_name.h"
#include "lib/base/mem.h"
#include "lib/cluster/members.h"

void config_node_clear(struct config_node *n)
{
#define NODE_TEXT(name, def, help) free(n->name);
#include "lib/config/settings.def"
    free(n->name);
}

static void list_add(struct config_list *l, const char *text)
{
    l->v = mem_grow(l->v, (l->n + 1) * sizeof *l->v);
    l->v[l->n++] = mem_strdup(text);
}

static struct config_node copy_node(const struct config_node *of)
{
    struct config_node n = {.name = mem_strdup(of->name), .learned = of->learned};
#define NODE_TEXT(name, def, help) n.name = mem_strdup(of->name);
#include "lib/config/settings.def"
    return n;
}

static void add_node(struct config *c, struct config_node n)
{
    c->node = mem_grow(c->node, (c->nnodes + 1) * sizeof *c->node);
    c->node[c->nnodes++] = n;
}

/* Nobody talks a host that encrypts into sending mail and passwords in the clear. */
static char *downgrade(const struct config *c, const struct config_node *n)
{
    bool far = !config_loopback(n->redis) || (*n->standby && !config_loopback(n->standby)),
         allowed = false;
    for (size_t i = 0; i < c->nnodes; i++)
        allowed |= !c->node[i].learned && !strcmp(c->node[i].tls, "no");
    if (!far || strcmp(n->tls, "no") || allowed)
        return NULL;
    return mem_printf("node %s says that it is reached without TLS (%s), and no node of this file "
                      "is: it is not used. Give it a section with tls = no to allow that",
                      n->name, n->redis);
}

/* Its own host's word for itself. Whoever took it would never be together with it, and mail for
 * ordered destinations would wait for that. */
static char *unreachable(const struct config *c, const struct config_node *n)
{
    bool far = false;
    for (size_t i = 0; i < c->nnodes; i++)
        far |= !c->node[i].learned && !config_loopback(c->node[i].redis);
    if (!far || !config_loopback(n->redis))
        return NULL;
    return mem_printf("node %s says that it is reached at %s, which only its own host can: it is "
                      "not used; mend its section on that host",
                      n->name, n->redis);
}

/* The last of the nodes was heard of. */
static char *wrong_as_last(const struct config *c)
{
    const struct config_node *n = &c->node[c->nnodes - 1];
    char *wrong = downgrade(c, n);
    if (!wrong)
        wrong = unreachable(c, n);
    return wrong ? wrong : config_node_wrong(c, c->nnodes - 1, "what was heard of the nodes");
}

char *config_newcomer(struct config *c, const struct member *m, struct config_link *link)
{
    if (c->nnodes == CONFIG_NODES_MAX)
        return mem_printf("node %s cannot join: there are %d nodes, more are not used", m->name,
                          CONFIG_NODES_MAX);
    struct config_node n = {.name = m->name, .learned = true};
#define MEMBER_TEXT(text) n.text = m->text;
    MEMBER_TEXTS
#undef MEMBER_TEXT
    add_node(c, n);
    char *wrong = wrong_as_last(c);
    *link = config_node_link(c, c->nnodes - 1);
    c->nnodes--;
    return wrong;
}

bool config_node_is(const struct config_node *n, const struct member *m)
{
    return !strcmp(n->redis, m->redis) && !strcmp(n->standby, m->standby) &&
           !strcmp(n->tls, m->tls) && !strcmp(n->tls_name, m->tls_name);
}

static bool add_learned(struct config *c, const struct member *m)
{
    if (c->nnodes == CONFIG_NODES_MAX)
        return false;
    struct config_node n = {.name = mem_strdup(m->name), .learned = true};
#define MEMBER_TEXT(text) n.text = mem_strdup(m->text);
    MEMBER_TEXTS
#undef MEMBER_TEXT
    add_node(c, n);
    char *wrong = wrong_as_last(c);
    if (!wrong)
        return true;
    config_node_clear(&c->node[--c->nnodes]);
    free(c->unlearned);
    c->unlearned = wrong;
    return false;
}

static void list_drop(struct config_list *l, const char *text)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], text)) {
            free(l->v[i]);
            memmove(&l->v[i], &l->v[i + 1], (--l->n - i) * sizeof *l->v);
            return;
        }
}

/* The place of a node that is in use stays: its mail is others' from now on. So it is with one
 * that joins again: this program may have missed that it was taken out. */
static bool forget(struct config *c, const char *name, int node)
{
    if (config_list_has(&c->forgotten, name) || (node >= 0 && !c->node[node].learned))
        return false;
    list_add(&c->forgotten, name);
    if (node >= 0 && !config_list_has(&c->dead, name)) {
        list_add(&c->dead, name);
        c->node[node].dropped = true;
    }
    return node >= 0;
}

/* Where it is may change while it is in use: new mail is placed by it. What no config could say
 * is passed over, as it would be of a node that is new. */
static void relabel(char **label, const char *now)
{
    if (!strcmp(*label, now) || !config_label_ok(now))
        return;
    free(*label);
    *label = mem_strdup(now);
}

static bool take(struct config *c, const struct member *m, int node)
{
    if (node < 0) {
        list_drop(&c->forgotten, m->name);
        return add_learned(c, m);
    }
    struct config_node *n = &c->node[node];
    if (!n->learned)
        return false;
    relabel(&n->site, m->site);
    relabel(&n->zone, m->zone);
    if (!config_node_is(n, m)) {
        free(c->unlearned);
        c->unlearned =
            mem_printf("node %s has another address now (%s): restart this program to use it",
                       m->name, m->redis);
    }
    if (!config_list_has(&c->forgotten, m->name))
        return false;
    list_drop(&c->forgotten, m->name);
    if (n->dropped)
        list_drop(&c->dead, m->name);
    n->dropped = false;
    return true;
}

bool config_learn(struct config *c)
{
    static const char *const all[] = {"dovelane-relay", "dovelane-milter", "dovelane-proxy"};
    struct members table = {0};
    char *unread = NULL;
    bool admin = !strcmp(program_name(), "dovelane"), changed = false;
    for (size_t i = 0; i < (admin ? sizeof all / sizeof *all : 1); i++) {
        char *file = members_file(c->state_directory, admin ? all[i] : program_name());
        if (members_load(&table, file) < 0 && !unread)
            unread = mem_printf("%s: %s: who joined the group and who was taken out is not known "
                                "until it can be read",
                                file, strerror(errno));
        free(file);
    }
    free(c->unlearned);
    c->unlearned = NULL;
    for (size_t i = 0; i < table.n; i++) {
        const struct member *m = &table.v[i];
        int node = config_node_index(c, m->name);
        changed |= member_out(m) ? forget(c, m->name, node) : !m->joining && take(c, m, node);
    }
    members_free(&table);
    for (size_t i = 0; i < c->dead.n && !c->unlearned; i++)
        if (config_node_index(c, c->dead.v[i]) < 0 && !config_list_has(&c->forgotten, c->dead.v[i]))
            c->unlearned =
                mem_printf("dead names %s, which has no section here and was not learned of: it is "
                           "not waited for if others name it. Take it out of dead when no node "
                           "names it any more, or mend the name",
                           c->dead.v[i]);
    c->unread = unread;
    if (unread) {
        free(c->unlearned);
        c->unlearned = unread;
    }
    return changed;
}

static void swap(struct config *c, size_t a, size_t b)
{
    struct config_node n = c->node[a];
    c->node[a] = c->node[b];
    c->node[b] = n;
}

bool config_keep_nodes(struct config *c, const struct config *before)
{
    for (size_t i = 0; i < before->nnodes; i++)
        if (config_node_index(c, before->node[i].name) < 0 &&
            !config_list_has(&c->forgotten, before->node[i].name))
            return false;
    for (size_t i = 0; i < before->nnodes; i++) {
        const char *name = before->node[i].name;
        if (config_node_index(c, name) < 0) {
            add_node(c, copy_node(&before->node[i]));
            if (!config_list_has(&c->dead, name)) {
                list_add(&c->dead, name);
                c->node[c->nnodes - 1].dropped = true;
            }
        }
        /* Those behind the place are not of before, or come later. */
        for (size_t k = (size_t)config_node_index(c, name); k > i; k--)
            swap(c, k, k - 1);
    }
    return true;
}
