/* dovelane-milter - the way in: diverts accepted mail into lanes on enough nodes before Postfix
 * answers 250.
 *
 * It must be the last milter of its smtpd, on a UNIX socket; docs/admin-guide.md has the lines
 * for main.cf. */
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/ingress/process_handover.h"
#include "lib/daemon/listener.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/daemon/notify.h"
#include "lib/postfix/postfix.h"
#include "lib/daemon/program.h"
#include "milter/peer_credentials.h"
#include "milter/session.h"
#include "lib/ingress/ingress_metrics.h"
#include "lib/ingress/shutdown.h"
#include "lib/ingress/class_rules.h"
#include "lib/ingress/divert_switch.h"

struct milter milter;

static struct listener *listener;

static void begin_leaving(void)
{
    milter.engine->close();
}

/* What is being stored gets its answer, or Postfix would keep a mail whose copies stay in the
 * lanes. */
static size_t end_sessions(double seconds)
{
    return milter.engine->leave(seconds > SHUTDOWN_FINISH);
}

static long long sessions(void)
{
    return metric_value(milter_sessions);
}

static char *check(const struct config *c)
{
    return listener_check("milter_socket", c->milter_socket);
}

/* ---- the socket ---- */

static void listen_here(const struct program *p)
{
    const struct config *c = p->config;
    const struct group *group = *c->milter_socket_group ? getgrnam(c->milter_socket_group) : NULL;
    if (*c->milter_socket_group && !group)
        log_fatal("milter_socket_group = %s: there is no such group", c->milter_socket_group);
    if (!group)
        peer_find_postfix(c);
    listener_descriptors();
    struct listener_options options = {.setting = "milter_socket",
                                       .path = c->milter_socket,
                                       .group = group ? group->gr_gid : (gid_t)-1,
                                       .mode = group ? 0660 : 0666,
                                       .replace = handover_takes_over()};
    listener = milter.engine->open(p, &options);
}

int main(int argc, char **argv)
{
    struct program p;
    char *error = NULL;
    handover_prepare(argv);
    program_start(&p, "dovelane-milter", false, check, argc, argv);
    milter.config = p.config;
    milter.engine =
        p.config->milter_engine == MILTER_ENGINE_LIBMILTER ? &engine_libmilter : &engine_own;
    /* the default one would wait for the children of other threads (lib/base/subprocess.c) */
    milter.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK);
    if (!milter.loop)
        log_fatal("libev finds no way to wait for events");
    struct shutdown calls = {milter.loop, &milter.store, &listener, begin_leaving, end_sessions};
    shutdown_catch_signals(&calls);
    milter.store = store_open_on(milter.loop, p.config, p.node, &error);
    if (!milter.store)
        log_fatal("%s", error);
    class_rules_open(p.config);
    divert_switch_open(p.config, NULL); /* before the first mail */
    postfix_open(p.config, POSTFIX_MILTER);
    lookup_open(milter.loop);
    milter_session_open();
    handover_await(milter.loop, milter.store, &shutdown_begun);
    if (shutdown_begun) /* the old one goes on */
        _exit(0);
    listen_here(&p);
    if (p.config->divert.n && !*p.config->bounce_port)
        log_warning("bounce_port is empty: what a next hop refuses for good stays in its lane, and "
                    "its sender gets no bounce");
    log_info("started: version %s, %zu next hops are diverted, copies = %lld of %zu nodes, "
             "on_store_failure = %s, milter_engine = %s",
             DOVELANE_VERSION, p.config->divert.n, (long long)p.config->copies, p.config->nnodes,
             p.config->on_store_failure == ON_STORE_FAILURE_QUEUE ? "queue" : "tempfail",
             milter.engine->name);
    handover_ready(milter.store, listener, sessions);
    ingress_metrics_open(milter.loop, p.name, p.config, milter.store);
    ev_run(milter.loop, 0);
    log_info("ended");
    /* Threads that ask maps may still be at it: the process ends as a whole. */
    _exit(0);
}
