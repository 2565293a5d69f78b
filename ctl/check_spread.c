/* What the loss of each zone and site would cost now: mails that all have their copies in it, and
 * whether mail is diverted without it. */
#include "ctl/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/held_lanes.h"

#define LANES 1000 /* asked for at one time */

static void read_lanes(struct conn *c, struct held_lanes *held)
{
    char cursor[24] = "0";
    do {
        redisReply *r =
            conn_call(c, "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d", cursor, LANES);
        if (!conn_shaped(r, "?l")) {
            if (r)
                freeReplyObject(r);
            return;
        }
        const redisReply *at = r->element[0], *list = r->element[1];
        if (at->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", at->integer);
        else
            snprintf(cursor, sizeof cursor, "%s", at->str ? at->str : "0");
        for (size_t i = 0; i + 2 < list->elements; i += 3)
            if (list->element[i]->type == REDIS_REPLY_STRING &&
                list->element[i + 1]->type == REDIS_REPLY_INTEGER)
                held_lanes_add(held, list->element[i]->str, list->element[i]->len,
                               list->element[i + 1]->integer);
        freeReplyObject(r);
    } while (strcmp(cursor, "0") != 0);
}

/* Copies on nodes that do not answer are none, for now. */
static bool is_within(const struct ctl *ctl, const struct held_lane *h, size_t domain, int over)
{
    bool any = false;
    for (size_t i = 0; i < h->name.nowners; i++) {
        int node = config_node_index(ctl->config, h->name.owner[i]);
        if (node < 0 || !conn_up(&ctl->conn[node]))
            continue;
        if (config_domain(ctl->config, (size_t)node, over) != domain)
            return false;
        any = true;
    }
    return any;
}

static long long only_there(const struct ctl *ctl, const struct held_lanes *held, size_t domain,
                            int over)
{
    long long n = 0;
    for (const struct held_lane *h = held->first; h; h = h->next)
        if (is_within(ctl, h, domain, over))
            n += h->entries;
    return n;
}

static bool has_label(const struct config_node *n, int over)
{
    return *(over == SPREAD_OVER_SITE ? n->site : n->zone) != '\0';
}

/* Nodes that answer, and domains of them, without that one. */
static void what_is_left(struct ctl *ctl, size_t domain, int over, size_t *nodes, size_t *domains)
{
    const struct config *c = ctl->config;
    bool seen[CONFIG_NODES_MAX] = {false};
    *nodes = *domains = 0;
    for (size_t i = 0; i < c->nnodes; i++) {
        size_t in = config_domain(c, i, over);
        if (in == domain || !conn_up(&ctl->conn[i]))
            continue;
        (*nodes)++;
        *domains += !seen[in];
        seen[in] = true;
    }
}

static const char *const word[] = {"node", "zone", "site"};

static void check_domain(struct ctl *ctl, const struct held_lanes *held, size_t domain, int over)
{
    const struct config *c = ctl->config;
    struct config_placement p = config_placement(c, &c->other);
    char *name = config_domain_name(c, domain, over), about[160];
    size_t nodes, domains;
    long long lost = only_there(ctl, held, domain, over);
    snprintf(about, sizeof about, "%s %s", word[over], name);
    what_is_left(ctl, domain, over, &nodes, &domains);
    bool goes_on = nodes >= (size_t)c->copies && (over != p.over || domains >= p.least);
    const char *then = goes_on ? "mail is diverted on" : "mail goes to Postfix's queue then";
    if (lost)
        check_say(ctl, FINDING_WARNING, FOUND_TOGETHER, about,
                  "spread_over in dovelane.conf, or wait until they are delivered",
                  "its loss would lose %lld mail%s: all copies that answer are there; %s", lost,
                  ctl_s((unsigned long long)lost), then);
    else
        check_good(ctl, about, "its loss would lose no mail; %s", then);
    free(name);
}

static void check_labels(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    int over = config_placement(c, &c->other).over;
    for (size_t i = 0; i < c->nnodes && over != SPREAD_OVER_NODE; i++) {
        char about[80], mend[80];
        snprintf(about, sizeof about, "node %s", c->node[i].name);
        snprintf(mend, sizeof mend,
                 "%s = \"...\" in its section on its own host; restart its relay", word[over]);
        if (c->node[i].learned && !has_label(&c->node[i], over))
            check_say(ctl, FINDING_WARNING, FOUND_UNLABELLED, about, mend,
                      "says no %s: it counts as in one with all others that say none", word[over]);
    }
}

void check_spread(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    struct held_lanes held = {0};
    bool read = false;
    check_labels(ctl);
    for (int over = SPREAD_OVER_ZONE; over <= SPREAD_OVER_SITE; over++)
        for (size_t i = 0; i < c->nnodes; i++) {
            if (!has_label(&c->node[i], over) || config_domain(c, i, over) != i)
                continue;
            for (size_t k = 0; k < ctl->nconns && !read; k++)
                if (conn_up(&ctl->conn[k]))
                    read_lanes(&ctl->conn[k], &held);
            read = true;
            check_domain(ctl, &held, i, over);
        }
    held_lanes_clear(&held);
}
