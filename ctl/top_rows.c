#include "ctl/top_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/row.h"
#include "lib/base/mem.h"

/* ---- rows ---- */

static void add_known(json_t *row, const char *key, double value)
{
    if (value >= 0)
        row_add_real(row, key, value);
}

static const char *state_of(const struct top_server_view *v)
{
    return !v->fresh ? "away" : !v->node ? "replica" : node_state_word(v->state);
}

static json_t *node_row(const struct top *t, size_t server, double now)
{
    struct top_server_view v = top_server(t, server, now);
    json_t *row = row_new();
    row_add_text(row, "node", v.name);
    row_add_text(row, "address", v.address);
    row_add_text(row, "state", state_of(&v));
    row_add_text(row, "why", v.fresh ? NULL : *v.why ? v.why : "no answer");
    add_known(row, "silent_seconds", v.fresh ? -1 : v.silent);
    if (v.node && v.has_beat) {
        row_add_real(row, "beat_age_seconds", v.beat_age);
        row_add_number(row, "done", (long long)v.done);
        row_add_number(row, "in_flight", (long long)v.in_flight);
        add_known(row, "done_per_second", v.delivered);
    }
    if (!v.fresh)
        return row;
    row_add_number(row, "entries", v.said.entries);
    row_add_number(row, "entries_bytes", v.said.bytes);
    row_add_number(row, "used_bytes", v.said.used);
    row_add_number(row, "maxmemory_bytes", v.said.most);
    if (v.node) {
        row_add_number(row, "sets", (long long)v.sets);
        row_add_number(row, "whole_sets", (long long)v.whole);
    }
    return row;
}

static void add_depth(json_t *row, long long length, long long bytes, double age, double in,
                      double out)
{
    row_add_number(row, "entries", length);
    row_add_number(row, "entries_bytes", bytes);
    add_known(row, "oldest_seconds", age);
    add_known(row, "in_per_second", in);
    add_known(row, "out_per_second", out);
}

static json_t *lane_rows(const struct top *t, bool of_replicas, enum top_sort by, size_t most,
                         double now)
{
    struct top_lanes_view lanes = top_lanes(t, of_replicas, by, now);
    json_t *list = json_array();
    for (size_t i = 0; i < lanes.n && (!most || i < most); i++) {
        const struct top_lane_view *v = &lanes.v[i];
        json_t *row = row_new();
        row_add_text(row, "lane", v->name);
        row_add_text(row, "next_hop", v->of_replicas ? NULL : v->destination);
        row_add_text(row, "class", v->class);
        row_add_text(row, "from", v->from);
        row_add_text(row, "to", v->to);
        if (v->of_replicas)
            row_add_is(row, "bulk", v->bulk);
        else
            row_add_number(row, "copies", (long long)v->copies);
        add_depth(row, v->length, v->bytes, v->age, v->in, v->out);
        json_array_append_new(list, row);
    }
    top_lanes_free(&lanes);
    return list;
}

static json_t *hop_rows(const struct top *t, enum top_sort by, size_t most, double now)
{
    struct top_hops_view hops = top_hops(t, by, now);
    json_t *list = json_array();
    for (size_t i = 0; i < hops.n && (!most || i < most); i++) {
        const struct top_hop_view *v = &hops.v[i];
        json_t *row = row_new();
        row_add_text(row, "next_hop", v->destination);
        add_depth(row, v->length, v->bytes, v->age, v->in, v->out);
        row_add_text(row, "error", *v->error ? v->error : NULL);
        row_add_text(row, "node", *v->from ? v->from : NULL);
        json_array_append_new(list, row);
    }
    top_hops_free(&hops);
    return list;
}

json_t *top_rows(const struct top *t, enum top_sort by, size_t most, double now)
{
    json_t *all = row_new(), *nodes = json_array();
    for (size_t i = 0; i < top_servers(t); i++)
        json_array_append_new(nodes, node_row(t, i, now));
    row_add(all, "nodes", nodes);
    row_add(all, "next_hops", hop_rows(t, by, most, now));
    row_add(all, "lanes", lane_rows(t, false, by, most, now));
    row_add(all, "replicas", lane_rows(t, true, by, most, now));
    return all;
}

/* ---- text ---- */

const char *top_list_name(enum top_list list)
{
    static const char *const name[] = {"nodes", "next_hops", "lanes", "replicas"};
    return name[list];
}

/* "12s", "34m", "5h", "6d" */
static void age_text(const json_t *row, const char *key, char out[12])
{
    double s = row_get_real(row, key);
    if (!row_has(row, key))
        snprintf(out, 12, "-");
    else if (s < 100)
        snprintf(out, 12, "%.0fs", s);
    else if (s < 6000)
        snprintf(out, 12, "%.0fm", s / 60);
    else if (s < 360000)
        snprintf(out, 12, "%.0fh", s / 3600);
    else
        snprintf(out, 12, "%.0fd", s < 8.64e12 ? s / 86400 : 99999999.);
}

static void rate_text(const json_t *row, const char *key, char out[16])
{
    double r = row_get_real(row, key);
    if (!row_has(row, key))
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, r < 10 ? "%.1f" : "%.0f", r < 1e9 ? r : 1e9);
}

static void bytes_text(const json_t *row, const char *key, char out[16])
{
    static const char unit[] = "BkMGTP";
    double b = (double)row_get_number(row, key);
    size_t i = 0;
    if (!row_has(row, key)) {
        snprintf(out, 16, "-");
        return;
    }
    for (; b >= 1000 && i + 2 < sizeof unit; i++)
        b /= 1024;
    snprintf(out, 16, i && b < 10 ? "%.1f%c" : "%.0f%c", b, unit[i]);
}

static void number_text(const json_t *row, const char *key, char out[24])
{
    if (row_has(row, key))
        snprintf(out, 24, "%lld", row_get_number(row, key));
    else
        snprintf(out, 24, "-");
}

#define NODE_LINE "%-14s %-9s %5s %-7s %8s %6s %5s %7s %6s"
#define LANE_LINE "%8s %6s %5s %7s %7s  %s"

char *top_heading(enum top_list list)
{
    if (list == TOP_NODES)
        return mem_printf(NODE_LINE, "NODE", "STATE", "BEAT", "WHOLE", "ENTRIES", "BYTES", "MEM",
                          "DONE/S", "FLIGHT");
    return mem_printf(LANE_LINE, "ENTRIES", "BYTES", "AGE", "IN/S", "OUT/S",
                      list == TOP_HOPS    ? "NEXT HOP"
                      : list == TOP_LANES ? "LANE"
                                          : "REPLICA TO REPLICA");
}

static char *node_line(const json_t *row)
{
    char beat[12], bytes[16], rate[16], entries[24], flight[24], whole[48] = "-", memory[24] = "-";
    long long sets = row_get_number(row, "sets"), has = row_get_number(row, "whole_sets"),
              most = row_get_number(row, "maxmemory_bytes");
    age_text(row, "beat_age_seconds", beat);
    bytes_text(row, "entries_bytes", bytes);
    rate_text(row, "done_per_second", rate);
    number_text(row, "entries", entries);
    number_text(row, "in_flight", flight);
    if (row_has(row, "sets") && has >= sets)
        snprintf(whole, sizeof whole, "yes");
    else if (row_has(row, "sets"))
        snprintf(whole, sizeof whole, "%lld of %lld", has, sets);
    if (most > 0)
        snprintf(memory, sizeof memory, "%lld%%", 100 * row_get_number(row, "used_bytes") / most);
    char *line = mem_printf(NODE_LINE "%s%s", row_get_text(row, "node"), row_get_text(row, "state"),
                            beat, whole, entries, bytes, memory, rate, flight,
                            row_has(row, "why") ? "  " : "", row_get_text(row, "why"));
    return line;
}

char *top_line(enum top_list list, const json_t *row)
{
    char age[12], in[16], out[16], bytes[16], entries[24], *name, *line;
    if (list == TOP_NODES)
        return node_line(row);
    age_text(row, "oldest_seconds", age);
    rate_text(row, "in_per_second", in);
    rate_text(row, "out_per_second", out);
    bytes_text(row, "entries_bytes", bytes);
    number_text(row, "entries", entries);
    if (list == TOP_REPLICAS)
        name = mem_printf("%s > %s%s", row_get_text(row, "from"), row_get_text(row, "to"),
                          row_get_is(row, "bulk") ? " (bulk)" : "");
    else if (list == TOP_HOPS && row_has(row, "error"))
        name = mem_printf("%s  %s (%s)", row_get_text(row, "next_hop"), row_get_text(row, "error"),
                          row_get_text(row, "node"));
    else
        name = mem_strdup(row_get_text(row, list == TOP_HOPS ? "next_hop" : "lane"));
    line = mem_printf(LANE_LINE, entries, bytes, age, in, out, name);
    free(name);
    return line;
}
