#include "relay/heartbeat/admin_requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/delivery/connections.h"
#include "relay/heartbeat/notices.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/acks/owners.h"
#include "lib/redis/control_keys.h"
#include "relay/intake/spill_to_postfix.h"
#include "relay/shape/gate.h"

#define ASK 0.25  /* seconds */
#define LOOKS 200 /* lanes fetched at a time */
#define TELL 8    /* asks between two times of telling */
#define TOLD 5000 /* milliseconds for which what was told is believed */
#define TELL_MOST 100

struct admin_requests {
    struct relay *relay;
    ev_timer ask;
    unsigned turn;
    bool told;                /* something stands in CONTROL_AWAY */
    unsigned long long shape; /* serial of the rules of `dovelane shape` that was told last */
};

static void on_drain(struct wire *w, redisReply *reply, void *arg)
{
    struct admin_requests *o = arg;
    /* No answer changes nothing; the next connection's will. */
    if (reply && (reply->type == REDIS_REPLY_NIL || reply->type == REDIS_REPLY_STRING))
        spill_drain(o->relay, reply->type == REDIS_REPLY_STRING);
}

static void on_looks(struct wire *w, redisReply *reply, void *arg)
{
    struct admin_requests *o = arg;
    for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        if (reply->element[i]->type == REDIS_REPLY_STRING)
            spill_look(o->relay, reply->element[i]->str, (size_t)reply->element[i]->len);
}

/* ---- telling which next hops are away, or suspended ---- */

struct telling {
    const char *v[6 + 2 * TELL_MOST];
    int n;
    char *made[TELL_MOST]; /* texts of v that are to be freed */
    size_t nmade;
};

static void tell_one(struct destination *d, void *arg)
{
    struct telling *t = arg;
    const char *why;
    bool away = d->down && d->trouble && destination_is_away(d);
    if (d->head || t->n + 2 > (int)(sizeof t->v / sizeof *t->v))
        return;
    if (gate_suspended(d, &why))
        why = t->made[t->nmade++] = mem_printf(CONTROL_SUSPENDED "%s", why);
    else if (away)
        why = d->trouble;
    else
        return;
    t->v[t->n++] = d->name;
    t->v[t->n++] = why;
}

static void on_told(struct wire *w, redisReply *reply, void *arg)
{
    if (reply && reply->type == REDIS_REPLY_ERROR)
        log_debug("telling the admin's command: %s", reply->str);
}

static void tell(struct admin_requests *o)
{
    char milliseconds[16];
    struct telling t = {{"EVAL", CONTROL_FIELDS, "1", CONTROL_AWAY, milliseconds}, .n = 5};
    size_t len[sizeof t.v / sizeof *t.v];
    snprintf(milliseconds, sizeof milliseconds, "%d", TOLD);
    destinations_each(o->relay, tell_one, &t);
    if (t.n == 5 && !o->told)
        return;
    o->told = t.n > 5;
    for (int i = 0; i < t.n; i++)
        len[i] = strlen(t.v[i]);
    wire_send(owners_wire(o->relay), on_told, o, t.n, t.v, len);
    for (size_t i = 0; i < t.nmade; i++)
        free(t.made[i]);
}

static void tell_config(struct admin_requests *o)
{
    char digest[CONFIG_DIGEST], serial[24];
    config_digest(o->relay->config, digest);
    notices_shape(o->relay, &o->shape);
    snprintf(serial, sizeof serial, "%llu", o->shape);
    wire_sendf(owners_wire(o->relay), on_told, o,
               "EVAL %s 1 " CONTROL_CONFIG " %d relay %s shape %s", CONTROL_FIELDS, TOLD, digest,
               serial);
}

static void on_ask(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct admin_requests *o = timer->data;
    unsigned long long shape;
    /* While answers are owed there is no use in asking for more of them. */
    if (o->relay->stopping || !owners_ready(o->relay) || wire_silence(owners_wire(o->relay)) > ASK)
        return;
    wire_sendf(owners_wire(o->relay), on_drain, o, "GET " CONTROL_DRAIN);
    wire_sendf(owners_wire(o->relay), on_looks, o, "SPOP " CONTROL_LOOK " %d", LOOKS);
    notices_shape(o->relay, &shape);
    if (o->turn % TELL == 0)
        tell(o);
    if (o->turn++ % TELL == 0 || shape != o->shape)
        tell_config(o);
}

struct admin_requests *admin_requests_open(struct relay *r)
{
    struct admin_requests *o = mem_zero(sizeof *o);
    o->relay = r;
    ev_timer_init(&o->ask, on_ask, ASK, ASK);
    o->ask.data = o;
    ev_timer_start(r->loop, &o->ask);
    return o;
}

void admin_requests_close(struct admin_requests *o)
{
    ev_timer_stop(o->relay->loop, &o->ask);
    free(o);
}
