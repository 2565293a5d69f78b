/* answers - status, peers, lag and join as rows. */
#include "dovecot-plugin/replicator/admin/answers.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/workers/worker.h"

#define BAR 20 /* characters */

typedef unsigned long long number;

static double age(int64_t since)
{
    return since ? (double)(clock_wall() - since) / 1e6 : 0.;
}

static const char *peer_state(const struct replicator *r, size_t peer)
{
    if (r->group.peer[peer].removed)
        return "removed";
    return !inbox_node(r->inbox, peer)     ? "down"
           : inbox_foreign(r->inbox, peer) ? "other group"
                                           : "up";
}

/* ---- status, peers ---- */

static void status_here(struct replicator *r, struct buf *rows)
{
    buf_printf(rows, "+%s\t%llu\t%s\t-\t%zu in memory, %zu wait\t-\t", r->group.name,
               (number)r->group.self, outbox_node(r->outbox) ? "up" : "down", users_count(r->users),
               sched_waiting(r->sched));
    buf_printf(rows, "%zu of %lld workers busy\t%s\n", workers_count(r->workers),
               (long long)r->config->replicator_workers,
               sweep_running(r->sweep) ? "here, sweeping" : "here");
}

const char *answer_status(struct replicator *r, struct buf *rows)
{
    double now = clock_monotonic();
    status_here(r, rows);
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        uint64_t users, ops;
        int64_t since, waiting = outbox_waiting(r->outbox, i);
        double heard = inbox_heard(r->inbox, i);
        char lane[24], ago[32];
        ledger_totals(r->ledger, p->site, &users, &ops, &since);
        snprintf(lane, sizeof lane, "%lld", (long long)waiting);
        snprintf(ago, sizeof ago, "%.1fs", now - heard);
        buf_printf(rows, "+%s\t%llu\t%s\t%s\t%llu\t%llu\t%.1fs\t%s\n", p->name, (number)p->site,
                   peer_state(r, i), waiting < 0 ? "?" : lane, (number)users, (number)ops,
                   age(since), heard == 0 ? "never" : ago);
    }
    return "replica\tsite\tnode\tin lane\tusers\tchanges\toldest\theard";
}

const char *answer_peers(struct replicator *r, struct buf *rows)
{
    buf_printf(rows, "+%s\t%llu\t%s\t%s\n", r->group.name, (number)r->group.self,
               r->group.link.address, outbox_node(r->outbox) ? "here" : "here, down");
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        buf_printf(rows, "+%s\t%llu\t%s\t%s\n", p->name, (number)p->site, p->link.address,
                   peer_state(r, i));
    }
    return "replica\tsite\tredis\tstate";
}

/* ---- lag ---- */

const char *answer_lag(struct replicator *r, struct buf *rows)
{
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        uint64_t users, ops;
        int64_t since;
        ledger_totals(r->ledger, p->site, &users, &ops, &since);
        buf_printf(rows, "+%s\t%llu\t%llu\t%llu\t%.1f\n", p->name, (number)p->site, (number)users,
                   (number)ops, age(since));
    }
    return "replica\tsite\tusers\tchanges\toldest";
}

const char *answer_lag_user(struct replicator *r, const char *name, const char *before,
                            struct buf *rows)
{
    struct user *u = user_find(r->users, name, strlen(name));
    uint64_t unplaced, held;
    ledger_get_waiting(r->ledger, name, &unplaced, &held);
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        uint64_t ops;
        int64_t since;
        ledger_get_unconfirmed(r->ledger, p->site, name, &ops, &since);
        buf_printf(rows, "+%s%s\t%llu\t%llu\t%.1f\t%s\t%llu\t%llu\t%zu\n", before, p->name,
                   (number)p->site, (number)ops, age(since), u && u->peer[i].behind ? "yes" : "no",
                   (number)unplaced, (number)held, u ? u->nparcels : 0);
    }
    return "replica\tsite\tchanges\toldest\tbehind\tunplaced\theld\tparcels";
}

/* ---- forget ---- */

struct untold {
    struct buf *rows;
    const char *replica;
    char *last;
};

static void untold_row(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct untold *t = arg;
    (void)ops;
    buf_printf(t->rows, "+%s\t%s\t%.0fs\n", name, t->replica, age(since));
    free(t->last);
    t->last = mem_strdup(name);
}

const char *answer_forget(struct replicator *r, struct buf *rows)
{
    for (size_t i = 0; i < r->group.npeers; i++) {
        struct untold t = {rows, r->group.peer[i].name, mem_strdup("")};
        while (ledger_each_untold(r->ledger, r->group.peer[i].site, t.last, 1000, untold_row, &t) ==
               1000)
            ;
        free(t.last);
    }
    return "user\tnot known to\tsince";
}

/* ---- join --status ---- */

/* Hours, minutes, seconds. */
static void time_text(const struct progress_row *row, char *text, size_t size)
{
    double left = row->left ? (double)row->left / row->rate : 0;
    number s = left < 1e9 ? (number)left : 0;
    bool never = row->left && (row->rate <= 0 || left > 1e9);
    if (!row->known || never || (row->more && !row->left))
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%llu:%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
                 (unsigned)(s % 60));
}

/* 100 % is all of it, and nothing less. */
static void bar_text(const struct progress_row *row, char *text, size_t size)
{
    static const char full[] = "####################", empty[] = "--------------------";
    double all = (double)row->done + (double)row->left;
    double part = all > 0 ? (double)row->done / all : row->more ? 0 : 1;
    int percent = row->left == 0 && !row->more ? 100 : part < 0.99 ? (int)(part * 100) : 99;
    percent = row->known ? percent : 0;
    int n = percent * BAR / 100;
    snprintf(text, size, "[%.*s%.*s] %d %%", n, full, BAR - n, empty, percent);
}

/* digits: of the rate, behind the point. */
static void join_row(struct buf *rows, const char *what, const struct progress_row *row, int digits)
{
    char left[24] = "-", time[32], bar[BAR + 32];
    if (row->known)
        snprintf(left, sizeof left, "%llu", (number)row->left);
    time_text(row, time, sizeof time);
    bar_text(row, bar, sizeof bar);
    buf_printf(rows, "+%s\t%llu\t%s\t%.*f/s\t%s\t%s\n", what, (number)row->done, left, digits,
               row->rate, time, bar);
}

const char *answer_join(struct replicator *r, struct buf *rows)
{
    struct progress_row row[PROGRESS_KINDS];
    progress_rows(r->progress, !r->first || !sweep_is_listing(r->sweep), row);
    join_row(rows, "users", &row[PROGRESS_USERS], 1);
    join_row(rows, "mails", &row[PROGRESS_MAILS], 1);
    join_row(rows, "bytes", &row[PROGRESS_BYTES], 0);
    return "what\tdone\tleft\trate\ttime left\tprogress";
}

const char *answer_join_user(struct replicator *r, const char *name, const char *before,
                             struct buf *rows)
{
    uint64_t left;
    const char *state = progress_of(r, name, user_find(r->users, name, strlen(name)), &left);
    if (state)
        buf_printf(rows, "+%s%s\t%llu\n", before, state, (number)left);
    return state ? "state\tmails left" : NULL;
}
