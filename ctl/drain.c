/* dovelane drain --to-postfix - empties every lane into Postfix's own queue.
 *
 * The relays do it (relay/intake/spill_to_postfix.h): while CONTROL_DRAIN stands in their Redis
 * they deliver nothing and give everything to reinject_port instead, acked after its 250. This
 * command turns diverting off, keeps that key alive, and watches. The key ends by itself a few
 * seconds after we do, so a drain that was interrupted, however, leaves nothing but some mail in
 * Postfix's queue and the rest in its lanes, to be delivered as before. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/mail/disk_question.h"
#include "lib/base/clock.h"
#include "ctl/divert.h"
#include "lib/base/log.h"
#include "ctl/out.h"
#include "ctl/match_options.h"
#include "ctl/row.h"
#include "lib/redis/control_keys.h"

/* milliseconds that the key outlives us; longer than a node that hangs can hold us up */
#define KEEP "15000"
#define LOOK 0.5 /* seconds between two looks */
#define LINE 5.  /* seconds between two lines where there is no terminal */
/* seconds without any progress, beyond the time for which mail must rest before it may be
 * spilled */
#define STALLED 30.
/* seconds between two attempts to reach a node that does not answer, and for which it is waited
 * for at the end */
#define BACK 10.
#define BAR 30

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = 1;
}

/* Mails in lanes, each counted once: the longest copy of each lane. */
struct count {
    size_t n;
    struct lane_count {
        char *name;
        long long length;
    } * lane;
};

static void count_lane(struct count *c, const char *name, long long length)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->lane[i].name, name)) {
            if (length > c->lane[i].length)
                c->lane[i].length = length;
            return;
        }
    c->lane = mem_grow(c->lane, (c->n + 1) * sizeof *c->lane);
    c->lane[c->n++] = (struct lane_count){mem_strdup(name), length};
}

/* Nodes whose connection was lost are tried again, now and then. */
static void reach_all(struct ctl *ctl)
{
    static double last;
    double now = clock_monotonic();
    if (now - last < BACK)
        return;
    last = now;
    for (size_t i = 0; i < ctl->nconns; i++)
        if (!conn_up(&ctl->conn[i]))
            conn_open(&ctl->conn[i], ctl->config, i);
}

/* all_r: every node has answered. What is on one that has not is nowhere counted. */
static long long count_mails(struct ctl *ctl, bool *all_r)
{
    struct count c = {0};
    long long all = 0;
    *all_r = true;
    reach_all(ctl);
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *r =
            conn_call(&ctl->conn[i], "LANE.LIST 0 MATCH " LANENAME_PREFIX "* COUNT 100000");
        const redisReply *list = conn_shaped(r, "?l") ? r->element[1] : NULL;
        *all_r &= list != NULL;
        for (size_t k = 0; list && k + 2 < list->elements; k += 3)
            if (list->element[k]->type == REDIS_REPLY_STRING &&
                !lanename_of_replicas(list->element[k]->str) && !disk_lane(list->element[k]->str))
                count_lane(&c, list->element[k]->str, list->element[k + 1]->integer);
        if (r)
            freeReplyObject(r);
    }
    for (size_t i = 0; i < c.n; i++) {
        all += c.lane[i].length;
        free(c.lane[i].name);
    }
    free(c.lane);
    return all;
}

static void keep(struct ctl *ctl, bool on)
{
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *r =
            on ? conn_call(&ctl->conn[i], "EVAL %s 1 " CONTROL_DRAIN " " KEEP, CONTROL_KEEP)
               : conn_call(&ctl->conn[i], "DEL " CONTROL_DRAIN);
        if (r)
            freeReplyObject(r);
    }
}

/* ---- showing ---- */

static bool terminal;

static void show_progress(const json_t *row)
{
    char bar[BAR + 1];
    long long first = row_get_number(row, "mails"), done = row_get_number(row, "given");
    double seconds = row_get_real(row, "seconds");
    int full = first > 0 ? (int)(BAR * done / first) : BAR;
    memset(bar, ' ', BAR);
    memset(bar, '#', (size_t)full);
    bar[BAR] = '\0';
    fputs(terminal ? "\r" : "", stderr);
    out_error("[%s] %lld of %lld mail%s, %.0f/s", bar, done, first,
              ctl_s((unsigned long long)first), seconds > 0 ? (double)done / seconds : 0.);
    fputs(terminal ? "   " : "\n", stderr);
    fflush(stderr);
}

static void show_end(const json_t *row)
{
    long long n = row_get_number(row, "mails");
    if (row_get_is(row, "empty"))
        out("%lld mail%s given to Postfix's queue; the lanes are empty; diverting is off.\n", n,
            ctl_s((unsigned long long)n));
}

static const struct out_kind progress = {NULL, show_progress}, end = {NULL, show_end};

static json_t *event(const char *name, long long first, long long left, double seconds)
{
    json_t *row = row_new();
    row_add_text(row, "event", name);
    row_add_number(row, "mails", first);
    row_add_number(row, "given", first - left > 0 ? first - left : 0);
    row_add_number(row, "left", left);
    row_add_real(row, "seconds", seconds);
    return row;
}

static bool is_retained(const struct item *item)
{
    return !item->wrong && envelope_is_retained(&item->envelope);
}

static void explain_rest(struct ctl *ctl)
{
    struct queue q;
    size_t held = 0, unreadable = 0, retained = 0;
    queue_load(ctl, &q);
    for (size_t i = 0; i < q.n; i++) {
        bool kept = is_retained(&q.item[i]);
        retained += kept;
        held += !kept && (q.item[i].envelope.marks & ENVELOPE_HELD) != 0;
        unreadable += q.item[i].wrong != NULL;
    }
    size_t other = q.n - held - unreadable - retained;
    if (retained)
        out_error("dovelane: %zu mail%s %s delivered, and stay%s in lanes until enough sites have "
                  "them on disk (docs/two-disks.md)\n",
                  retained, ctl_s(retained), retained == 1 ? "is" : "are",
                  retained == 1 ? "s" : "");
    out_error(
        "dovelane: %zu mail%s left in lanes: %zu held (`dovelane requeue` takes them along), %zu "
        "unreadable, %zu other%s.%s\n",
        q.n, ctl_s(q.n), held, unreadable, other, ctl_s(other),
        other ? " Look at the relays' logs: does reinject_port take them, does a "
                "relay run on the first owner's node, or is that in `dead`?"
              : "");
    queue_free(&q);
}

static long long left_but_held(struct ctl *ctl, long long left)
{
    struct queue q;
    queue_load(ctl, &q);
    for (size_t i = 0; i < q.n; i++)
        if ((q.item[i].envelope.marks & ENVELOPE_HELD) || is_retained(&q.item[i]))
            left--;
    queue_free(&q);
    return left;
}

static void drain(struct ctl *ctl)
{
    double rest = (double)(ctl->config->settle + ctl->config->revoke_wait) / 1000.,
           began = clock_monotonic(), moved = began, line = 0.;
    bool all;
    long long first = count_mails(ctl, &all), left = first, least = first;
    /* what a milter had begun with is in a lane then, or never */
    double storing = 2 * (double)ctl->config->store_deadline / 1000.;
    while (!interrupted) {
        keep(ctl, true);
        left = count_mails(ctl, &all);
        double now = clock_monotonic();
        if (left > first)
            /* what was on its way into lanes when diverting ended, or a node that is back holds */
            first = left;
        if (left != least) {
            least = left;
            moved = now;
        }
        bool empty = !left && now - began >= storing;
        if (all && (terminal || now - line >= LINE || empty)) {
            line = now;
            out_row(&progress, event("progress", first, left, now - began));
            fflush(stdout);
        }
        if ((empty && all) || now - moved > (empty ? BACK + 2. : rest + STALLED) ||
            (left && all && now - moved > 2. && left_but_held(ctl, left) <= 0))
            break;
        usleep((useconds_t)(LOOK * 1e6));
    }
    keep(ctl, false);
    if (terminal)
        fputs("\n", stderr);
    json_t *row = event("end", first, left, clock_monotonic() - began);
    row_add_is(row, "empty", !left && all);
    row_add_is(row, "interrupted", interrupted);
    out_row(&end, row);
    ctl_log(
        ctl,
        "drain --to-postfix ended: %lld mail%s given to Postfix's queue, %lld left in lanes%s%s",
        first - left, ctl_s((unsigned long long)(first - left)), left,
        all ? "" : ", as far as the nodes that answer know", interrupted ? ", interrupted" : "");
    if (!left && all)
        return;
    if (interrupted)
        out_error("dovelane: interrupted: what is left is delivered from its lanes as before; "
                  "diverting is still off\n");
    for (size_t i = 0; i < ctl->nconns; i++)
        if (!conn_up(&ctl->conn[i]))
            out_error("dovelane: node %s (%s): %s: what only it holds is not in Postfix's queue; "
                      "repeat the command when it is back\n",
                      ctl->conn[i].name, ctl->conn[i].address, ctl->conn[i].trouble);
    explain_rest(ctl);
    ctl_status(ctl, STATUS_LOOK);
}

void drain_command(struct ctl *ctl, int argc, char **argv)
{
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        puts("usage: dovelane drain --to-postfix\n"
             "Turns diverting off, then has every relay give what lies in its lanes to Postfix's "
             "own queue (reinject_port). Nothing is delivered from lanes\n"
             "meanwhile. Each mail leaves memory only after Postfix has it on disk. Can be "
             "interrupted and repeated. Held mail stays where it is.");
        return;
    }
    if (argc != 2 || strcmp(argv[1], "--to-postfix"))
        ctl_usage("usage: dovelane drain --to-postfix");
    if (!*ctl->config->reinject_port)
        ctl_usage("reinject_port is empty in %s: there is no way back into Postfix's queue (admin "
                  "guide, \"Postfix: two settings and two ports\")",
                  ctl->config_path);
    terminal = isatty(STDERR_FILENO) && !out_is_json();
    ctl_connect(ctl);
    char *caller = ctl_caller();
    ctl_log(ctl, "drain --to-postfix by %s", caller);
    free(caller);
    int status = ctl->status;
    if (!divert_say(ctl, false))
        ctl_usage("a milter does not obey `divert off`: what it diverts would never end; nothing "
                  "is drained");
    out_begin_lines("drain/1"); /* what divert_say printed is none of it */
    ctl->status = status;       /* no milter at all is no trouble here */
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    drain(ctl);
}
