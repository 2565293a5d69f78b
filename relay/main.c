/* dovelane-relay - delivers what the lanes of its node hold, by SMTP and LMTP.
 *
 * In the foreground. SIGTERM, SIGINT: finishes what is in flight (at most 10 s), gives back the
 * rest, ends with
 * 0. SIGHUP: reads the config again and opens its log anew. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relay/delivery/connections.h"
#include "relay/intake/lane_watch.h"
#include "relay/intake/intake.h"
#include "relay/gauges/gauges.h"
#include "relay/tables/classes.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "lib/base/log.h"
#include "lib/daemon/notify.h"
#include "lib/base/mem.h"
#include "lib/daemon/program.h"
#include "relay/delivery/mail.h"
#include "relay/heartbeat/membership.h"
#include "relay/tables/agent_settings.h"
#include "relay/heartbeat/notices.h"
#include "relay/heartbeat/admin_requests.h"
#include "relay/acks/owners.h"
#include "relay/tables/poison.h"
#include "lib/postfix/postfix.h"
#include "relay/intake/memory_pressure.h"
#include "relay/delivery/reinject.h"
#include "relay/tables/lane_pause.h"
#include "relay/cluster/whole_sets.h"
#include "relay/relay.h"
#include "relay/retained/retained_looks.h"
#include "relay/tables/retained.h"
#include "relay/shape/gate.h"
#include "relay/smtp/smtp.h"
#include "relay/intake/ordered_lanes.h"
#include "relay/intake/spill_to_postfix.h"
#include "relay/intake/stall.h"
#include "relay/heartbeat/heartbeat.h"

#define NAME "dovelane-relay"
#define FINISH 10. /* seconds for what is in flight */
#define LAST 2.    /* then, for the nodes to answer that it is given back */

struct stop {
    struct relay *relay;
    ev_timer timer;
    /* nothing is in flight any more that could be finished: only answers are waited for */
    bool last;
};

static void last_wait(struct stop *stop)
{
    stop->last = true;
    ev_timer_stop(stop->relay->loop, &stop->timer);
    ev_timer_set(&stop->timer, LAST, 0.);
    ev_timer_start(stop->relay->loop, &stop->timer);
}

/* ---- each turn of the loop ---- */

static bool all_said(const struct relay *r)
{
    return !inflight_count(r) && (!owners_ready(r) || !wire_open_requests(owners_wire(r))) &&
           !owners_peer_requests(r) && !heartbeat_unanswered(r);
}

/* After everything else of the turn, so that what it brought leaves together. Not in ev_prepare:
 * the connections write in theirs, and what comes behind it would wait for the next event. */
static void on_turn(struct ev_loop *loop, ev_check *c, int events)
{
    struct stop *stop = c->data;
    struct relay *r = stop->relay;
    if (r->kicked & RELAY_LIST)
        lane_watch_list(r);
    if (r->kicked & RELAY_WANT)
        destinations_want_all(r);
    r->kicked = 0;
    intake_run(r);
    spill_run(r);
    retained_looks_run(r);
    owners_flush(r);
    log_flush();
    if (!r->stopping)
        return;
    if (all_said(r))
        ev_break(loop, EVBREAK_ALL);
    else if (!inflight_count(r) && !stop->last)
        last_wait(stop);
}

/* ---- stop ---- */

static void on_stop_timer(struct ev_loop *loop, ev_timer *t, int events)
{
    struct stop *stop = t->data;
    struct relay *r = stop->relay;
    if (stop->last) {
        ev_break(loop, EVBREAK_ALL);
        return;
    }
    log_warning("%zu mails are still in hand after %.0f s: giving them back", inflight_count(r),
                FINISH);
    for (struct entry *e = inflight_first(r), *next; e; e = next) {
        next = TAILQ_NEXT(e, taken);
        mail_leave(e);
    }
    destinations_drop(r, "the relay stops -- message may be sent more than once");
    last_wait(stop);
}

static void on_stop_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    struct stop *stop = w->data;
    struct relay *r = stop->relay;
    if (r->stopping)
        return;
    log_info("stopping, %zu mails in hand", inflight_count(r));
    r->stopping = true;
    heartbeat_leave(r);
    lane_watch_close(r->lane_watch);
    r->lane_watch = NULL;
    destinations_let_go_shut(r);
    ev_timer_set(&stop->timer, FINISH, 0.);
    ev_timer_start(loop, &stop->timer);
}

/* ---- config ---- */

static void warn_dead(const struct relay *r)
{
    if (config_list_has(&r->config->dead, r->node))
        log_warning(
            "the config calls this node dead: nothing is drained here, the next owners do it");
}

static bool same_link(const struct config *a, int i, const struct config *b, int k)
{
    struct config_link one = config_node_link(a, (size_t)i), other = config_node_link(b, (size_t)k);
    char *text = config_link_text(&one), *with = config_link_text(&other);
    bool same = !strcmp(text, with);
    free(text);
    free(with);
    return same;
}

/* The nodes of before are there, and reached as before; others may have come. config gets their
 * places. */
static bool same_nodes(const struct config *before, struct config *config)
{
    bool same = config_keep_nodes(config, before);
    for (size_t i = 0; same && i < before->nnodes; i++)
        same = same_link(before, (int)i, config, (int)i);
    return same;
}

/* NULL when the new config may replace the old one. */
static const char *unfit(const struct relay *r, struct config *config)
{
    int was = config_node_index(r->config, r->node), is = config_node_index(config, r->node);
    if (is < 0)
        return "it has no section for this node";
    if (!same_link(r->config, was, config, is))
        return "this node is reached otherwise (redis, standby, tls, node_...): that needs a "
               "restart";
    if (r->config->takeover != config->takeover)
        return "takeover is another: that needs a restart of the relay";
    if (config->takeover == TAKEOVER_AUTOMATIC && !same_nodes(r->config, config))
        return config->unread ? config->unlearned
                              : "a node is missing that was there, or is reached otherwise (redis, "
                                "standby, tls, tls_name): that needs a restart of the relay";
    if (strcmp(r->config->state_directory, config->state_directory))
        return "state_directory is another: that needs a restart of the relay";
    return NULL;
}

static void on_hangup(struct ev_loop *loop, ev_signal *w, int events)
{
    struct relay *r = w->data;
    char *error = NULL;
    struct config *config = config_read(r->config_path, &error);
    const char *why = config ? unfit(r, config) : error;
    if (why) {
        if (log_reopen() < 0)
            log_error("log = %s cannot be opened anew: %s", r->config->log, strerror(errno));
        log_error("%s: the config stays as it was: %s", r->config_path, why);
        config_free(config);
        free(error);
        return;
    }
    config_free(r->config);
    r->config = config;
    r->config_turn++;
    classes_reload(r);
    if (program_log(config, NAME) < 0)
        log_error("log = %s cannot be opened: %s", config->log, strerror(errno));
    log_info("config read again");
    warn_dead(r);
    agent_settings_reload(r);
    shape_control_reload(r);
    owners_reload(r);
    retained_looks_reload(r);
    heartbeat_reload(r);
    lane_watch_judge(r);
    gauges_reload(r);
}

/* ---- main ---- */

static void open_all(struct relay *r)
{
    r->classes = classes_open(shape_class_weight);
    static const struct shape_calls shape_calls = {destination_go_on, destination_let_go};
    r->destinations = destinations_open(gate_forget);
    r->shape = shape_control_open(r, &shape_calls);
    r->intake = intake_open(r);
    r->poison = poison_open();
    r->reinject = reinject_open();
    r->whole_sets = whole_sets_open();
    r->ordered_lanes = ordered_open(r);
    r->lane_pauses = lane_pauses_open(r);
    r->lanes = lanes_open(r, ordered_forget);
    r->inflight = inflight_open();
    r->retained = retained_open();
    r->owners = owners_open(r);
    retained_looks_open(r);
    r->membership = membership_open(r);
    r->notices = notices_open(r, shape_control_said);
    r->heartbeat = heartbeat_open(r);
    r->stall = stall_open(r);
    r->pressure = pressure_open(r);
    r->spill = spill_open(r);
    r->admin_requests = admin_requests_open(r);
    r->lane_watch = lane_watch_open(r);
}

static void close_all(struct relay *r)
{
    size_t left = inflight_count(r);
    if (left)
        log_warning("ending with %zu mails whose results the nodes could not be told: they may be "
                    "sent more "
                    "than once",
                    left);
    destinations_quit(r);
    membership_close(r->membership);
    notices_close(r->notices);
    if (r->lane_watch)
        lane_watch_close(r->lane_watch);
    /* The connections first: they answer what is open, and what they answer to must still be
     * there. */
    owners_close(r);
    retained_looks_close(r);
    heartbeat_close(r);
    membership_free(r->membership);
    notices_free(r->notices);
    inflight_close(r->inflight);
    retained_close(r);
    admin_requests_close(r->admin_requests);
    spill_close(r->spill);
    pressure_close(r->pressure);
    stall_close(r->stall);
    lanes_close(r->lanes);
    lane_pauses_close(r->lane_pauses);
    ordered_close(r->ordered_lanes);
    destinations_close(r);
    shape_control_close(r);
    classes_close(r->classes);
    intake_close(r->intake);
    whole_sets_close(r->whole_sets);
    reinject_close(r->reinject);
    poison_close(r->poison);
    agent_settings_close();
    config_free(r->config);
}

static void on_watchdog(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)w, (void)events;
    notify("WATCHDOG=1");
}

/* A reload that comes while it starts waits for its watcher, which lets it through, and does not
 * end it. */
static void hold_hangup(void)
{
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hangup, NULL);
}

/* What -t looks at. */
static char *check(const struct config *c)
{
    char *wrong = smtp_policy_check(c);
    return wrong ? wrong : postfix_ports_wrong(c);
}

int main(int argc, char **argv)
{
    struct program program;
    hold_hangup();
    program_start(&program, NAME, true, check, argc, argv);
    program_metrics(&program);
    struct relay r = {
        .config_path = program.config_path, .node = program.node, .config = program.config};
    /* A watcher lets its signal through. Not libev's default loop, which would wait for the
     * children of other threads (lib/base/subprocess.c). */
    r.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK);
    if (!r.loop)
        log_fatal("libev finds no way to wait for events");
    log_info("%s " DOVELANE_VERSION " for node %s", NAME, r.node);
    warn_dead(&r);
    agent_settings_open(&r);

    struct stop stop = {.relay = &r};
    ev_timer_init(&stop.timer, on_stop_timer, 0., 0.);
    stop.timer.data = &stop;
    ev_signal term, interrupt, hangup;
    ev_signal_init(&term, on_stop_signal, SIGTERM);
    ev_signal_init(&interrupt, on_stop_signal, SIGINT);
    ev_signal_init(&hangup, on_hangup, SIGHUP);
    term.data = interrupt.data = &stop;
    hangup.data = &r;
    ev_signal_start(r.loop, &term);
    ev_signal_start(r.loop, &interrupt);
    ev_signal_start(r.loop, &hangup);
    ev_check turn;
    ev_check_init(&turn, on_turn);
    ev_set_priority(&turn, EV_MINPRI);
    turn.data = &stop;
    ev_check_start(r.loop, &turn);

    log_gather();
    open_all(&r);
    gauges_open(&r);
    ev_timer watchdog;
    double period = notify_watchdog() / 1e3;
    ev_timer_init(&watchdog, on_watchdog, period, period);
    if (period > 0.)
        ev_timer_start(r.loop, &watchdog);
    notify("READY=1");
    ev_run(r.loop, 0);
    notify("STOPPING=1");
    gauges_close();
    close_all(&r);
    log_info("stopped");
    return 0;
}
