/* dovelane-relay - delivers what the lanes of its node hold, by SMTP and LMTP.
 *
 * In the foreground. SIGTERM, SIGINT: finishes what is in hand (at most 10 s), gives back the rest, ends with
 * 0. SIGHUP: reads the config again and opens its log anew. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "destination.h"
#include "discover.h"
#include "drain.h"
#include "hand.h"
#include "lanes.h"
#include "log.h"
#include "mem.h"
#include "program.h"
#include "mail.h"
#include "owners.h"
#include "relay.h"
#include "stillness.h"

#define NAME "dovelane-relay"
#define FINISH 10. /* seconds for what is in hand */
#define LAST 2.    /* then, for the nodes to answer that it is given back */

struct stop {
    struct relay *relay;
    ev_timer timer;
    bool last; /* nothing is in hand any more that could be finished: only answers are waited for */
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
    return !hand_count(r) && (!owners_ready(r) || !wire_open_requests(owners_wire(r))) &&
           !owners_peer_requests(r);
}

/* After everything else of the turn, so that what it brought leaves together. Not in ev_prepare: the
 * connections write in theirs, and what comes behind it would wait for the next event. */
static void on_turn(struct ev_loop *loop, ev_check *c, int events)
{
    struct stop *stop = c->data;
    struct relay *r = stop->relay;
    drain_run(r);
    owners_flush(r);
    if (!r->stopping)
        return;
    if (all_said(r))
        ev_break(loop, EVBREAK_ALL);
    else if (!hand_count(r) && !stop->last)
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
    log_warning("%zu mails are still in hand after %.0f s: giving them back", hand_count(r), FINISH);
    for (struct entry *e = hand_first(r), *next; e; e = next) {
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
    log_info("stopping, %zu mails in hand", hand_count(r));
    r->stopping = true;
    discover_close(r->discover);
    r->discover = NULL;
    ev_timer_set(&stop->timer, FINISH, 0.);
    ev_timer_start(loop, &stop->timer);
}

/* ---- config ---- */

static void set_helo(struct relay *r)
{
    char host[256] = "localhost";
    free(r->helo);
    if (!*r->config->host_name && gethostname(host, sizeof host - 1))
        log_warning("gethostname failed: calling ourselves localhost");
    r->helo = mem_strdup(*r->config->host_name ? r->config->host_name : host);
}

static void warn_dead(const struct relay *r)
{
    if (config_list_has(&r->config->dead, r->node))
        log_warning("the config calls this node dead: nothing is drained here, the next owners do it");
}

/* NULL when the new config may replace the old one. */
static const char *unfit(const struct relay *r, const struct config *config)
{
    int was = config_node_index(r->config, r->node), is = config_node_index(config, r->node);
    if (is < 0)
        return "it has no section for this node";
    if (strcmp(r->config->node[was].redis, config->node[is].redis))
        return "this node's redis has another address: that needs a restart";
    return NULL;
}

static void on_hangup(struct ev_loop *loop, ev_signal *w, int events)
{
    struct relay *r = w->data;
    char *error = NULL;
    struct config *config = config_read(r->config_path, &error);
    const char *why = config ? unfit(r, config) : error;
    if (why) {
        log_error("%s: the config stays as it was: %s", r->config_path, why);
        config_free(config);
        free(error);
        return;
    }
    config_free(r->config);
    r->config = config;
    if (log_open(NAME, config->log, (enum log_level)config->log_level) < 0)
        log_error("log = %s cannot be opened: %s", config->log, strerror(errno));
    log_info("config read again");
    warn_dead(r);
    set_helo(r);
    owners_reload(r);
    lanes_judge(r);
    discover_list(r);
    drain_want_all(r);
}

/* ---- main ---- */

static void open_all(struct relay *r)
{
    r->destinations = destinations_open(r);
    r->drain = drain_open(r);
    r->lanes = lanes_open(r);
    r->hand = hand_open(r);
    r->owners = owners_open(r);
    r->stillness = stillness_open(r);
    r->discover = discover_open(r);
}

static void close_all(struct relay *r)
{
    size_t left = hand_count(r);
    if (left)
        log_warning("ending with %zu mails whose results the nodes could not be told: they may be sent more "
                    "than once",
                    left);
    destinations_quit(r);
    if (r->discover)
        discover_close(r->discover);
    /* The connections first: they answer what is open, and what they answer to must still be there. */
    owners_close(r);
    hand_close(r->hand);
    stillness_close(r->stillness);
    lanes_close(r->lanes);
    destinations_close(r);
    drain_close(r->drain);
    free(r->helo);
    config_free(r->config);
}

int main(int argc, char **argv)
{
    struct program program;
    program_start(&program, NAME, true, argc, argv);
    struct relay r = {.config_path = program.config_path, .node = program.node, .config = program.config};
    r.loop = ev_default_loop(0);
    set_helo(&r);
    log_info("%s " DOVELANE_VERSION " for node %s", NAME, r.node);
    warn_dead(&r);

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

    open_all(&r);
    ev_run(r.loop, 0);
    close_all(&r);
    log_info("stopped");
    return 0;
}
