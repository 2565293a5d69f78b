#include "lib/ingress/divert_switch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/ingress/hold_rules.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/ingress/membership_watch.h"
#include "lib/ingress/receipt.h"
#include "lib/cluster/admin_notice.h"
#include "lib/redis/control_keys.h"
#include "lib/redis/wire.h"

#define LOOK 0.25       /* seconds between two looks into a node */
#define FIRST_WAIT 1000 /* milliseconds for hearing all nodes at the start */
/* seconds until a node is asked again that has refused: its users are older */
#define REFUSED 30.

/* One thing that is said, in every node and in a file. */
enum { DIVERT, HOLDS, SHAPE, NOTICES };
struct notice {
    const char *key, *what;
    struct admin_notice said;
    char *file;
    bool unkept; /* the file has it not, and that was logged */
};

struct ear;
struct question {
    struct ear *ear;
    struct notice *notice;
    bool asked, heard;
    double paused; /* clock_monotonic: until then it is not asked: its node refused */
};

struct ear {
    struct wire *wire;
    const char *node;
    bool refused;
    struct question question[NOTICES];
    char name[240]; /* of the connection, as it was set */
};

static struct {
    const struct config *config;
    struct notice notice[NOTICES]; /* the thread's */
    char host[80], digest[CONFIG_DIGEST];
    struct ear *ear;
    atomic_bool on;
    atomic_size_t heard; /* answers to a first question */
    struct ev_loop *loop;
    struct membership_watch *membership_watch;
} sw = {.notice = {{.key = CONTROL_DIVERT, .what = "divert"},
                   {.key = CONTROL_HOLDS, .what = "holds"},
                   {.key = CONTROL_SHAPE, .what = "shape"}}};

bool divert_switch_on(void)
{
    return atomic_load_explicit(&sw.on, memory_order_relaxed);
}

/* ---- the files ---- */

static void write_file(struct notice *n)
{
    bool good = admin_notice_save(&n->said, n->file);
    if (!good && !n->unkept)
        log_warning("%s: %s: after a restart only the nodes know it", n->file, strerror(errno));
    n->unkept = !good;
}

/* Doubt means off: the file is there, but what it says cannot be known. */
static void read_file(struct notice *n)
{
    if (admin_notice_load(n->file, &n->said))
        return;
    log_error("%s cannot be understood: %s", n->file,
              n == &sw.notice[DIVERT] ? "diverting is off until `dovelane divert on`"
                                      : "it counts as no rules");
    n->said = (struct admin_notice){.on = false};
}

/* ---- what is heard ---- */

static void obey(struct notice *n)
{
    const char *rules = n->said.text ? strchr(n->said.text, '\n') : NULL;
    if (n == &sw.notice[DIVERT])
        atomic_store(&sw.on, n->said.on);
    else if (n == &sw.notice[HOLDS])
        hold_rules_set(rules ? rules + 1 : "");
    else
        receipt_rules_set(NULL, rules ? rules + 1 : "");
}

static void adopt(struct notice *n, struct admin_notice *s, const char *node)
{
    bool was = divert_switch_on();
    free(n->said.text);
    n->said = *s;
    obey(n);
    write_file(n);
    if (n == &sw.notice[HOLDS])
        log_info("standing rules of `dovelane hold` changed (%.*s)", admin_notice_first_line(s),
                 s->text);
    else if (n == &sw.notice[SHAPE])
        log_info("rules of `dovelane shape` changed (%.*s)", admin_notice_first_line(s), s->text);
    else if (s->on != was)
        log_warning("diverting is %s, says node %s (%.*s)",
                    s->on ? "on" : "off: all mail goes to Postfix's queue", node,
                    admin_notice_first_line(s), s->text);
}

static void ignore(struct wire *w, redisReply *reply, void *arg)
{
    struct ear *ear = arg;
    bool refused = reply && reply->type == REDIS_REPLY_ERROR;
    if (refused && !ear->refused)
        log_warning("node %s: %s", ear->node, reply->str);
    ear->refused = refused;
}

static void name_connection(struct ear *ear)
{
    char name[sizeof ear->name];
    snprintf(name, sizeof name, "dovelane-switch:%s:%s:%llu:%s:%llu:%llu%s", sw.host,
             divert_switch_on() ? "on" : "off", sw.notice[DIVERT].said.serial, sw.digest,
             sw.notice[HOLDS].said.serial, sw.notice[SHAPE].said.serial,
             wire_on_standby(ear->wire) ? ":standby" : "");
    if (!strcmp(name, ear->name))
        return;
    snprintf(ear->name, sizeof ear->name, "%s", name);
    wire_sendf(ear->wire, ignore, ear, "CLIENT SETNAME %s", name);
}

static void note_heard(struct question *q)
{
    if (!q->heard)
        atomic_fetch_add(&sw.heard, 1);
    q->heard = true;
}

static void on_value(struct wire *w, redisReply *reply, void *arg)
{
    struct question *q = arg;
    struct admin_notice theirs = {.on = true};
    const struct admin_notice *ours = &q->notice->said;
    q->asked = false;
    /* Users of an earlier version know fewer notices; the start does not wait for those. */
    if (reply && reply->type == REDIS_REPLY_ERROR) {
        q->paused = clock_monotonic() + REFUSED;
        note_heard(q);
    }
    if (!reply || (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL))
        return;
    /* A node that knows less is told by the relays: this program may only read. */
    if (reply->type == REDIS_REPLY_STRING && reply->len < ADMIN_NOTICE_MOST)
        admin_notice_parse(reply->str, &theirs);
    if (theirs.serial && admin_notice_counts_more(&theirs, ours))
        adopt(q->notice, &theirs, q->ear->node);
    else
        free(theirs.text);
    note_heard(q);
}

static void look(struct ear *ear)
{
    if (!wire_up(ear->wire))
        return;
    name_connection(ear);
    for (size_t i = 0; i < NOTICES; i++)
        if (!ear->question[i].asked && clock_monotonic() >= ear->question[i].paused)
            ear->question[i].asked = wire_sendf(ear->wire, on_value, &ear->question[i], "GET %s",
                                                ear->question[i].notice->key);
}

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    for (size_t i = 0; i < sw.config->nnodes; i++) {
        look(&sw.ear[i]);
        if (wire_up(sw.ear[i].wire))
            membership_watch_look(sw.membership_watch, i, sw.ear[i].wire);
    }
    receipt_look();
}

static void on_wire(struct wire *w, bool up, const char *why, void *arg)
{
    struct ear *ear = arg;
    *ear->name = '\0';
    for (size_t i = 0; i < NOTICES; i++)
        ear->question[i].asked = false;
    if (up)
        look(ear);
}

static void *listen_to_nodes(void *arg)
{
    static ev_timer timer;
    for (size_t i = 0; i < sw.config->nnodes; i++) {
        sw.ear[i].node = sw.config->node[i].name;
        for (size_t k = 0; k < NOTICES; k++)
            sw.ear[i].question[k] = (struct question){.ear = &sw.ear[i], .notice = &sw.notice[k]};
        struct config_link link = config_node_link(sw.config, i);
        sw.ear[i].wire = wire_open(sw.loop, &link, false, on_wire, &sw.ear[i]);
        receipt_node(i, sw.ear[i].wire);
    }
    ev_timer_init(&timer, on_look, LOOK, LOOK);
    ev_timer_start(sw.loop, &timer);
    ev_run(sw.loop, 0);
    return NULL;
}

void divert_switch_open(const struct config *config, const char *part)
{
    char *directory =
        mem_printf("%s%s%s", config->state_directory, part ? "/" : "", part ? part : "");
    pthread_t thread;
    sw.loop = ev_loop_new(0);
    if (!sw.loop)
        log_fatal("libev finds no way to wait for events");
    receipt_open(config, sw.loop);
    sw.config = config;
    config_digest(config, sw.digest);
    sw.ear = mem_zero(config->nnodes * sizeof *sw.ear);
    snprintf(sw.host, sizeof sw.host, "%s", config->host_name);
    if (!*sw.host && gethostname(sw.host, sizeof sw.host - 1))
        snprintf(sw.host, sizeof sw.host, "unnamed");
    size_t len = strlen(sw.host);
    if (part)
        snprintf(sw.host + len, sizeof sw.host - len, "/%s", part);
    /* A connection's name is one word. */
    for (char *p = sw.host; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == ':')
            *p = '-';
    if (access(directory, W_OK) < 0)
        log_warning("%s (state_directory): %s: after a restart only the nodes know what `dovelane "
                    "divert`, `hold --add` and `shape` said",
                    directory, strerror(errno));
    for (size_t i = 0; i < NOTICES; i++) {
        sw.notice[i].said.on = true;
        sw.notice[i].file = mem_printf("%s/%s", directory, sw.notice[i].what);
        read_file(&sw.notice[i]);
        obey(&sw.notice[i]);
    }
    if (!divert_switch_on())
        log_warning(
            "diverting is off: all mail goes to Postfix's queue until `dovelane divert on` (%.*s)",
            admin_notice_first_line(&sw.notice[DIVERT].said),
            sw.notice[DIVERT].said.text ? sw.notice[DIVERT].said.text : "");
    sw.membership_watch =
        membership_watch_open(config, part ? "dovelane-proxy" : "dovelane-milter");
    if (pthread_create(&thread, NULL, listen_to_nodes, NULL))
        log_fatal("no thread for the switch");
    pthread_detach(thread);
    free(directory);
    for (int i = 0; i < FIRST_WAIT / 10 &&
                    (atomic_load(&sw.heard) < NOTICES * config->nnodes || !receipt_ready());
         i++)
        usleep(10000);
}
