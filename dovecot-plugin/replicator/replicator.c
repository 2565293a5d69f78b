/* replicator - makes the parts, joins them by callbacks, and runs them in each turn of the loop. */
#include "dovecot-plugin/replicator/replicator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/admin/admin.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/replicator_dir.h"
#include "lib/redis/endpoint.h"
#include "dovecot-plugin/replicator/users/arrivals.h"
#include "dovecot-plugin/replicator/users/commits.h"
#include "dovecot-plugin/replicator/users/hints.h"
#include "dovecot-plugin/replicator/users/holders.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "dovecot-plugin/replicator/lanes/asked.h"
#include "dovecot-plugin/replicator/users/pace.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/users/fetches.h"
#include "dovecot-plugin/replicator/users/questions.h"
#include "dovecot-plugin/store/reserve.h"
#include "dovecot-plugin/replicator/users/resend.h"
#include "dovecot-plugin/replicator/users/retire.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/claims.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/users/unproven.h"
#include "dovecot-plugin/replicator/workers/worker.h"

#define GRACE 8.  /* seconds that workers have to close their users */
#define LOOK 0.02 /* seconds */

/* Numbers that were reserved before the host's last boot may be gone from a state (reserve.h). */
static uint64_t boot_hash(void)
{
    char id[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof id);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        log_fatal("/proc/sys/kernel/random/boot_id: %s: without it nobody can tell whether the "
                  "host was started anew",
                  strerror(errno));
    return orset_hash(id, (size_t)n).lo;
}

/* Its number, its start and the boot: a number comes again. Where that cannot be read, each
 * start is under another one. */
static uint64_t parent_hash(uint64_t boot)
{
    char path[40], stat[512], text[128], *at = NULL, *state = stat;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)getppid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0)
        close(fd);
    stat[n > 0 ? n : 0] = '\0';
    /* the end of its name; its start is 20 fields behind it (proc(5)) */
    state = strrchr(stat, ')');
    for (int i = 0; state && i < 20; i++)
        state = strchr(state + 1, ' ');
    if (state)
        at = state + 1, at[strcspn(at, " ")] = '\0';
    snprintf(text, sizeof text, "%llu %ld %.40s", (unsigned long long)boot, (long)getppid(),
             at ? at : "");
    if (!at)
        snprintf(text, sizeof text, "%lld", (long long)clock_wall());
    return orset_hash(text, strlen(text)).lo;
}

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)t, (void)events; /* the turn does it */
}

/* Workers come free by time, too, without a timer of their own: one that is held no longer, the
 * next attempt to connect. */
static void look_again(struct replicator *r)
{
    bool waits = !r->stopping && sched_waiting(r->sched) + sched_unknown(r->sched) > 0;
    if (!waits)
        ev_timer_stop(r->loop, &r->look);
    else if (!ev_is_active(&r->look))
        ev_timer_again(r->loop, &r->look);
}

static void on_turn(struct ev_loop *loop, ev_prepare *p, int events)
{
    (void)loop, (void)events;
    struct replicator *r = p->data;
    inbox_run(r->inbox);
    retire_run(r->retire);
    questions_run(r->questions);
    commits_run(r->commits);
    ledger_commit_seen(r->ledger);
    if (sweep_wants_list(r->sweep) && workers_list_users(r->workers))
        sweep_list_asked(r->sweep);
    if (r->asked_for != r->told_asked_for) /* HELLO says it */
        workers_renew(r->workers);
    r->told_asked_for = r->asked_for;
    workers_run(r->workers);
    look_again(r);
    admin_run(r->admin);
    inbox_flush(r->inbox);
    workers_flush(r->workers);
    if (r->stopping && r->stopped && !workers_busy(r->workers) && !outbox_pending(r->outbox)) {
        void (*stopped)(void *) = r->stopped;
        r->stopped = NULL;
        stopped(r->stopped_arg);
    }
}

static void on_grace(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct replicator *r = t->data;
    log_warning("stopping: %zu workers had not closed their users after %g s",
                workers_busy(r->workers), GRACE);
    if (r->stopped)
        r->stopped(r->stopped_arg);
    r->stopped = NULL;
}

/* Reasons to look that nobody has followed yet outlive a stop; a crash is followed by a sweep of
 * all. So do users whose states are new or whose mails wait: their worker's wish to go on is
 * known to this run alone. */
static void keep_reasons(struct user *u, void *arg)
{
    struct replicator *r = arg;
    bool fills = u->known && (u->joining == FRAME_JOINING || u->unplaced > 0);
    if (user_has_reason(u) || u->sweep || fills)
        ledger_look(r->ledger, u->name);
}

static void kept_reason(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct replicator *r = arg;
    struct user *u = user_get(r->users, name, strlen(name));
    (void)ops, (void)since;
    if (u)
        user_look(u, "", "", 0);
}

/* The number of this replicator.db: another one is of another host, or begun anew. */
static uint64_t instance_of(struct replicator *r)
{
    uint64_t n = ledger_noted(r->ledger, "instance");
    if (n)
        return n;
    if (getrandom(&n, sizeof n, 0) != sizeof n)
        log_fatal("getrandom: %s", strerror(errno));
    n = n >> 1 | 1; /* SQLite's are signed */
    ledger_note(r->ledger, "instance", n);
    return n;
}

static void may_use(struct replicator *r, size_t node)
{
    if (node != CLAIM_OWN)
        return;
    outbox_go(r->outbox);
    asked_go(r->asked);
}

struct replicator *replicator_open(struct ev_loop *loop, const struct config *c, size_t self,
                                   const char *worker_socket)
{
    struct replicator *r = mem_zero(sizeof *r);
    char *error;
    uint64_t boot = boot_hash();
    r->loop = loop;
    r->config = c;
    r->parent = parent_hash(boot);
    endpoint_replica(c->replica[self].name);
    group_init(&r->group, c, self);
    r->directory =
        replicator_dir_find(c->replicator_dir, REPLICATOR_DIR_OWN, REPLICATOR_DIR_OLDER, &error);
    if (!r->directory) {
        log_error("%s", error);
        free(error);
        replicator_close(r);
        return NULL;
    }
    char *path = mem_printf("%s/reserve", r->directory);
    if (reserve_open(&r->reserve, path, boot) < 0) {
        bool broken = errno == EILSEQ;
        log_error("%s: %s", path, broken ? "is no file of reserved numbers" : strerror(errno));
        if (!broken)
            log_error("the directory %s must be there and belong to this user: `systemd-sysusers "
                      "&& systemd-tmpfiles --create` makes it",
                      r->directory);
    }
    free(path);
    r->ledger = r->reserve ? ledger_open(r) : NULL;
    if (!r->ledger) {
        replicator_close(r);
        return NULL;
    }
    r->progress = progress_open(r);
    r->pace = pace_open(r);
    r->unproven = unproven_open(r);
    r->retire = retire_open(r);
    r->users = users_open(r);
    r->questions = questions_open(r);
    r->fetches = fetches_open(r);
    r->commits = commits_open(r);
    r->told_asked_for = r->asked_for;
    r->sched = sched_open(r);
    r->holders = holders_open();
    r->workers = workers_open(r, worker_socket);
    r->resend = resend_open(r);
    static const struct claims_calls claims = {may_use};
    r->claims = claims_open(r, instance_of(r), &claims);
    r->outbox = outbox_open(r, &arrivals_from_outbox);
    r->inbox = inbox_open(r, &arrivals_from_inbox);
    r->asked = asked_open(r, &questions_from_asked);
    r->hints = hints_open(r);
    r->sweep = sweep_open(r);
    r->admin = admin_open(r);
    ledger_looks(r->ledger, kept_reason, r);
    ev_prepare_init(&r->turn, on_turn);
    r->turn.data = r;
    ev_prepare_start(loop, &r->turn);
    ev_timer_init(&r->look, on_look, LOOK, LOOK);
    ev_timer_init(&r->grace, on_grace, GRACE, 0.);
    r->grace.data = r;
    char digest[DIGEST_HEX];
    group_hex(r->group.digest, digest);
    log_info("replica %s, site %llu, role %s, of %zu replicas; the group's digest is %s, of %s%s",
             c->replica[self].name, (unsigned long long)r->group.self, c->replica[self].role,
             c->nreplicas, digest, r->group.made_of,
             r->first     ? "; it runs for the first time: all users are swept"
             : r->unclean ? "; the last run did not end cleanly, or amid a sweep: all are swept"
             : r->adopted ? "; Dovecot was started anew since the last run: all users are swept"
                          : "");
    return r;
}

void replicator_stop(struct replicator *r, void (*stopped)(void *arg), void *arg)
{
    if (r->stopping)
        return;
    r->stopping = true;
    r->stopped = stopped;
    r->stopped_arg = arg;
    claims_stop(r->claims);
    hints_stop(r->hints);
    sweep_stop(r->sweep);
    inbox_stop(r->inbox);
    asked_stop(r->asked);
    ev_timer_start(r->loop, &r->grace);
}

void replicator_close(struct replicator *r)
{
    ev_prepare_stop(r->loop, &r->turn);
    ev_timer_stop(r->loop, &r->look);
    ev_timer_stop(r->loop, &r->grace);
    admin_close(r->admin);
    if (r->stopping)
        users_each(r->users, keep_reasons, r);
    sweep_close(r->sweep);
    hints_close(r->hints);
    workers_close(r->workers);
    inbox_close(r->inbox);
    commits_close(r->commits);
    questions_stop(r->questions);
    fetches_stop(r->fetches);
    asked_close(r->asked);
    outbox_close(r->outbox);
    resend_close(r->resend);
    users_close(r->users);
    questions_close(r->questions);
    fetches_close(r->fetches);
    unproven_close(r->unproven);
    retire_close(r->retire);
    pace_close(r->pace);
    progress_close(r->progress);
    inbox_free(r->inbox);
    claims_close(r->claims);
    sched_close(r->sched);
    holders_close(r->holders);
    ledger_close(r->ledger);
    if (r->reserve)
        reserve_close(r->reserve);
    group_free(&r->group);
    free(r->directory);
    free(r);
}
