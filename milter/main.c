/* dovelane-milter - the way in: diverts accepted mail into lanes on enough nodes before Postfix answers 250.
 *
 * It must be the last milter of its smtpd, on a UNIX socket; docs/admin-guide.md has the lines for main.cf. */
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "handover.h"
#include "listener.h"
#include "log.h"
#include "metrics.h"
#include "notify.h"
#include "postconf.h"
#include "postfix.h"
#include "program.h"
#include "session.h"
#include "switch.h"

#define FINISH_WITHIN 2. /* seconds for mails whose content is still coming */
#define LEAVE_WITHIN 50. /* seconds for those that are being stored; our unit's TimeoutStopSec is 60 */

struct milter milter;

static struct listener *listener;
static ev_timer leaving;
static ev_signal stop_signal[3];
static double left;
static bool stopping;

/* What is being stored gets its answer, or Postfix would keep a mail whose copies stay in the lanes. */
static void on_leaving(struct ev_loop *loop, ev_timer *t, int events)
{
    left += t->repeat;
    session_leave(left > FINISH_WITHIN);
    if (listener_left(listener) && session_count() == 0 && (store_owed(milter.store) == 0 || left > FINISH_WITHIN)) {
        ev_break(loop, EVBREAK_ALL);
    } else if (left > LEAVE_WITHIN) {
        log_warning("ended in the middle of %zu mails: they may be sent more than once", session_count());
        ev_break(loop, EVBREAK_ALL);
    }
}

static void on_stop(struct ev_loop *loop, ev_signal *w, int events)
{
    if (stopping)
        return;
    stopping = true;
    notify("STOPPING=1");
    listener_leave(listener);
    ev_timer_init(&leaving, on_leaving, 0., 0.05);
    ev_timer_start(loop, &leaving);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 3; i++) {
        ev_signal_init(&stop_signal[i], on_stop, numbers[i]);
        ev_signal_start(milter.loop, &stop_signal[i]);
    }
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

/* Without a group everybody may connect, by the socket's mode. Then the kernel's word counts: who is not Postfix is not served. */
static struct {
    bool asked; /* who connects */
    uid_t postfix;
} peers;

static bool is_served(int fd)
{
    static double complained;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    if (!peers.asked || (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == peers.postfix || peer.uid == 0 || peer.uid == geteuid())))
        return true;
    if (clock_monotonic() - complained >= 1) {
        complained = clock_monotonic();
        log_warning("milter_socket: process %d of user %d wants to be served, but is not Postfix's (mail_owner); milter_socket_group names a group that may", (int)peer.pid, (int)peer.uid);
    }
    return false;
}

static void take(int fd)
{
    if (is_served(fd))
        session_new(fd);
    else
        close(fd);
}

static void find_postfix(const struct config *c)
{
    char *error = NULL;
    struct postconf *conf = *c->postfix_config ? postconf_read(c->postfix_config, &error) : NULL;
    const char *owner = conf ? postconf_get(conf, NULL, "mail_owner") : "";
    const struct passwd *user = getpwnam(*owner ? owner : "postfix");
    peers.asked = user != NULL;
    if (user)
        peers.postfix = user->pw_uid;
    else
        log_warning("milter_socket_group is empty, and Postfix's user is not known here: whoever reaches %s is served", c->milter_socket);
    free(error);
    postconf_free(conf);
}

static void listen_here(const struct program *p)
{
    const struct config *c = p->config;
    const struct group *group = *c->milter_socket_group ? getgrnam(c->milter_socket_group) : NULL;
    if (*c->milter_socket_group && !group)
        log_fatal("milter_socket_group = %s: there is no such group", c->milter_socket_group);
    if (!group)
        find_postfix(c);
    listener_descriptors();
    listener = program_listen(p, &(struct listener_options){.loop = milter.loop,
                                                            .setting = "milter_socket",
                                                            .path = c->milter_socket,
                                                            .group = group ? group->gr_gid : (gid_t)-1,
                                                            .mode = group ? 0660 : 0666,
                                                            .replace = handover_takes_over(),
                                                            .take = take});
}

int main(int argc, char **argv)
{
    struct program p;
    char *error = NULL;
    handover_prepare(argv);
    program_start(&p, "dovelane-milter", false, check, argc, argv);
    milter.config = p.config;
    milter.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK); /* the default one would wait for the children of other threads (lib/run.c) */
    if (!milter.loop)
        log_fatal("libev finds no way to wait for events");
    catch_signals();
    milter.store = store_open_on(milter.loop, p.config, p.node, &error);
    if (!milter.store)
        log_fatal("%s", error);
    switch_open(p.config, NULL); /* before the first mail */
    postfix_open(p.config, POSTFIX_MILTER);
    lookup_open(milter.loop);
    session_open();
    handover_await(milter.loop, milter.store, &stopping);
    if (stopping) /* the old one goes on */
        _exit(0);
    listen_here(&p);
    if (p.config->divert.n && !*p.config->bounce_port)
        log_warning("bounce_port is empty: what a next hop refuses for good stays in its lane, and nobody is told");
    log_info("started: version %s, %zu next hops are diverted, copies = %lld of %zu nodes, on_store_failure = %s", DOVELANE_VERSION, p.config->divert.n,
             (long long)p.config->copies, p.config->nnodes, p.config->on_store_failure == ON_STORE_FAILURE_QUEUE ? "queue" : "tempfail");
    handover_ready(milter.store, listener, sessions);
    ev_run(milter.loop, 0);
    log_info("ended");
    /* Threads that ask maps may still be at it: the process ends as a whole. */
    _exit(0);
}
