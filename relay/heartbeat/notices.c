#include "relay/heartbeat/notices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/acks/owners.h"
#include "lib/cluster/admin_notice.h"
#include "lib/redis/control_keys.h"

#define LOOK 0.25 /* seconds */
/* seconds until a node is asked again when one has refused: its users are older */
#define REFUSED 30.

enum { DIVERT, HOLDS, SHAPE, NOTICES };

struct notice {
    const char *key, *what, *command;
    struct admin_notice said;
    char *file;
    bool changed;  /* since it was kept in the file */
    bool unkept;   /* the file cannot be written, and that was logged */
    bool refused;  /* a node did not let us, and that was logged */
    double paused; /* clock_monotonic: until then no node is asked */
};

struct notices {
    struct relay *relay;
    struct notice notice[NOTICES];
    ev_timer look;
    notices_shape_fn *on_shape;
    unsigned long long shape; /* its serial that on_shape was told */
};

/* A GET under way. */
struct asked {
    struct notices *all;
    struct notice *notice;
};

static const char *lines_of(const struct notice *n)
{
    const char *lines = n->said.text ? strchr(n->said.text, '\n') : NULL;
    return lines ? lines + 1 : "";
}

static void tell_shape(struct notices *all)
{
    const struct notice *n = &all->notice[SHAPE];
    if (n->said.serial == all->shape)
        return;
    all->shape = n->said.serial;
    log_info("rules of `dovelane shape` changed (%.*s)", admin_notice_first_line(&n->said),
             n->said.text);
    if (all->on_shape)
        all->on_shape(all->relay, lines_of(n), all->shape);
}

/* ---- files ---- */

static void take(struct notice *n, struct admin_notice *s)
{
    bool more = s->serial && admin_notice_counts_more(s, &n->said);
    free(more ? n->said.text : s->text);
    n->changed |= more;
    if (more)
        n->said = *s;
}

/* This relay's file; and that of the milter on this host, which knows what was said before
 * relays kept it. Not the proxy's: that has a user of its own, whose word is not spread. */
static void load(struct notice *n, const char *directory)
{
    struct admin_notice s;
    n->file = mem_printf("%s/%s-dovelane-relay", directory, n->what);
    if (!admin_notice_load(n->file, &s))
        log_warning("%s cannot be understood: what it had said is asked of the nodes", n->file);
    take(n, &s);
    n->changed = false;
    char *milters = mem_printf("%s/%s", directory, n->what);
    if (admin_notice_load(milters, &s)) /* one that cannot be read is the milter's to name */
        take(n, &s);
    free(milters);
}

static void keep(struct notice *n)
{
    if (!n->changed)
        return;
    n->changed = !admin_notice_save(&n->said, n->file);
    if (n->changed && !n->unkept)
        log_warning("%s: %s: after a restart only the nodes know it", n->file, strerror(errno));
    n->unkept = n->changed;
}

/* ---- nodes ---- */

/* Users of an earlier version know fewer notices: one that is refused does not hold up the
 * others. */
static void on_told(struct wire *w, redisReply *reply, void *arg)
{
    struct notice *n = arg;
    bool refused = reply && reply->type == REDIS_REPLY_ERROR && !strncmp(reply->str, "NOPERM", 6);
    if (refused && !n->refused)
        log_warning("a node may not be told what `%s` said: %s. `dovelane acl` again, into its "
                    "aclfile, and ACL LOAD",
                    n->command, reply->str);
    n->refused |= refused;
    if (refused)
        n->paused = clock_monotonic() + REFUSED;
}

static void tell(struct wire *w, struct notice *n)
{
    char serial[24];
    snprintf(serial, sizeof serial, "%llu", n->said.serial);
    wire_sendf(w, on_told, n, "EVAL %s 1 %s %s %s %s", CONTROL_NEWER, n->key, n->said.text, serial,
               n->said.on ? "on" : "off");
}

static void on_value(struct wire *w, redisReply *reply, void *arg)
{
    struct asked a = *(struct asked *)arg;
    struct admin_notice theirs = {.on = true};
    free(arg);
    on_told(w, reply, a.notice);
    if (!reply || a.all->relay->stopping ||
        (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL))
        return;
    /* One that cannot be understood is somebody's own key: ours replaces it. */
    if (reply->type == REDIS_REPLY_STRING && reply->len < ADMIN_NOTICE_MOST)
        admin_notice_parse(reply->str, &theirs);
    bool less = admin_notice_counts_more(&a.notice->said, &theirs);
    take(a.notice, &theirs);
    if (less && a.notice->said.serial)
        tell(w, a.notice);
    /* Before anybody is told that it is obeyed: it must outlive all servers' end. */
    keep(a.notice);
    tell_shape(a.all);
}

static void ask(const char *node, struct wire *w, void *arg)
{
    struct notices *all = arg;
    for (size_t i = 0; i < NOTICES && wire_silence(w) <= LOOK; i++) {
        if (clock_monotonic() < all->notice[i].paused)
            continue;
        struct asked *a = mem_alloc(sizeof *a);
        *a = (struct asked){.all = all, .notice = &all->notice[i]};
        if (!wire_sendf(w, on_value, a, "GET %s", all->notice[i].key))
            free(a);
    }
}

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    struct notices *all = t->data;
    if (all->relay->stopping)
        return;
    for (size_t i = 0; i < NOTICES; i++)
        keep(&all->notice[i]);
    owners_each_node(all->relay, ask, all);
}

struct notices *notices_open(struct relay *r, notices_shape_fn *on_shape)
{
    struct notices *all = mem_zero(sizeof *all);
    *all = (struct notices){
        .relay = r,
        .on_shape = on_shape,
        .notice = {{.key = CONTROL_DIVERT, .what = "divert", .command = "dovelane divert"},
                   {.key = CONTROL_HOLDS, .what = "holds", .command = "dovelane hold --add"},
                   {.key = CONTROL_SHAPE, .what = "shape", .command = "dovelane shape"}}};
    for (size_t i = 0; i < NOTICES; i++) {
        all->notice[i].said.on = true;
        load(&all->notice[i], r->config->state_directory);
    }
    tell_shape(all);
    ev_timer_init(&all->look, on_look, 0.2, LOOK);
    all->look.data = all;
    ev_timer_start(r->loop, &all->look);
    return all;
}

const char *notices_shape(const struct relay *r, unsigned long long *serial_r)
{
    *serial_r = r->notices ? r->notices->notice[SHAPE].said.serial : 0;
    return r->notices ? lines_of(&r->notices->notice[SHAPE]) : "";
}

void notices_close(struct notices *all)
{
    ev_timer_stop(all->relay->loop, &all->look);
}

void notices_free(struct notices *all)
{
    for (size_t i = 0; i < NOTICES; i++) {
        free(all->notice[i].said.text);
        free(all->notice[i].file);
    }
    free(all);
}
