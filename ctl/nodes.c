/* dovelane nodes - the nodes as they see themselves and each other: the beats that lie in every
 * server, and what each server is whole for. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/beats.h"
#include "ctl/ctl.h"
#include "lib/base/mem.h"
#include "ctl/membership.h"
#include "ctl/out.h"

#define HELP                                                                                       \
    "usage: dovelane nodes [-v | --forget NODE [--lost NODE ...] | --join NODE]\n"                 \
    "--forget: takes a node that joined (membership = learned) and is dead out for good; refused " \
    "while it is needed. --lost, once for each: though\n"                                          \
    "that node may not hold what it held together with it; or, naming the node itself, though "    \
    "only that one has some mail. --join, on its own host: lets it join again, when all reach "    \
    "it. Without options one line per node:\n"                                                     \
    "  state      what it said last: alive; returning (it is compared with the others, and takes " \
    "nothing); ready (compared, the others give\n"                                                 \
    "             back what they took over); leaving (a planned stop); silent (no beat for "       \
    "suspect_after); dead (that,\n"                                                                \
    "             or no beat at all, and `dead` names it)\n"                                       \
    "  beat       seconds since its last beat, by the server that has the latest\n"                \
    "  whole      for how many of the sets of owners that it belongs to it holds all that was "    \
    "promised: yes, or \"1 of 2\"\n"                                                               \
    "  heard by   who hears it alive        took over  whose mail it delivers\n"                   \
    "  entries    in its lanes, copies for other nodes among them           memory   of "          \
    "maxmemory\n"                                                                                  \
    "With -v also, and below the table where they need a look:\n"                                  \
    "  done       mails that its relay is done with since it started        in hand  that it is "  \
    "delivering now\n"                                                                             \
    "  config     digest of the file that its relay has read; * where it is not the one of this "  \
    "command\n"                                                                                    \
    "  active path, standby path   its addresses: used, by how many of the programs' "             \
    "connections; idle; AWAY: no answer there, from here\n"                                        \
    "Status 0: all are alive, heard, whole, and have this configuration; 1: look; 2: no node "     \
    "answers. With takeover = manual there are no beats."

static void list(struct ctl *ctl, struct buf *out, const struct beats *v, size_t node, bool taken)
{
    for (size_t i = 0; i < ctl->config->nnodes; i++) {
        bool has = taken ? liveness_has_taken_over(v->liveness, node, i)
                         : liveness_state_for_placement(v->liveness, i, BEATS_NOW) == STATE_ALIVE &&
                               liveness_reported_state(v->liveness, i, node) == STATE_ALIVE;
        if (i != node && has)
            buf_printf(out, "%s%s", out->len ? "," : "", ctl->config->node[i].name);
    }
    if (!out->len)
        buf_adds(out, "-");
}

/* The narrow table has 90 columns with names of up to 14 bytes. */
#define ROW "%-14s %-9s %6s  %-7s %-16s %-14s %8s %6s\n"
#define WIDE_ROW "%-16s %-10s %6s  %-8s %-16s %-16s %10llu %8llu %9s %7s  %-17s "
#define WIDE_HEAD "%-16s %-10s %6s  %-8s %-16s %-16s %10s %8s %9s %7s  %-17s %-28s %s\n"

/* How many connections of programs there are over each of a node's addresses. */
static void count_uses(struct conn *c, size_t uses[2])
{
    redisReply *list = conn_call(c, "CLIENT LIST");
    for (const char *at = list && list->str ? list->str : NULL;
         at && (at = strstr(at, " name=dovelane-")); at++) {
        size_t len = strcspn(at + 1, " ");
        uses[len > 8 && !strncmp(at + 1 + len - 8, ":standby", 8)]++;
    }
    if (list)
        freeReplyObject(list);
}

/* wide: both, as columns. Otherwise only what needs a look, a line each. */
static void print_paths(struct ctl *ctl, size_t node, bool wide)
{
    struct conn *c = &ctl->conn[node];
    const struct config_node *n = &ctl->config->node[node];
    const char *address[] = {n->redis, n->standby};
    size_t uses[2] = {0, 0};
    count_uses(c, uses);
    for (size_t i = 0; i < 2; i++) {
        char text[300] = "-";
        bool two = *n->standby;
        enum conn_found found = two          ? conn_try(c, ctl->config, node, i)
                                : conn_up(c) ? CONN_RIGHT
                                             : CONN_SILENT;
        bool up = found == CONN_RIGHT, look = *address[i] && (!up || (i && uses[i]));
        if (*address[i] && !up)
            snprintf(text, sizeof text, "%s %s", address[i],
                     found == CONN_WRONG ? "WRONG" : "AWAY");
        else if (*address[i] && uses[i])
            snprintf(text, sizeof text, "%s used %zu", address[i], uses[i]);
        else if (*address[i])
            snprintf(text, sizeof text, "%s idle", address[i]);
        if (look)
            ctl_status(ctl, STATUS_LOOK);
        if (wide)
            out(i ? "%s\n" : "%-28s ", text);
        else if (look)
            out("%s: its %s path %s\n", c->name, i ? "standby" : "active", text);
    }
}

static bool is_heard(enum node_state h)
{
    return h != STATE_SILENT && h != STATE_UNKNOWN;
}

/* Others deliver what is on it. */
static void print_undead(struct ctl *ctl, const struct beats *v)
{
    for (size_t i = 0; i < ctl->config->nnodes; i++) {
        const struct config_node *n = &ctl->config->node[i];
        enum node_state h = beats_state(v, i);
        if (n->dropped || !config_list_has(&ctl->config->dead, n->name) || !is_heard(h))
            continue;
        out("dead names %s, but its relay beats (%s): take it out of `dead` in the file of all "
            "hosts, or stop its relay\n",
            n->name, node_state_word(h));
        ctl_status(ctl, STATUS_LOOK);
    }
}

static void print_node(struct ctl *ctl, const struct beats *v, size_t i, long long held, bool wide)
{
    struct conn *c = &ctl->conn[i];
    const struct beat *b = liveness_beat(v->liveness, i);
    enum node_state h = beats_state(v, i);
    char beat[24] = "-", whole[64] = "-", memory[24] = "-", entries[24] = "-",
         config[BEAT_CONFIG + 1], mine[CONFIG_DIGEST];
    struct buf hearing = {0}, taken = {0};
    config_digest(ctl->config, mine);
    if (b)
        snprintf(beat, sizeof beat, "%.1f", liveness_silence(v->liveness, i, BEATS_NOW));
    if (conn_up(c) && v->whole[i] >= v->sets)
        snprintf(whole, sizeof whole, "yes");
    else if (conn_up(c))
        snprintf(whole, sizeof whole, "%zu of %zu", v->whole[i], v->sets);
    if (conn_up(c) && held >= 0)
        snprintf(entries, sizeof entries, "%lld", held);
    if (conn_up(c) && c->most > 0)
        snprintf(memory, sizeof memory, "%lld%%", 100 * c->used / c->most);
    bool other = b && strcmp(b->config, mine), dead = config_list_has(&ctl->config->dead, c->name);
    snprintf(config, sizeof config, "%s%s", b ? b->config : "-", other ? "*" : "");
    list(ctl, &hearing, v, i, false);
    list(ctl, &taken, v, i, true);
    const char *state = dead && !is_heard(h) ? "dead" : node_state_word(h),
               *over = h == STATE_ALIVE ? taken.data : "-";
    if (wide) {
        out(WIDE_ROW, c->name, state, beat, whole, hearing.data, over,
            b ? (unsigned long long)b->done : 0ull, b ? (unsigned long long)b->in_flight : 0ull,
            entries, memory, config);
        print_paths(ctl, i, true);
    } else {
        out(ROW, c->name, state, beat, whole, hearing.data, over, entries, memory);
    }
    if (h != STATE_ALIVE || other || strcmp(whole, "yes") || strcmp(taken.data, "-") ||
        (ctl->config->nnodes > 1 && !strcmp(hearing.data, "-")))
        ctl_status(ctl, STATUS_LOOK);
    buf_free(&hearing);
    buf_free(&taken);
}

static void print_all(struct ctl *ctl, const struct beats *v, const long long *entries, bool wide)
{
    size_t n = ctl->config->nnodes;
    char mine[CONFIG_DIGEST];
    config_digest(ctl->config, mine);
    if (wide)
        out(WIDE_HEAD, "node", "state", "beat", "whole", "heard by", "took over", "done", "in hand",
            "entries", "memory", "config", "active path", "standby path");
    else
        out(ROW, "node", "state", "beat", "whole", "heard by", "took over", "entries", "memory");
    for (size_t i = 0; i < n; i++)
        print_node(ctl, v, i, entries[i], wide);
    for (size_t i = 0; i < n && !wide; i++) {
        const struct beat *b = liveness_beat(v->liveness, i);
        if (b && strcmp(b->config, mine))
            out("%s: its relay has read another configuration (digest %s, here %s)\n",
                ctl->conn[i].name, b->config, mine);
        print_paths(ctl, i, false);
    }
    for (size_t i = 0; i < n; i++)
        if (v->doubled[i]) {
            out("%s: two relays beat by this name; stop one of them\n", ctl->conn[i].name);
            ctl_status(ctl, STATUS_LOOK);
        }
    print_undead(ctl, v);
    membership_print(ctl);
}

void nodes_command(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},       {"forget", required_argument, NULL, 'f'},
        {"join", required_argument, NULL, 'j'}, {"lost", required_argument, NULL, 'l'},
        {"verbose", no_argument, NULL, 'v'},    {0}};
    const char *forget = NULL, *join = NULL;
    struct config_list lost = {0};
    bool wide = false;
    int o;
    while ((o = getopt_long(argc, argv, "vh", options, NULL)) != -1) {
        switch (o) {
        case 'h': puts(HELP); return;
        case 'v': wide = true; break;
        case 'f': forget = optarg; break;
        case 'j': join = optarg; break;
        case 'l':
            lost.v = mem_grow(lost.v, (lost.n + 1) * sizeof *lost.v), lost.v[lost.n++] = optarg;
            break;
        default: ctl_usage("see `dovelane nodes --help`");
        }
    }
    if (optind != argc)
        ctl_usage("nodes: %s is no option", argv[optind]);
    if ((forget && join) || (lost.n && !forget))
        ctl_usage("nodes: one of --forget NODE [--lost NODE ...] and --join NODE");
    if (forget || join) {
        forget ? membership_forget(ctl, forget, &lost) : membership_join(ctl, join);
        free(lost.v);
        return;
    }
    ctl_connect(ctl);
    const struct config *c = ctl->config;
    size_t n = c->nnodes;
    struct beats v;
    long long *entries = mem_zero((n + 1) * sizeof *entries); /* -1: it does not answer */
    beats_read(ctl, &v);
    for (size_t i = 0; i < n; i++) {
        redisReply *info = conn_up(&ctl->conn[i]) ? conn_call(&ctl->conn[i], "LANE.INFO") : NULL;
        entries[i] = info ? conn_number(info, "entries") : -1;
        if (info)
            freeReplyObject(info);
    }
    if (c->takeover == TAKEOVER_MANUAL)
        puts("takeover = manual: relays leave no beats, and an admin says who is dead");
    print_all(ctl, &v, entries, wide);
    beats_free(&v);
    free(entries);
}
