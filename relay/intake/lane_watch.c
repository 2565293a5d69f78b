#include "relay/intake/lane_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/delivery/mail.h"
#include "relay/tables/destinations.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/number.h"
#include "relay/acks/owners.h"

#define BLOCK 10000 /* ms; READY then says "nothing", so that a dead connection is found */
#define PATIENCE 5. /* seconds beyond that */
#define AGAIN 1.    /* seconds after an error */
#define PAGE 1000

struct lane_watch {
    struct relay *relay;
    struct node *node;
    char cursor[32];
    ev_timer patience; /* the answer to READY is overdue, or the next READY is due */
    bool asked;
};

static void ask(struct lane_watch *);

/* Cursors are numbers, and clients give back what they got. */
static bool copy_cursor(const redisReply *reply, char *out, size_t size)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        snprintf(out, size, "%lld", reply->integer);
    else if ((reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS) &&
             (size_t)reply->len < size)
        snprintf(out, size, "%s", reply->str);
    else
        return false;
    return true;
}

static void arm(struct lane_watch *d, double seconds)
{
    ev_timer_stop(d->relay->loop, &d->patience);
    ev_timer_set(&d->patience, seconds, 0.);
    ev_timer_start(d->relay->loop, &d->patience);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    struct lane_watch *d = t->data;
    if (d->asked)
        node_drop(d->node, "READY was not answered in time");
    else
        ask(d);
}

static void on_ready(struct wire *w, redisReply *reply, void *arg)
{
    struct lane_watch *d = arg;
    d->asked = false;
    if (!reply)
        return;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY ||
        !copy_cursor(reply->element[0], d->cursor, sizeof d->cursor)) {
        log_warning("READY was refused: %s", reply->str ? reply->str : "no list");
        arm(d, AGAIN);
        return;
    }
    const redisReply *list = reply->element[1];
    for (size_t i = 0; i < list->elements; i++)
        if (list->element[i]->type == REDIS_REPLY_STRING)
            lanes_told(d->relay, list->element[i]->str, (size_t)list->element[i]->len);
    ask(d);
}

static void ask(struct lane_watch *d)
{
    if (d->asked || d->relay->stopping || !node_ready(d->node))
        return;
    char block[NUMBER_TEXT], count[NUMBER_TEXT];
    const char *v[] = {"LANE.READY", d->cursor, "BLOCK", block, "COUNT", count};
    size_t len[] = {10, strlen(d->cursor),       5, number_text(block, BLOCK),
                    5,  number_text(count, PAGE)};
    d->asked = wire_send(node_wire(d->node), on_ready, d, 6, v, len);
    arm(d, BLOCK / 1000. + PATIENCE);
}

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct lane_watch *d = arg;
    if (!ready)
        ev_timer_stop(d->relay->loop, &d->patience);
    if (ready && new_life)
        snprintf(d->cursor, sizeof d->cursor, "0");
    if (ready)
        ask(d);
}

struct lane_watch *lane_watch_open(struct relay *r)
{
    struct lane_watch *d = mem_zero(sizeof *d);
    d->relay = r;
    snprintf(d->cursor, sizeof d->cursor, "0");
    ev_timer_init(&d->patience, on_patience, 0., 0.);
    d->patience.data = d;
    d->node = node_open(r->loop, &(struct node_options){
                                     .name = r->node,
                                     .link = config_node_link(
                                         r->config, (size_t)config_node_index(r->config, r->node)),
                                     .purpose = "relay-ready",
                                     .blocks = true,
                                     .settle = r->config->settle,
                                     .state = on_state,
                                     .arg = d});
    return d;
}

void lane_watch_close(struct lane_watch *d)
{
    ev_timer_stop(d->relay->loop, &d->patience);
    node_close(d->node);
    free(d);
}

/* ---- LIST ---- */

static void list_page(struct relay *, const char *cursor);

static void on_list(struct wire *w, redisReply *reply, void *arg)
{
    struct relay *r = arg;
    char cursor[32];
    if (!reply)
        return; /* begun anew with the next connection */
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY ||
        !copy_cursor(reply->element[0], cursor, sizeof cursor)) {
        log_warning("LIST was refused: %s", reply->str ? reply->str : "no list");
        return;
    }
    const redisReply *list = reply->element[1];
    for (size_t i = 0; i + 2 < list->elements; i += 3)
        if (list->element[i]->type == REDIS_REPLY_STRING &&
            list->element[i + 1]->type == REDIS_REPLY_INTEGER && list->element[i + 1]->integer > 0)
            lanes_told(r, list->element[i]->str, (size_t)list->element[i]->len);
    if (strcmp(cursor, "0"))
        list_page(r, cursor);
}

static void list_page(struct relay *r, const char *cursor)
{
    if (owners_ready(r))
        wire_sendf(owners_wire(r), on_list, r, "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d",
                   cursor, PAGE);
}

void lane_watch_list(struct relay *r)
{
    if (!r->stopping)
        list_page(r, "0");
}

void lane_watch_judge(struct relay *r)
{
    lanes_judge(r);
    /* What nobody has begun with. */
    for (struct entry *e = inflight_first(r), *next; e; e = next) {
        next = TAILQ_NEXT(e, taken);
        if (e->lane->ownership != OWNERSHIP_OURS)
            mail_leave(e);
    }
    lane_watch_list(r);
    destinations_want_all(r);
}
