/* answers - status, peers, lag and join as rows. */
#include "dovecot-plugin/replicator/admin/answers.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/users/hints.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/claims.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/workers/worker.h"

#define BAR 20 /* characters */

typedef unsigned long long number;

/* What is not known, or there is nothing of, is a dash: 0 means that somebody counted. */
#define CELL 32

static const char *count_text(uint64_t n, bool counted, char text[CELL])
{
    snprintf(text, CELL, counted || n ? "%llu" : "-", (number)n);
    return text;
}

/* unit: behind the number. */
static const char *age_text(int64_t since, const char *unit, char text[CELL])
{
    if (since)
        snprintf(text, CELL, "%.1f%s", (double)(clock_wall() - since) / 1e6, unit);
    else
        snprintf(text, CELL, "-");
    return text;
}

static const char *peer_state(const struct replicator *r, size_t peer)
{
    if (r->group.peer[peer].removed)
        return "removed";
    return !inbox_node(r->inbox, peer)     ? "down"
           : inbox_foreign(r->inbox, peer) ? "other group"
                                           : "up";
}

struct totals {
    char users[CELL], changes[CELL], oldest[CELL];
};

/* A user whose mailboxes have not been compared with the other sites' may have any number. */
static void total(struct replicator *r, const struct peer *p, const char *unit, struct totals *t)
{
    uint64_t users, ops, all, joined;
    int64_t since;
    ledger_count(r->ledger, &all, &joined);
    bool read = ledger_totals(r->ledger, p->site, &users, &ops, &since);
    bool counted =
        read && !p->removed && all == joined && (!r->first || !sweep_is_listing(r->sweep));
    count_text(users, counted, t->users);
    count_text(ops, counted, t->changes);
    age_text(since, unit, t->oldest);
}

/* ---- status, peers ---- */

static void status_here(struct replicator *r, struct buf *rows)
{
    buf_printf(rows, "+%s\t%llu\t%s\t-\t%zu in memory, %zu wait\t-\t", r->group.name,
               (number)r->group.self, outbox_node(r->outbox) ? "up" : "down", users_count(r->users),
               sched_waiting(r->sched));
    buf_printf(rows, "%zu of %lld workers busy\t%s", workers_count(r->workers),
               (long long)r->config->replicator_workers,
               claims_refused(r->claims) ? "here, refused"
               : sweep_running(r->sweep) ? "here, sweeping"
                                         : "here");
    if (r->group.backup)
        buf_printf(rows, ", backup");
    if (r->group.on_demand)
        buf_printf(rows, ", on-demand");
    if (r->group.backup && hints_at_backup(r->hints) > 0)
        buf_printf(rows, ": %llu changes by clients", hints_at_backup(r->hints));
    buf_printf(rows, "\n");
}

const char *answer_status(struct replicator *r, struct buf *rows)
{
    double now = clock_monotonic();
    status_here(r, rows);
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        int64_t waiting = outbox_waiting(r->outbox, i);
        double heard = inbox_heard(r->inbox, i);
        char lane[24], ago[32];
        struct totals t;
        total(r, p, "s", &t);
        snprintf(lane, sizeof lane, "%lld", (long long)waiting);
        snprintf(ago, sizeof ago, "%.1fs", now - heard);
        buf_printf(rows, "+%s\t%llu\t%s\t%s\t%s\t%s\t%s\t%s\n", p->name, (number)p->site,
                   peer_state(r, i), waiting < 0 ? "?" : lane, t.users, t.changes, t.oldest,
                   heard == 0 ? "never" : ago);
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
        struct totals t;
        total(r, p, "", &t);
        buf_printf(rows, "+%s\t%llu\t%s\t%s\t%s\n", p->name, (number)p->site, t.users, t.changes,
                   t.oldest);
    }
    return "replica\tsite\tusers\tchanges\toldest";
}

const char *answer_lag_user(struct replicator *r, const char *name, const char *before,
                            struct buf *rows)
{
    struct user *u = user_find(r->users, name, strlen(name));
    uint64_t unplaced, held;
    char placing[CELL], holding[CELL];
    if (!ledger_knows(r->ledger, name))
        return NULL;
    bool joined = ledger_has_joined(r->ledger, name),
         read = ledger_get_waiting(r->ledger, name, &unplaced, &held);
    count_text(unplaced, joined && read, placing);
    count_text(held, joined && read, holding);
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        uint64_t ops;
        int64_t since;
        char changes[CELL], oldest[CELL];
        read = ledger_get_unconfirmed(r->ledger, p->site, name, &ops, &since);
        count_text(ops, joined && read && !p->removed, changes);
        buf_printf(rows, "+%s%s\t%llu\t%s\t%s\t%s\t%s\t%s\t%zu\n", before, p->name, (number)p->site,
                   changes, age_text(since, "", oldest),
                   u && u->peer[i].behind ? "yes"
                   : u && joined          ? "no"
                                          : "-",
                   placing, holding, u ? u->nparcels : 0);
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
    char told[CELL];
    buf_printf(t->rows, "+%s\t%s\t%s\n", name, t->replica, age_text(since, "s", told));
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
