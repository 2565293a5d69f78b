/* gauges - sets each peer's lag, backlog and lanes when a scraper asks. */
#include "dovecot-plugin/replicator/admin/gauges.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "dovecot-plugin/replicator/lanes/claims.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/users/user.h"
#include "lib/base/metrics.h"
#include "lib/daemon/metrics_http.h"

static void set(enum metric m, const char *peer, long long n)
{
    metric_series_set(metric_series(m, peer, NULL), n);
}

static void see_peer(const struct replicator *r, size_t i)
{
    const struct peer *p = &r->group.peer[i];
    uint64_t users, ops;
    int64_t since, waiting = outbox_waiting(r->outbox, i);
    double heard = inbox_heard(r->inbox, i);
    bool counted = ledger_totals(r->ledger, p->site, &users, &ops, &since);
    set(METRIC_replica_up, p->name,
        !p->removed && inbox_node(r->inbox, i) && !inbox_foreign(r->inbox, i));
    set(METRIC_replica_lag_seconds, p->name,
        !counted ? METRIC_UNKNOWN
        : since  ? clock_wall() - since
                 : 0);
    set(METRIC_replica_unconfirmed_users, p->name, counted ? (long long)users : METRIC_UNKNOWN);
    set(METRIC_replica_unconfirmed_changes, p->name, counted ? (long long)ops : METRIC_UNKNOWN);
    set(METRIC_replica_lane_entries, p->name, waiting < 0 ? METRIC_UNKNOWN : waiting);
    set(METRIC_replica_heard_seconds, p->name,
        heard == 0 ? METRIC_UNKNOWN : (long long)((clock_monotonic() - heard) * 1e6));
}

struct seen {
    double now;
    long long refused, behind;
    uint64_t state_bytes, state_most;
};

static void see_user(struct user *u, void *arg)
{
    struct seen *s = arg;
    bool behind = false;
    s->refused += s->now < u->unknown_until;
    for (size_t i = 0; i < u->r->group.npeers; i++)
        behind = behind || u->peer[i].behind;
    s->behind += behind;
    s->state_bytes += u->state_bytes;
    s->state_most = u->state_bytes > s->state_most ? u->state_bytes : s->state_most;
}

static long long state_bytes(const struct replicator *r)
{
    static const char *const behind[] = {"", "-wal"};
    long long bytes = 0;
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        char *path = mem_printf("%s/replicator.db%s", r->directory, behind[i]);
        struct stat st;
        bytes += stat(path, &st) == 0 ? (long long)st.st_size : 0;
        free(path);
    }
    return bytes;
}

static void collect(void *arg)
{
    struct replicator *r = arg;
    struct seen seen = {.now = clock_monotonic()};
    for (size_t i = 0; i < r->group.npeers; i++)
        see_peer(r, i);
    users_each(r->users, see_user, &seen);
    metric_series_set(metric_series(METRIC_replicator_refused_users, NULL, NULL), seen.refused);
    metric_series_set(metric_series(METRIC_replicator_behind_users, NULL, NULL), seen.behind);
    metric_series_set(metric_series(METRIC_replicator_users_state_bytes, NULL, NULL),
                      (long long)seen.state_bytes);
    metric_series_set(metric_series(METRIC_replicator_largest_state_bytes, NULL, NULL),
                      (long long)seen.state_most);
    metric_series_set(metric_series(METRIC_replicator_state_bytes, NULL, NULL), state_bytes(r));
    metrics_http_collected();
}

static const char *ready(void *arg)
{
    const struct replicator *r = arg;
    return r->stopping                 ? "it is being stopped"
           : !outbox_node(r->outbox)   ? "the node's server cannot be reached"
           : claims_refused(r->claims) ? "another host runs under this replica's name"
                                       : NULL;
}

void replicator_gauges_open(struct replicator *r)
{
    metrics_http_start(&(struct metrics_http){.loop = r->loop,
                                              .program = "dovelane-replicator",
                                              .ready = ready,
                                              .collect = collect,
                                              .arg = r},
                       r->config);
}
