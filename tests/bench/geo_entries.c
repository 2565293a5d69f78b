#include "tests/bench/geo_load.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/redis/wire.h"
#include "tests/bench/delay_line.h"

#define ID 16
#define TAKE_MOST 200

/* Messages that go together in one command, to each owner. */
struct batch {
    struct gateway *gateway;
    struct message **message;
    size_t n;
    struct buf packed; /* entries of a PUSH, or ids of an ACK */
    unsigned uses;
};

struct request {
    struct batch *batch;
    struct way *way;
};

static void unuse(struct batch *b)
{
    if (--b->uses)
        return;
    buf_free(&b->packed);
    free(b->message);
    free(b);
}

static void id_of(const struct message *m, unsigned char id[ID])
{
    uint64_t part[2] = {htole64(geo_slot(m)), htole64(m->serial)};
    memcpy(id, part, ID);
}

static void number(struct buf *b, uint32_t n)
{
    n = htole32(n);
    buf_add(b, &n, sizeof n);
}

static void pack(struct buf *b, const struct message *m)
{
    static char *body;
    if (!body) {
        body = mem_alloc(o.size + 1);
        memset(body, 'm', o.size);
    }
    unsigned char id[ID];
    id_of(m, id);
    number(b, 1 | 1u << 31);
    number(b, 0);
    number(b, (uint32_t)o.size);
    buf_add(b, id, ID);
    buf_add(b, body, o.size);
}

static void send_to_all(struct batch *b, void (*fn)(void *batch, void *way))
{
    b->uses = (unsigned)b->gateway->nways;
    for (size_t i = 0, n = b->gateway->nways; i < n; i++)
        delay_line_put(b->gateway->way[i].there, fn, b, &b->gateway->way[i]);
}

static bool send_one(struct batch *b, struct way *to, bool relay, const char *const *head,
                     size_t nhead, wire_reply_fn *fn)
{
    const char *argv[8];
    size_t len[8];
    for (size_t i = 0; i < nhead; i++) {
        argv[i] = head[i];
        len[i] = strlen(head[i]);
    }
    argv[nhead] = b->packed.data;
    len[nhead] = b->packed.len;
    struct request *r = mem_zero(sizeof *r);
    *r = (struct request){b, to};
    return wire_send(relay ? to->relay : to->store, fn, r, (int)nhead + 1, argv, len);
}

static void take_some(struct gateway *);

static void are_stored(void *request, void *unused)
{
    (void)unused;
    struct request *r = request;
    struct gateway *g = r->batch->gateway;
    bool home = r->way == &g->way[0];
    for (size_t i = 0; i < r->batch->n; i++) {
        struct message *m = r->batch->message[i];
        bool all = --m->stores == 0;
        g->takeable += o.until == UNTIL_BOTH ? all : home;
        if (all)
            geo_stored(m);
    }
    unuse(r->batch);
    free(r);
    take_some(g);
}

static void store_answered(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct request *r = arg;
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[1]->len != 8 * r->batch->n)
        geo_fail("LANE.PUSH: %s", reply && reply->str ? reply->str : "no answer");
    for (size_t i = 0; i < r->batch->n; i++) {
        int64_t answer;
        memcpy(&answer, reply->element[1]->str + 8 * i, sizeof answer);
        if ((int64_t)le64toh((uint64_t)answer) < -1)
            geo_fail("a node refuses: %lld", (long long)answer);
    }
    delay_line_put(r->way->back, are_stored, r, NULL);
}

static void push(void *batch, void *way)
{
    struct batch *b = batch;
    const char *head[] = {"LANE.PUSH", "1", b->gateway->lane, "PACKED"};
    if (!send_one(b, way, false, head, 4, store_answered))
        geo_fail("a connection is lost");
}

static void are_removed(void *request, void *unused)
{
    (void)unused;
    struct request *r = request;
    for (size_t i = 0; i < r->batch->n; i++)
        if (--r->batch->message[i]->acks == 0)
            geo_removed(r->batch->message[i]);
    unuse(r->batch);
    free(r);
}

static void ack_answered(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct request *r = arg;
    if (!reply || reply->type != REDIS_REPLY_ARRAY)
        geo_fail("LANE.ACK: %s", reply && reply->str ? reply->str : "no answer");
    delay_line_put(r->way->back, are_removed, r, NULL);
}

static void ack(void *batch, void *way)
{
    struct batch *b = batch;
    const char *head[] = {"LANE.ACK", b->gateway->lane, "PACKED"};
    if (!send_one(b, way, true, head, 3, ack_answered))
        geo_fail("a connection is lost");
}

static void remove_taken(struct gateway *g, const redisReply *entries)
{
    struct batch *b = mem_zero(sizeof *b);
    b->gateway = g;
    b->n = entries->elements;
    b->message = mem_zero(b->n * sizeof *b->message);
    for (size_t i = 0; i < b->n; i++) {
        const redisReply *id = entries->element[i]->element[1];
        uint64_t part[2];
        if (id->len != ID)
            geo_fail("an entry without an id");
        memcpy(part, id->str, ID);
        b->message[i] = geo_message(le64toh(part[0]), le64toh(part[1]));
        buf_add(&b->packed, id->str, ID);
    }
    g->takeable -= b->n;
    send_to_all(b, ack);
}

static void taken(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct gateway *g = arg;
    if (!reply || reply->type != REDIS_REPLY_ARRAY)
        geo_fail("LANE.TAKE: %s", reply && reply->str ? reply->str : "no answer");
    g->taking = false;
    if (reply->elements)
        remove_taken(g, reply->element[0]->element[2]);
    take_some(g);
}

static void take_some(struct gateway *g)
{
    if (g->taking || !g->takeable)
        return;
    g->taking = true;
    size_t n = g->takeable < TAKE_MOST ? g->takeable : TAKE_MOST;
    if (!wire_sendf(g->way[0].relay, taken, g, "LANE.TAKE 1 %s COUNT %d", g->lane, (int)n))
        geo_fail("a connection is lost");
}

void geo_store(struct gateway *g)
{
    struct batch *b = mem_zero(sizeof *b);
    b->gateway = g;
    b->n = g->nfresh;
    b->message = mem_dup(g->fresh, g->nfresh * sizeof *g->fresh);
    for (size_t i = 0; i < b->n; i++)
        pack(&b->packed, b->message[i]);
    g->nfresh = 0;
    send_to_all(b, push);
}
