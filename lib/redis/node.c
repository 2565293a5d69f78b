#include "lib/redis/node.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lib/base/log.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"

#define GRAMMAR 1
#define TURN 2. /* times path_timeout: within that another path must be found */

struct node {
    struct ev_loop *loop;
    struct wire *wire;
    char *name, *address, *purpose; /* address: the active one */
    bool two_paths;
    double lost_at;
    double ping_every;
    int64_t settle;
    node_state_fn *state;
    void *arg;

    bool ready;
    unsigned life;
    double loaded;
    char run_id[64];
    ev_timer pinger;
    double answered; /* last answer of any kind, or node_open */
    /* troubles logged in this outage: each is said once, not once per attempt */
    char said[4][256];
    size_t nsaid;
};

static void complain(struct node *n, const char *text)
{
    size_t most = sizeof n->said / sizeof *n->said;
    for (size_t i = 0; i < n->nsaid && i < most; i++)
        if (!strncmp(n->said[i], text, sizeof n->said[i] - 1))
            return;
    snprintf(n->said[n->nsaid++ % most], sizeof n->said[0], "%s", text);
    log_warning("node %s (%s, %s): %s", n->name, n->address, n->purpose, text);
}

/* ---- ping: measures silence; its answer is nothing but an answer ---- */

static void on_pong(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct node *n = arg;
    if (reply)
        n->answered = clock_monotonic();
}

static void on_ping(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct node *n = t->data;
    /* While an answer is owed there is no use in asking for more of them. */
    if (n->ready && wire_silence(n->wire) < n->ping_every)
        wire_sendf(n->wire, on_pong, n, "PING");
}

/* ---- who are you ---- */

static const char *field(const redisReply *info, const char *name)
{
    for (size_t i = 0; i + 1 < info->elements; i += 2) {
        const redisReply *k = info->element[i], *v = info->element[i + 1];
        if (k->type == REDIS_REPLY_STRING || k->type == REDIS_REPLY_STATUS)
            if (!strcmp(k->str, name))
                return v->type == REDIS_REPLY_STRING || v->type == REDIS_REPLY_STATUS ? v->str
                                                                                      : NULL;
    }
    return NULL;
}

static long long number(const redisReply *info, const char *name)
{
    for (size_t i = 0; i + 1 < info->elements; i += 2) {
        const redisReply *k = info->element[i], *v = info->element[i + 1];
        if ((k->type == REDIS_REPLY_STRING || k->type == REDIS_REPLY_STATUS) &&
            !strcmp(k->str, name))
            return v->type == REDIS_REPLY_INTEGER ? v->integer : v->str ? atoll(v->str) : -1;
    }
    return -1;
}

/* NULL when the server is what the config says. */
static const char *unfit(struct node *n, const redisReply *info, char *text, size_t size)
{
    if (info->type == REDIS_REPLY_ERROR) {
        bool unknown = !strncmp(info->str, "ERR unknown command", 19);
        bool password = !strncmp(info->str, "NOAUTH", 6);
        snprintf(text, size, "%s%s", info->str,
                 unknown    ? " (lane.so is not loaded: loadmodule /path/lane.so)"
                 : password ? " (it wants to know its clients: name a file with user and password "
                              "in node_user_file)"
                            : "");
        return text;
    }
    if (info->type != REDIS_REPLY_ARRAY)
        return "LANE.INFO gave no list";
    const char *name = field(info, "node"), *policy = field(info, "policy"),
               *run_id = field(info, "run-id");
    if (number(info, "grammar") != GRAMMAR)
        return "its lane.so speaks another grammar: install the same version everywhere";
    if (!run_id || !*run_id || strlen(run_id) >= sizeof n->run_id)
        return "LANE.INFO gave no run-id";
    if (!name || strcmp(name, n->name)) {
        snprintf(text, size,
                 "it says it is node \"%s\": set lane.node %s there, or mend the address in "
                 "dovelane.conf",
                 name ? name : "", n->name);
        return text;
    }
    long long settle = number(info, "settle-ms");
    if (settle < n->settle) {
        snprintf(text, size,
                 "lane.settle-ms is %lld, settle is %lldms: set lane.settle-ms %lld there", settle,
                 (long long)n->settle, (long long)n->settle);
        return text;
    }
    if (policy && strcmp(policy, "noeviction")) {
        snprintf(text, size,
                 "maxmemory-policy is %s: Redis may drop lanes by itself; set it to noeviction",
                 policy);
        return text;
    }
    return NULL;
}

static void on_info(struct wire *w, redisReply *reply, void *arg)
{
    struct node *n = arg;
    char text[256];
    if (!reply)
        return;
    n->answered = clock_monotonic();
    const char *why = unfit(n, reply, text, sizeof text);
    if (why) {
        complain(n, why);
        wire_drop(w, why);
        return;
    }
    const char *run_id = field(reply, "run-id");
    bool new_life = strcmp(n->run_id, run_id) != 0;
    if (new_life) {
        n->life++;
        snprintf(n->run_id, sizeof n->run_id, "%s", run_id);
    }
    long long loaded = number(reply, "loaded-ms");
    n->loaded =
        loaded > 0 ? clock_boottime() - (double)(number(reply, "clock-ms") - loaded) / 1000. : 0.;
    n->ready = true;
    n->nsaid = 0;
    metric_add(node_connects, 1);
    log_info("node %s (%s, %s): connected%s%s", n->name, wire_address(n->wire), n->purpose,
             wire_on_standby(n->wire) ? " at its standby address" : "",
             new_life && n->life > 1 ? ", it was restarted" : "");
    n->state(n, true, new_life, n->arg);
}

/* The first answer: a server that wants nobody says why here, and closes. */
static void on_name(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        complain(arg, reply->str);
}

static void on_wire(struct wire *w, bool up, const char *why, void *arg)
{
    struct node *n = arg;
    if (up) {
        wire_sendf(w, on_name, n, "CLIENT SETNAME dovelane-%s%s", n->purpose,
                   wire_on_standby(w) ? ":standby" : "");
        wire_sendf(w, on_info, n, "LANE.INFO");
        return;
    }
    complain(n, why);
    if (!n->ready)
        return;
    n->ready = false;
    n->lost_at = clock_monotonic();
    metric_add(node_losses, 1);
    n->state(n, false, false, n->arg);
}

/* ---- interface ---- */

struct node *node_open(struct ev_loop *loop, const struct node_options *o)
{
    struct node *n = mem_zero(sizeof *n);
    n->loop = loop;
    n->name = mem_strdup(o->name);
    n->address = mem_strdup(o->link.address);
    n->two_paths = o->link.standby && *o->link.standby;
    n->purpose = mem_strdup(o->purpose);
    n->ping_every = o->ping_every;
    n->settle = o->settle;
    n->state = o->state;
    n->arg = o->arg;
    n->answered = clock_monotonic();
    n->wire = wire_open(loop, &o->link, o->blocks, on_wire, n);
    if (o->reply_most)
        wire_bound(n->wire, o->reply_most);
    ev_timer_init(&n->pinger, on_ping, n->ping_every, n->ping_every);
    n->pinger.data = n;
    if (n->ping_every > 0.)
        ev_timer_start(loop, &n->pinger);
    return n;
}

void node_close(struct node *n)
{
    if (!n)
        return;
    n->ready = false;
    ev_timer_stop(n->loop, &n->pinger);
    wire_close(n->wire);
    free(n->name);
    free(n->address);
    free(n->purpose);
    free(n);
}

const char *node_name(const struct node *n)
{
    return n->name;
}

bool node_ready(const struct node *n)
{
    return n->ready;
}

unsigned node_life(const struct node *n)
{
    return n->life;
}

const char *node_run_id(const struct node *n)
{
    return n->run_id;
}

double node_loaded(const struct node *n)
{
    return n->loaded;
}

struct wire *node_wire(const struct node *n)
{
    return n->wire;
}

bool node_has_standby(const struct node *n)
{
    return n->two_paths;
}

bool node_turning(const struct node *n)
{
    return !n->ready && n->two_paths && n->life &&
           clock_monotonic() - n->lost_at < TURN * wire_path_timeout(n->wire);
}

double node_silence(const struct node *n)
{
    /* An answer to anything counts, and an idle connection owes none for longer than a ping's
     * wait. */
    if (n->ready)
        return wire_silence(n->wire);
    return clock_monotonic() - n->answered;
}

void node_drop(struct node *n, const char *why)
{
    wire_drop(n->wire, why);
}
