/* dovelane capacity - how long memory lasts if every next hop stopped now and mail came in as it
 * does at this moment.
 *
 *   rate      bytes that come into a node's Redis per second: total_net_input_bytes of INFO, now and some seconds later. Nearly all of it is PUSH, with each
 *             mail's body, envelope and framing; what else comes (acks, beats) would stop or is small, so the answer errs to the safe side.
 *   factor    memory that a byte of mail takes: 1.2 (FACTOR)
 *   left      maxmemory x spill_above % - used, and maxmemory - used
 *   time      left / (rate x factor)
 *
 * The node that is full first counts. Until spill_above nothing happens; from there on the
 * oldest mail goes to Postfix's queue (reinject_port), as fast as spill_rate x relays; only at
 * the end of memory does new mail go to Postfix's queue at once. Mail is answered 4xx only where
 * the configuration asks for that: on_store_failure = tempfail, or accept_entries and accept_age in
 * a shape, without over = queue. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "ctl/ctl.h"
#include "lib/base/mem.h"
#include "ctl/out.h"
#include "ctl/row.h"

/* per byte of mail: measured 1.01 to 1.16 with mails of 300 bytes to 60 kB (jemalloc rounds some
 * sizes up more than others) */
#define FACTOR 1.2

struct sample {
    double at;
    long long bytes, pushes;
};

/* The number behind "name:" in INFO's text, -1 when it is not there. */
static long long info_number(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? atoll(at + strlen(name)) : -1;
}

static struct sample look(struct conn *c)
{
    struct sample s = {clock_monotonic(), -1, 0};
    redisReply *r = conn_call(c, "INFO stats");
    if (r && r->str)
        s.bytes = info_number(r->str, "total_net_input_bytes:");
    if (r)
        freeReplyObject(r);
    r = conn_call(c, "INFO commandstats");
    if (r && r->str) {
        s.pushes = info_number(r->str, "cmdstat_LANE.PUSH:calls=");
        if (s.pushes < 0)
            s.pushes = info_number(r->str, "cmdstat_lane.push:calls=");
        if (s.pushes < 0)
            s.pushes = 0;
    }
    if (r)
        freeReplyObject(r);
    return s;
}

/* ---- text ---- */

/* No member: it does not fill at this rate. */
static void show_time(const json_t *row, const char *key)
{
    double seconds = row_has(row, key) ? row_get_real(row, key) : 1e12;
    if (seconds <= 0)
        out("%10s", "now");
    else if (seconds > 86400. * 30)
        out("%10s", "> 30 d");
    else if (seconds >= 7200)
        out("%8.1f h", seconds / 3600);
    else if (seconds >= 120)
        out("%6.1f min", seconds / 60);
    else
        out("%8.0f s", seconds);
}

static void show_node(const json_t *row)
{
    const char *node = row_get_text(row, "node");
    if (!row_has(row, "mails_per_second")) {
        out("%-16s it was restarted meanwhile, or tells no numbers\n", node);
        return;
    }
    out("%-16s %9.1f %9.1f %9.1f %8.1f", node, row_get_real(row, "used_bytes") / 1048576.,
        row_get_real(row, "maxmemory_bytes") / 1048576.,
        row_get_real(row, "received_bytes_per_second") / 1024.,
        row_get_real(row, "mails_per_second"));
    if (!row_has(row, "maxmemory_bytes")) {
        out("  no maxmemory: until the host has none left\n");
        return;
    }
    show_time(row, "to_spill_seconds");
    show_time(row, "to_full_seconds");
    out("\n");
}

static const struct out_kind nodes = {"nodes", show_node};

/* ---- rows ---- */

static void add_left(json_t *row, const char *key, double room, double rate)
{
    if (room <= 0 || rate > 0)
        row_add_real(row, key, room <= 0 ? 0 : room / rate);
}

static void print_node(struct ctl *ctl, struct conn *c, const struct sample *a,
                       const struct sample *b)
{
    double seconds = b->at - a->at, rate = (double)(b->bytes - a->bytes) / seconds;
    json_t *row = row_new();
    row_add_text(row, "node", c->name);
    if (a->bytes < 0 || b->bytes < a->bytes) {
        ctl_status(ctl, STATUS_LOOK);
        out_row(&nodes, row);
        return;
    }
    row_add_number(row, "used_bytes", c->used);
    row_add_real(row, "received_bytes_per_second", rate);
    row_add_real(row, "mails_per_second", (double)(b->pushes - a->pushes) / seconds);
    if (c->most > 0) {
        row_add_number(row, "maxmemory_bytes", c->most);
        double spills = (double)c->most * (double)ctl->config->spill_above / 100.;
        add_left(row, "to_spill_seconds", spills - (double)c->used, rate * FACTOR);
        add_left(row, "to_full_seconds", (double)(c->most - c->used), rate * FACTOR);
    } else {
        ctl_status(ctl, STATUS_LOOK);
    }
    out_row(&nodes, row);
}

const struct option capacity_options[] = {
    {"seconds", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {0}};

void capacity_command(struct ctl *ctl, int argc, char **argv)
{
    double seconds = 10;
    char *end;
    int o;
    while ((o = getopt_long(argc, argv, "s:jh", capacity_options, NULL)) != -1) {
        if (o == 's') {
            seconds = strtod(optarg, &end);
            if (*end || !(seconds >= 0.1 && seconds <= 3600))
                ctl_usage("--seconds %s: 0.1 to 3600", optarg);
        } else if (o == 'j') {
            out_choose_json(true);
        } else if (o == 'h') {
            puts("usage: dovelane capacity [--seconds N]\n"
                 "How long memory lasts if every next hop stopped now, and mail came as during the "
                 "next N (10) seconds.\n"
                 "time = (room) / (bytes per second into the node's Redis x 1.2).\n"
                 "to spill: until spill_above percent are used. Then the oldest mail begins to go "
                 "to Postfix's queue.\n"
                 "to full: until memory is full. Then new mail goes there at once.\n"
                 "No mail is refused, unless the configuration asks for that (4xx): "
                 "on_store_failure = tempfail,\n"
                 "or accept_entries and accept_age in a shape.");
            return;
        } else
            ctl_usage("see `dovelane capacity --help`");
    }
    if (optind != argc)
        ctl_usage("capacity: %s is no option", argv[optind]);
    static const char *const lists[] = {"nodes", NULL};
    out_begin("capacity/1", lists);
    ctl_connect(ctl);
    struct sample *before = mem_zero((ctl->nconns + 1) * sizeof *before);
    for (size_t i = 0; i < ctl->nconns; i++)
        before[i] = look(&ctl->conn[i]);
    usleep((useconds_t)(seconds * 1e6));
    out("%-16s %9s %9s %9s %8s%10s%10s\n", "node", "used MB", "of MB", "kB/s", "mails/s",
        "to spill", "to full");
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct sample after = look(&ctl->conn[i]);
        if (conn_up(&ctl->conn[i]))
            print_node(ctl, &ctl->conn[i], &before[i], &after);
    }
    free(before);
}
