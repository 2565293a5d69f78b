#include "ctl/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/beats.h"
#include "lib/mail/lanename.h"
#include "lib/cluster/liveness.h"
#include "lib/base/mem.h"
#include "lib/cluster/members.h"
#include "ctl/out.h"
#include "ctl/remark.h"
#include "ctl/row.h"
#include "lib/redis/control_keys.h"

#define LANES 500 /* in one answer */

static void needs_learned(const struct ctl *ctl, const char *option)
{
    if (ctl->config->membership != MEMBERSHIP_LEARNED)
        ctl_usage("nodes %s: membership = file: the sections of %s say which nodes there are, on "
                  "each host by itself; see the admin reference, \"Growing\"",
                  option, ctl->config_path);
}

/* ---- the table in the servers ---- */

static void read_tables(struct ctl *ctl, struct members *table)
{
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *r =
            conn_up(&ctl->conn[i]) ? conn_call(&ctl->conn[i], "GET " CONTROL_NODES) : NULL;
        if (r && r->type == REDIS_REPLY_STRING && r->len <= MEMBERS_TEXT_MOST)
            members_read(table, r->str);
        if (r)
            freeReplyObject(r);
    }
}

static void write_tables(struct ctl *ctl, const struct members *table)
{
    struct buf text = {0};
    size_t told = 0;
    members_write(table, &text);
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *r = conn_up(&ctl->conn[i])
                            ? conn_call(&ctl->conn[i], "EVAL %s 1 " CONTROL_NODES " %b",
                                        CONTROL_SET, text.data, text.len)
                            : NULL;
        if (r) {
            told++;
            freeReplyObject(r);
        } else if (conn_up(&ctl->conn[i])) {
            out_error("dovelane: node %s did not take it: %s\n", ctl->conn[i].name,
                      ctl->conn[i].trouble);
            ctl_status(ctl, STATUS_LOOK);
        }
    }
    buf_free(&text);
    if (!told)
        ctl_usage("no node took it");
}

/* ---- may it go? ---- */

/* The node's last beat, by the server that has it latest. */
struct last_beat {
    long long age; /* milliseconds; -1: no server has any */
    char *text;    /* "" then */
};

static struct last_beat last_beat(struct ctl *ctl, const char *node)
{
    struct last_beat last = {-1, mem_strdup("")};
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *r = conn_up(&ctl->conn[i]) ? beats_ask(&ctl->conn[i]) : NULL;
        const redisReply *list = conn_shaped(r, "l") ? r->element[0] : NULL;
        for (size_t k = 0; list && k < list->elements; k++) {
            const redisReply *b = list->element[k];
            if (!conn_shaped(b, "ssiis") || strcmp(b->element[0]->str, node) ||
                (last.age >= 0 && b->element[3]->integer >= last.age))
                continue;
            free(last.text);
            last = (struct last_beat){b->element[3]->integer, mem_strdup(b->element[4]->str)};
        }
        if (r)
            freeReplyObject(r);
    }
    return last;
}

/* The same as its age; state: what it said of itself. */
static long long beat_age(struct ctl *ctl, const char *node, char *state, size_t size)
{
    struct last_beat last = last_beat(ctl, node);
    const char *word = strstr(last.text, "state=");
    if (last.age >= 0)
        snprintf(state, size, "%.*s", word ? (int)strcspn(word + 6, " ") : 0, word ? word + 6 : "");
    free(last.text);
    return last.age;
}

/* Alive, or back again: not counted out by the configuration. */
static bool is_left(const struct ctl *ctl, const char *name, const char *node)
{
    return strcmp(name, node) && config_node_index(ctl->config, name) >= 0 &&
           !config_list_has(&ctl->config->dead, name);
}

/* Whether the node is one of the lane's owners; left: whether nobody is an owner of it who would
 * be left without the node. */
static bool concerns(const struct ctl *ctl, const redisReply *lane, const char *node, bool left)
{
    struct lanename name;
    bool is = left;
    if (lane->type != REDIS_REPLY_STRING || !lanename_parse(lane->str, lane->len, &name))
        return false;
    for (size_t i = 0; i < name.nowners; i++) {
        if (left)
            is &= !is_left(ctl, name.owner[i], node);
        else
            is |= !strcmp(name.owner[i], node);
    }
    lanename_free(&name);
    return is;
}

/* Entries of lanes that concern it, in a server. Does not return when that cannot be known. */
static long long held(const struct ctl *ctl, struct conn *c, const char *node, bool left)
{
    char cursor[32] = "0";
    long long held = 0;
    do {
        redisReply *list =
            conn_call(c, "LANE.LIST %s MATCH " LANENAME_PREFIX "*|* COUNT %d", cursor, LANES);
        if (!conn_shaped(list, "?l"))
            ctl_usage("node %s does not list its lanes: %s", c->name, c->trouble);
        const redisReply *at = list->element[0];
        if (at->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", at->integer);
        else
            snprintf(cursor, sizeof cursor, "%s", at->str ? at->str : "0");
        for (size_t i = 0; i + 2 < list->element[1]->elements; i += 3) {
            const redisReply *lane = list->element[1]->element[i];
            if (concerns(ctl, lane, node, left))
                held += list->element[1]->element[i + 1]->type == REDIS_REPLY_INTEGER
                            ? list->element[1]->element[i + 1]->integer
                            : 1;
        }
        freeReplyObject(list);
    } while (strcmp(cursor, "0"));
    return held;
}

/* "mx1+mx2": `copies` owners, both nodes among them, and else only such as would be left. A
 * server keeps what it was whole for by former files, too. */
static bool is_set_of(const struct ctl *ctl, const char *set, const char *a, const char *node)
{
    char name[65];
    bool has_a = false, has_node = false;
    long long n = 0;
    for (const char *end; *set; set = *end ? end + 1 : end, n++) {
        end = set + strcspn(set, "+");
        snprintf(name, sizeof name, "%.*s", (int)(end - set), set);
        has_a |= !strcmp(name, a);
        has_node |= !strcmp(name, node);
        if (strcmp(name, node) && !is_left(ctl, name, node))
            return false;
    }
    return has_a && has_node && n == ctl->config->copies;
}

/* Whether the server holds all that was promised with that node: it is whole for every set of
 * owners with both. */
static bool holds_all(struct ctl *ctl, struct conn *c, const char *node)
{
    redisReply *r = conn_call(c, "LANE.WHOLE");
    size_t sets = 0, others = 0, all = ctl->config->copies > 1;
    for (size_t i = 0; r && r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements; i += 2)
        sets += r->element[i]->str && is_set_of(ctl, r->element[i]->str, c->name, node);
    if (r)
        freeReplyObject(r);
    for (size_t i = 0; i < ctl->config->nnodes; i++)
        others += is_left(ctl, ctl->config->node[i].name, node) &&
                  strcmp(ctl->config->node[i].name, c->name);
    for (size_t k = 1; k + 1 < (size_t)ctl->config->copies; k++)
        all = others >= k ? all * (others - k + 1) / k : 0;
    return sets >= all;
}

/* Whether that one may have promised something together with a node that joins: its last beat
 * names it, which is in no record, so that it has a section of it; or it left no beat that could
 * tell; or its server holds mail with it. One that was taken out before is named also by those
 * that have its place since then: no beat tells the two apart, so they are asked in vain rather
 * than a section is overlooked. */
static bool counts_it(struct ctl *ctl, struct conn *c, const char *node)
{
    if (!strcmp(c->name, node) || config_list_has(&ctl->config->dead, c->name))
        return false;
    struct last_beat last = last_beat(ctl, c->name);
    bool does =
        last.age < 0 || beat_names(last.text, node) || (conn_up(c) && held(ctl, c, node, false));
    free(last.text);
    return does;
}

static bool somebody_counts_it(struct ctl *ctl, const char *node)
{
    bool any = false;
    for (size_t i = 0; i < ctl->nconns; i++)
        any |= counts_it(ctl, &ctl->conn[i], node);
    return any;
}

/* What is promised with a node that this command does not know cannot be looked at. */
static void refuse_unknown(const struct ctl *ctl, const struct members *table, const char *node,
                           const struct config_list *lost)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct member *m = &table->v[i];
        if (!m->gone && !m->joining && config_node_index(ctl->config, m->name) < 0 &&
            !config_list_has(lost, m->name))
            ctl_usage(
                "nodes --forget %s: node %s (%s) is in the group, and no program of this host has "
                "learned of it. So its mail cannot be looked at: call this on a node's host. "
                "Or, if its mail is lost anyway, with --lost %s",
                node, m->name, m->redis, m->name);
    }
    for (size_t i = 0; i < lost->n; i++)
        if (!members_find(table, lost->v[i]) && config_node_index(ctl->config, lost->v[i]) < 0)
            ctl_usage("nodes --forget %s --lost %s: there is no such node", node, lost->v[i]);
}

/* What nobody else has: of lanes that are its alone, or whose owners are all counted out. */
static void refuse_while_alone(struct ctl *ctl, const char *node)
{
    size_t away = 1;
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *c = &ctl->conn[i];
        const struct config_node *n = &ctl->config->node[i];
        away +=
            strcmp(n->name, node) && !n->dropped && config_list_has(&ctl->config->dead, n->name);
        long long alone = !strcmp(c->name, node) && conn_up(c) ? held(ctl, c, node, true) : 0;
        if (alone)
            ctl_usage("nodes --forget %s: its server holds %lld mails that no other node has: "
                      "start its relay, `dovelane drain --to-postfix` there, then again. Or, if "
                      "they may be lost, --lost %s",
                      node, alone, node);
    }
    int at = config_node_index(ctl->config, node);
    if (away >= (size_t)ctl->config->copies && (at < 0 || !conn_up(&ctl->conn[at])))
        ctl_usage("nodes --forget %s: its server does not answer. It may hold mail that no other "
                  "node has (copies = %lld, %zu nodes are away for good): start it. Or, if that "
                  "mail is lost anyway, --lost %s",
                  node, (long long)ctl->config->copies, away, node);
}

/* joining: the node is none of the group by any record. */
static void refuse_while_needed(struct ctl *ctl, const char *node, bool joining,
                                const struct config_list *lost)
{
    char state[32] = "";
    size_t left = 0;
    struct buf without = {0}, options = {0};
    long long age = beat_age(ctl, node, state, sizeof state);
    if (age >= 0 && age < ctl->config->dead_after)
        ctl_usage("nodes --forget %s: its relay beat %.1f s ago (%s): stop it first, `systemctl "
                  "disable --now dovelane-relay` there, and wait for dead_after (%lld s)",
                  node, (double)age / 1000., state, (long long)ctl->config->dead_after / 1000);
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *c = &ctl->conn[i];
        if (!strcmp(c->name, node) || config_list_has(&ctl->config->dead, c->name))
            continue;
        left++;
        if (joining && !counts_it(ctl, c, node))
            continue;
        if (!conn_up(c))
            ctl_usage("nodes --forget %s: node %s does not answer. What it shares with %s is not "
                      "known: wait until it is back, or forget it first",
                      node, c->name, node);
        age = beat_age(ctl, c->name, state, sizeof state);
        if (age < 0 || age > ctl->config->suspect_after || strcmp(state, "alive"))
            ctl_usage("nodes --forget %s: node %s is not alive (%s): wait until `dovelane nodes` "
                      "calls it so",
                      node, c->name, age < 0 ? "no beat" : state);
        long long with = held(ctl, c, node, false);
        if (with)
            ctl_usage(
                "nodes --forget %s: node %s shares %lld mails with it, which would stay on fewer "
                "than `copies` nodes. They are delivered, or copied to another node replace_after "
                "(%lld s) after its last beat. At once with dead = { \"%s\" } in the "
                "file of all hosts and a reload of the relays. Where too few nodes are left for "
                "that, "
                "or a lane of an ordered destination has more than refill_block mails: only by "
                "delivery or `dovelane requeue`. Then again",
                node, c->name, with, (long long)ctl->config->replace_after / 1000, node);
        if (!config_list_has(lost, c->name) && !holds_all(ctl, c, node)) {
            buf_printf(&without, "%s%s", without.len ? ", " : "", c->name);
            buf_printf(&options, " --lost %s", c->name);
        }
    }
    if (without.len)
        ctl_usage("nodes --forget %s: %s may lack what it was to hold with it (restarted, emptied, "
                  "or it never had it). What only %s has would be lost. Start %s, so that "
                  "it hands that over; or, if what it has is lost anyway, or there was nothing,%s",
                  node, without.data, node, node, options.data);
    if (!config_list_has(lost, node))
        refuse_while_alone(ctl, node);
    if (left < (size_t)ctl->config->copies)
        ctl_usage("nodes --forget %s: %zu nodes would be left, and copies = %lld: all mail would "
                  "go to Postfix's queue; add a node, or lower copies",
                  node, left, (long long)ctl->config->copies);
}

static void show_message(const json_t *row)
{
    out("%s\n", row_get_text(row, "message"));
}

/* What a change came to: a word for programs, a text for people. */
static void print_result(const char *node, const char *result, const char *text)
{
    json_t *row = row_new();
    char *message = mem_printf("node %s %s", node, text);
    out_begin("membership/1", NULL);
    row_add_text(row, "node", node);
    row_add_text(row, "result", result);
    row_add_text(row, "message", message);
    out_facts(show_message, row);
    free(message);
}

/* ---- the commands ---- */

static void say(struct members *table, const struct member *m)
{
    if (!members_say(table, m))
        ctl_usage("node %s: the table of nodes takes no record of it (at most %d, with serials up "
                  "to %llu): look at the key " CONTROL_NODES " of each node's Redis",
                  m->name, MEMBERS_MOST, MEMBERS_SERIAL_MOST);
}

void membership_forget(struct ctl *ctl, const char *node, const struct config_list *lost)
{
    struct members table = {0};
    needs_learned(ctl, "--forget");
    int i = config_node_index(ctl->config, node);
    if (i >= 0 && !ctl->config->node[i].learned)
        ctl_usage("nodes --forget %s: it has a section in %s, which counts more: take the section "
                  "out of all hosts' files, `systemctl reload dovelane-relay` there, then again",
                  node, ctl->config_path);
    ctl_connect_without(ctl, node); /* it goes because it is away */
    read_tables(ctl, &table);
    const struct member *is = members_find(&table, node);
    if (!is)
        ctl_usage("nodes --forget %s: there is no such node", node);
    bool gone = is->gone;
    if (!gone) {
        if (!is->joining || somebody_counts_it(ctl, node)) {
            refuse_unknown(ctl, &table, node, lost);
            refuse_while_needed(ctl, node, is->joining, lost);
        }
        struct member out = {.serial = members_serial(&table, node),
                             .gone = true,
                             .name = (char *)node,
                             .epoch = is->epoch};
#define MEMBER_TEXT(text) out.text = (char *)"";
        MEMBER_TEXTS
#undef MEMBER_TEXT
        say(&table, &out);
    }
    /* one that is gone, too: there may be a server that has not heard of it */
    write_tables(ctl, &table);
    if (gone) {
        print_result(node, "gone-before", "was taken out already");
    } else {
        char *caller = ctl_caller();
        ctl_log(ctl, "nodes --forget %s, by %s", node, caller);
        free(caller);
        print_result(node, "gone",
                     "is not in the group any more. If its relay is started again, it takes "
                     "nothing and logs that");
    }
    members_free(&table);
}

void membership_join(struct ctl *ctl, const char *node)
{
    struct members table = {0};
    needs_learned(ctl, "--join");
    int i = config_node_index(ctl->config, node);
    if (i < 0 || ctl->config->node[i].learned)
        ctl_usage("nodes --join %s: it has no section in %s: call this on its own host", node,
                  ctl->config_path);
    ctl_connect(ctl);
    read_tables(ctl, &table);
    const struct config_node *n = &ctl->config->node[i];
    const struct member *is = members_find(&table, node);
    if (!is || !is->gone) {
        print_result(node, "not-gone",
                     "was not taken out: a node joins by itself when its relay is started");
    } else {
        struct member again = {.serial = members_serial(&table, node),
                               .name = n->name,
                               .joining = true,
                               .epoch = is->epoch + 1};
#define MEMBER_TEXT(text) again.text = n->text;
        MEMBER_TEXTS
#undef MEMBER_TEXT
        say(&table, &again);
        write_tables(ctl, &table);
        print_result(node, "may-join",
                     "may join again: its relay does it when every node that beats reaches it and "
                     "is reached by it; its log says which does not");
    }
    members_free(&table);
}

void membership_print(struct ctl *ctl)
{
    struct members table = {0};
    const struct config *c = ctl->config;
    if (c->membership != MEMBERSHIP_LEARNED)
        return;
    read_tables(ctl, &table);
    for (size_t i = 0; i < c->nnodes; i++)
        if (c->node[i].learned)
            remark(c->node[i].name, "joined", "%s joined: it has no section in %s", c->node[i].name,
                   ctl->config_path);
    for (size_t i = 0; i < table.n; i++) {
        const struct member *m = &table.v[i];
        int at = config_node_index(c, m->name);
        if (m->gone && (at < 0 || c->node[at].learned))
            remark(m->name, "gone", "%s was taken out for good", m->name);
        if (m->gone || at >= 0)
            continue;
        if (m->joining)
            remark(m->name, "joining",
                   "%s (%s) is joining: it counts when it reaches every node that beats, and is "
                   "reached by it. Its relay's log names the others",
                   m->name, m->redis);
        else
            remark(m->name, "unknown-here",
                   "%s (%s) joined, and no program of this host has learned of it yet", m->name,
                   m->redis);
        ctl_status(ctl, STATUS_LOOK);
    }
    if (c->unlearned) {
        remark(NULL, "unlearned", "%s", c->unlearned);
        ctl_status(ctl, STATUS_LOOK);
    }
    members_free(&table);
}
