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
#include "ctl/remark.h"
#include "ctl/row.h"

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
    "  rtt        from here to its Redis and back    where   its site and zone\n"                  \
    "  times      its path_timeout/suspect_after/store_deadline at that rtt\n"                     \
    "  config     digest of the file that its relay has read; * where it is not the one of this "  \
    "command\n"                                                                                    \
    "  active path, standby path   its addresses: used, by how many of the programs' "             \
    "connections; idle; AWAY: no answer there, from here\n"                                        \
    "Status 0: all are alive, heard, whole, and have this configuration; 1: look; 2: no node "     \
    "answers. With takeover = manual there are no beats."

/* ---- text ---- */

/* The narrow table has 90 columns with names of up to 14 bytes. */
#define ROW "%-14s %-9s %6s  %-7s %-16s %-14s %8s %6s\n"
#define WIDE_ROW \
    "%-16s %-10s %6s  %-8s %-16s %-16s %10lld %8lld %9s %7s %8s %12s  %-16s %-17s %-28s %s\n"
#define WIDE_HEAD \
    "%-16s %-10s %6s  %-8s %-16s %-16s %10s %8s %9s %7s %8s %12s  %-16s %-17s %-28s %s\n"

/* "10.0.0.1:7001 used 3" */
static void path_text(const json_t *row, size_t which, char *text, size_t size)
{
    const json_t *path = row_item(row, "paths", which);
    const char *state = row_get_text(path, "state"), *address = row_get_text(path, "address");
    if (!path)
        snprintf(text, size, "-");
    else if (!strcmp(state, "used"))
        snprintf(text, size, "%s used %lld", address, row_get_number(path, "connections"));
    else
        snprintf(text, size, "%s %s", address,
                 !strcmp(state, "away")    ? "AWAY"
                 : !strcmp(state, "wrong") ? "WRONG"
                                           : state);
}

struct cells {
    char rtt[24], times[80], where[140];
    char beat[24], whole[64], memory[24], entries[24], config[BEAT_CONFIG + 1], path[2][300];
    struct buf hearing, taken;
};

static void make_cells(const json_t *row, struct cells *c)
{
    long long sets = row_get_number(row, "sets"), whole = row_get_number(row, "whole_sets"),
              most = row_get_number(row, "maxmemory_bytes");
    *c = (struct cells){"-", "-", "-", "-", "-", "-", "-", "", {"", ""}, {0}, {0}};
    if (row_has(row, "rtt_seconds"))
        snprintf(c->rtt, sizeof c->rtt, "%.1f ms", 1000. * row_get_real(row, "rtt_seconds"));
    if (row_has(row, "path_timeout_seconds"))
        snprintf(c->times, sizeof c->times, "%.1f/%.1f/%.1fs",
                 row_get_real(row, "path_timeout_seconds"),
                 row_get_real(row, "suspect_after_seconds"),
                 row_get_real(row, "store_deadline_seconds"));
    if (row_has(row, "site") || row_has(row, "zone"))
        snprintf(c->where, sizeof c->where, "%s%s%s", row_get_text(row, "site"),
                 row_has(row, "site") && row_has(row, "zone") ? "/" : "",
                 row_get_text(row, "zone"));
    if (row_has(row, "beat_age_seconds"))
        snprintf(c->beat, sizeof c->beat, "%.1f", row_get_real(row, "beat_age_seconds"));
    if (row_has(row, "whole_sets") && whole >= sets)
        snprintf(c->whole, sizeof c->whole, "yes");
    else if (row_has(row, "whole_sets"))
        snprintf(c->whole, sizeof c->whole, "%lld of %lld", whole, sets);
    if (row_has(row, "entries"))
        snprintf(c->entries, sizeof c->entries, "%lld", row_get_number(row, "entries"));
    if (most > 0)
        snprintf(c->memory, sizeof c->memory, "%lld%%",
                 100 * row_get_number(row, "used_bytes") / most);
    snprintf(c->config, sizeof c->config, "%s%s",
             row_has(row, "config") ? row_get_text(row, "config") : "-",
             row_get_is(row, "config_differs") ? "*" : "");
    for (size_t i = 0; i < 2; i++)
        path_text(row, i, c->path[i], sizeof c->path[i]);
    row_join(row, "heard_by", ",", "-", &c->hearing);
    row_join(row, "took_over", ",", "-", &c->taken);
}

static void show_node(const json_t *row)
{
    struct cells c;
    make_cells(row, &c);
    out(ROW, row_get_text(row, "node"), row_get_text(row, "state"), c.beat, c.whole, c.hearing.data,
        c.taken.data, c.entries, c.memory);
    buf_free(&c.hearing);
    buf_free(&c.taken);
}

static void show_node_wide(const json_t *row)
{
    struct cells c;
    make_cells(row, &c);
    out(WIDE_ROW, row_get_text(row, "node"), row_get_text(row, "state"), c.beat, c.whole,
        c.hearing.data, c.taken.data, row_get_number(row, "done"), row_get_number(row, "in_flight"),
        c.entries, c.memory, c.rtt, c.times, c.where, c.config, c.path[0], c.path[1]);
    buf_free(&c.hearing);
    buf_free(&c.taken);
}

/* ---- rows ---- */

static json_t *others(struct ctl *ctl, const struct beats *v, size_t node, bool taken)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ctl->config->nnodes; i++) {
        bool has = taken ? liveness_has_taken_over(v->liveness, node, i)
                         : liveness_state_for_placement(v->liveness, i, BEATS_NOW) == STATE_ALIVE &&
                               liveness_reported_state(v->liveness, i, node) == STATE_ALIVE;
        if (i != node && has)
            row_append_text(list, ctl->config->node[i].name);
    }
    return list;
}

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

static json_t *path_row(struct ctl *ctl, size_t node, size_t which, size_t uses)
{
    struct conn *c = &ctl->conn[node];
    const struct config_node *n = &ctl->config->node[node];
    enum conn_found found = *n->standby  ? conn_try(c, ctl->config, node, which)
                            : conn_up(c) ? CONN_RIGHT
                                         : CONN_SILENT;
    json_t *row = row_new();
    row_add_text(row, "path", which ? "standby" : "active");
    row_add_text(row, "address", which ? n->standby : n->redis);
    row_add_text(row, "state",
                 found == CONN_WRONG    ? "wrong"
                 : found == CONN_SILENT ? "away"
                 : uses                 ? "used"
                                        : "idle");
    row_add_number(row, "connections", (long long)uses);
    return row;
}

static json_t *paths(struct ctl *ctl, size_t node)
{
    size_t uses[2] = {0, 0}, n = *ctl->config->node[node].standby ? 2 : 1;
    json_t *list = json_array();
    count_uses(&ctl->conn[node], uses);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, path_row(ctl, node, i, uses[i]));
    return list;
}

static bool is_heard(enum node_state h)
{
    return h != STATE_SILENT && h != STATE_UNKNOWN;
}

static void add_beat(json_t *row, struct ctl *ctl, const struct beats *v, size_t i)
{
    char mine[CONFIG_DIGEST];
    const struct beat *b = liveness_beat(v->liveness, i);
    if (!b)
        return;
    config_digest(ctl->config, mine);
    row_add_real(row, "beat_age_seconds", liveness_silence(v->liveness, i, BEATS_NOW));
    row_add_number(row, "done", (long long)b->done);
    row_add_number(row, "in_flight", (long long)b->in_flight);
    row_add_text(row, "config", b->config);
    row_add_is(row, "config_differs", strcmp(b->config, mine) != 0);
}

static void add_times(json_t *row, const struct config *c, double rtt)
{
    static const char *const field[] = {[FAR_PATH_TIMEOUT] = "path_timeout_seconds",
                                        [FAR_SUSPECT_AFTER] = "suspect_after_seconds",
                                        [FAR_STORE_DEADLINE] = "store_deadline_seconds"};
    row_add_real(row, "rtt_seconds", rtt);
    for (enum config_far i = FAR_PATH_TIMEOUT; i <= FAR_STORE_DEADLINE; i++) {
        struct far_time t = config_far_time(c, i);
        row_add_real(row, field[i], far_time_at(&t, rtt));
    }
}

/* held: entries; -1: not known. */
static json_t *node_row(struct ctl *ctl, const struct beats *v, size_t i, long long held)
{
    struct conn *c = &ctl->conn[i];
    enum node_state h = beats_state(v, i);
    bool dead = config_list_has(&ctl->config->dead, c->name);
    json_t *row = row_new();
    const struct config_node *n = &ctl->config->node[i];
    row_add_text(row, "node", c->name);
    if (*n->site)
        row_add_text(row, "site", n->site);
    if (*n->zone)
        row_add_text(row, "zone", n->zone);
    row_add_text(row, "state", dead && !is_heard(h) ? "dead" : node_state_word(h));
    add_beat(row, ctl, v, i);
    row_add(row, "heard_by", others(ctl, v, i, false));
    row_add(row, "took_over", h == STATE_ALIVE ? others(ctl, v, i, true) : json_array());
    row_add_number(row, "sets", (long long)v->sets);
    if (conn_up(c)) {
        row_add_number(row, "whole_sets", (long long)v->whole[i]);
        if (held >= 0)
            row_add_number(row, "entries", held);
        if (v->rtt[i] >= 0.)
            add_times(row, ctl->config, v->rtt[i]);
        row_add_number(row, "used_bytes", c->used);
        row_add_number(row, "maxmemory_bytes", c->most);
    }
    row_add(row, "paths", paths(ctl, i));
    return row;
}

/* What is not as it should be, of the nodes that are beating. */
static bool needs_look(struct ctl *ctl, const struct beats *v, size_t i, const json_t *row)
{
    return beats_state(v, i) != STATE_ALIVE || row_get_is(row, "config_differs") ||
           !row_has(row, "whole_sets") ||
           row_get_number(row, "whole_sets") < row_get_number(row, "sets") ||
           row_size(row, "took_over") || (ctl->config->nnodes > 1 && !row_size(row, "heard_by"));
}

/* ---- below the table ---- */

/* The wide table has them as columns. */
static void remark_paths(struct ctl *ctl, const json_t *row, bool wide)
{
    for (size_t i = 0; i < row_size(row, "paths"); i++) {
        const json_t *path = row_item(row, "paths", i);
        const char *state = row_get_text(path, "state"), *node = row_get_text(row, "node");
        char text[300];
        bool good = !strcmp(state, "idle") || (!i && !strcmp(state, "used"));
        if (good)
            continue;
        ctl_status(ctl, STATUS_LOOK);
        path_text(row, i, text, sizeof text);
        if (!wide)
            remark(node, "path", "%s: its %s path %s", node, row_get_text(path, "path"), text);
    }
}

/* Others deliver what is on it. */
static void remark_undead(struct ctl *ctl, const struct beats *v)
{
    for (size_t i = 0; i < ctl->config->nnodes; i++) {
        const struct config_node *n = &ctl->config->node[i];
        enum node_state h = beats_state(v, i);
        if (n->dropped || !config_list_has(&ctl->config->dead, n->name) || !is_heard(h))
            continue;
        remark(n->name, "undead",
               "dead names %s, but its relay beats (%s): take it out of `dead` in the file "
               "of all hosts, or stop its relay",
               n->name, node_state_word(h));
        ctl_status(ctl, STATUS_LOOK);
    }
}

static void print_all(struct ctl *ctl, const struct beats *v, const long long *entries, bool wide)
{
    const struct out_kind nodes = {"nodes", wide ? show_node_wide : show_node};
    size_t n = ctl->config->nnodes;
    char mine[CONFIG_DIGEST];
    json_t **rows = mem_zero((n + 1) * sizeof *rows);
    config_digest(ctl->config, mine);
    if (wide)
        out(WIDE_HEAD, "node", "state", "beat", "whole", "heard by", "took over", "done", "in hand",
            "entries", "memory", "rtt", "times", "where", "config", "active path", "standby path");
    else
        out(ROW, "node", "state", "beat", "whole", "heard by", "took over", "entries", "memory");
    for (size_t i = 0; i < n; i++) {
        rows[i] = node_row(ctl, v, i, entries[i]);
        if (needs_look(ctl, v, i, rows[i]))
            ctl_status(ctl, STATUS_LOOK);
        out_row(&nodes, json_incref(rows[i]));
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = ctl->conn[i].name;
        if (row_get_is(rows[i], "config_differs") && !wide)
            remark(name, "config",
                   "%s: its relay has read another configuration (digest %s, here %s)", name,
                   row_get_text(rows[i], "config"), mine);
        remark_paths(ctl, rows[i], wide);
        json_decref(rows[i]);
    }
    free(rows);
    for (size_t i = 0; i < n; i++)
        if (v->doubled[i]) {
            remark(ctl->conn[i].name, "doubled",
                   "%s: two relays beat by this name; stop one of them", ctl->conn[i].name);
            ctl_status(ctl, STATUS_LOOK);
        }
    remark_undead(ctl, v);
    membership_print(ctl);
}

const struct option nodes_options[] = {
    {"help", no_argument, NULL, 'h'},       {"forget", required_argument, NULL, 'f'},
    {"join", required_argument, NULL, 'J'}, {"lost", required_argument, NULL, 'l'},
    {"verbose", no_argument, NULL, 'v'},    {0}};

void nodes_command(struct ctl *ctl, int argc, char **argv)
{
    const char *forget = NULL, *join = NULL;
    struct config_list lost = {0};
    bool wide = false;
    int o;
    while ((o = getopt_long(argc, argv, "vjh", nodes_options, NULL)) != -1) {
        switch (o) {
        case 'h': puts(HELP); return;
        case 'v': wide = true; break;
        case 'j': out_choose_json(true); break;
        case 'f': forget = optarg; break;
        case 'J': join = optarg; break;
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
    static const char *const lists[] = {"nodes", "remarks", NULL};
    out_begin("nodes/1", lists);
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
        remark(NULL, "takeover-manual",
               "takeover = manual: relays leave no beats, and an admin says who is dead");
    print_all(ctl, &v, entries, wide);
    beats_free(&v);
    free(entries);
}
