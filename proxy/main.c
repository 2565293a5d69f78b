/* dovelane-proxy - the second way in: Postfix's before-queue proxy (smtpd_proxy_filter), which puts
 * accepted mail into lanes on enough nodes before the client is told 250, and passes on to
 * proxy_next what is Postfix's.
 *
 * docs/admin-guide.md has the lines for master.cf, and what this way in gives and takes beside
 * the milter. */
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/ingress/process_handover.h"
#include "lib/daemon/listener.h"
#include "lib/base/log.h"
#include "lib/postfix/lookup.h"
#include "lib/base/metrics.h"
#include "lib/daemon/notify.h"
#include "lib/postfix/agents.h"
#include "lib/postfix/postfix.h"
#include "lib/daemon/program.h"
#include "proxy/proxy.h"
#include "proxy/session.h"
#include "lib/ingress/ingress_metrics.h"
#include "lib/ingress/shutdown.h"
#include "lib/ingress/class_rules.h"
#include "lib/ingress/divert_switch.h"

#define OTHER_FDS 64

struct proxy proxy;

static struct listener *listener;
static uid_t user;  /* proxy_user */
static size_t most; /* sessions */
static ev_timer sweep;

static void on_sweep(struct ev_loop *loop, ev_timer *t, int events)
{
    proxy_session_sweep();
}

static void begin_leaving(void)
{
    proxy.leaving = true;
    listener_leave(listener);
}

static size_t end_sessions(double seconds)
{
    static double before;
    proxy_session_leave(seconds - before);
    before = seconds;
    return proxy_session_count();
}

static long long sessions(void)
{
    return metric_value(proxy_sessions);
}

static char *check(const struct config *c)
{
    if (!*c->proxy_next)
        return mem_printf(
            "proxy_next is empty: name the smtpd port behind the proxy, \"127.0.0.1:10628\"");
    return listener_check("proxy_socket", c->proxy_socket);
}

static void name_us(const struct config *c)
{
    struct agents *name = agents_find(c->host_name, c->postfix_config, false);
    snprintf(proxy.name, sizeof proxy.name, "%s", agents_for(name, NULL)->name);
    agents_free(name);
}

static void warn_routes(const struct config *c)
{
    if (!c->route.n)
        log_warning("route is empty: all mail goes on to proxy_next");
    for (size_t i = 0; i < c->route.n; i++) {
        const char *hop = c->route.v[i] + strcspn(c->route.v[i], "=");
        if (*hop && !config_list_has(&c->divert, hop + 1))
            log_warning(
                "route = \"%s\": its next hop is not in divert: that mail goes on to proxy_next",
                c->route.v[i]);
    }
    if (c->divert.n && !*c->bounce_port)
        log_warning("bounce_port is empty: what a next hop refuses for good stays in its lane, and "
                    "its sender gets no bounce");
}

/* ---- the socket ---- */

static bool is_postfix(int fd)
{
    static double complained;
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
        (peer.uid == user || peer.uid == 0))
        return true;
    if (clock_monotonic() - complained >= 1) {
        complained = clock_monotonic();
        log_warning(
            "proxy_socket: process %d of user %d wants to be served, but is not proxy_user = %s",
            (int)peer.pid, (int)peer.uid, proxy.config->proxy_user);
    }
    return false;
}

/* Whoever else connects (by the kernel's word) is not served. */
static void take(int fd)
{
    if (is_postfix(fd))
        proxy_session_new(fd);
    else
        close(fd);
}

static bool has_room(void)
{
    return proxy_session_count() < most;
}

/* Two descriptors for a session and its way to proxy_next. */
static void set_most(const struct config *c)
{
    unsigned long long fds = listener_descriptors();
    size_t room = fds > 2 * OTHER_FDS ? (size_t)(fds - OTHER_FDS) / 2 : OTHER_FDS;
    most = (size_t)c->proxy_sessions;
    if (room < most) {
        log_warning("proxy_sessions = %zu: %zu, because this process may have %llu open files "
                    "(LimitNOFILE)",
                    most, room, fds);
        most = room;
    }
}

static void listen_here(const struct program *p)
{
    const struct config *c = p->config;
    const struct passwd *pw = getpwnam(c->proxy_user);
    if (!pw)
        log_fatal("proxy_user = %s: there is no such user", c->proxy_user);
    user = pw->pw_uid;
    set_most(c);
    listener = program_listen(p, &(struct listener_options){.loop = proxy.loop,
                                                            .setting = "proxy_socket",
                                                            .path = c->proxy_socket,
                                                            .group = pw->pw_gid,
                                                            .mode = 0660,
                                                            .replace = handover_takes_over(),
                                                            .take = take,
                                                            .has_room = has_room});
}

int main(int argc, char **argv)
{
    struct program p;
    char *error = NULL;
    handover_prepare(argv);
    program_start(&p, "dovelane-proxy", false, check, argc, argv);
    if ((error = check(p.config)))
        log_fatal("%s", error);
    proxy.config = p.config;
    /* the default one would wait for the children of other threads (lib/base/subprocess.c) */
    proxy.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK);
    if (!proxy.loop)
        log_fatal("libev finds no way to wait for events");
    proxy.route = route_new(p.config);
    name_us(p.config);
    struct shutdown calls = {proxy.loop, &proxy.store, &listener, begin_leaving, end_sessions};
    shutdown_catch_signals(&calls);
    proxy.store = store_open_on(proxy.loop, p.config, p.node, &error);
    if (!proxy.store)
        log_fatal("%s", error);
    class_rules_open(p.config);
    divert_switch_open(p.config, "proxy"); /* before the first mail */
    postfix_open(p.config, POSTFIX_PROXY);
    lookup_open(proxy.loop);
    ev_timer_init(&sweep, on_sweep, 10., 10.);
    ev_timer_start(proxy.loop, &sweep);
    handover_await(proxy.loop, proxy.store, &proxy.leaving);
    if (proxy.leaving) /* the old one goes on */
        _exit(0);
    listen_here(&p);
    warn_routes(p.config);
    log_info("started: version %s, %zu routes to %zu next hops that are diverted, copies = %lld of "
             "%zu nodes, on_store_failure = %s",
             DOVELANE_VERSION, p.config->route.n, p.config->divert.n, (long long)p.config->copies,
             p.config->nnodes,
             p.config->on_store_failure == ON_STORE_FAILURE_QUEUE ? "queue" : "tempfail");
    handover_ready(proxy.store, listener, sessions);
    ingress_metrics_open(proxy.loop, p.name, p.config, proxy.store);
    ev_run(proxy.loop, 0);
    log_info("ended");
    /* Threads that ask maps may still be at it: the process ends as a whole. */
    _exit(0);
}
