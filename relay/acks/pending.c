#include "relay/acks/pending.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/mem.h"
#include "lib/base/number.h"

void pending_init(struct pending_queue *q)
{
    TAILQ_INIT(&q->list);
    q->n = q->bytes = q->before = 0;
}

struct pending_command *pending_make(const char *lane, size_t lane_len, size_t n)
{
    struct pending_command *o = mem_alloc(sizeof *o + n * ENTRYID_LEN);
    o->lane = mem_strndup(lane, lane_len);
    o->lane_len = lane_len;
    o->n = n;
    o->bytes = sizeof *o + n * ENTRYID_LEN + lane_len;
    o->argv = NULL;
    o->before = false;
    o->until = 0.;
    return o;
}

struct pending_command *pending_command(size_t entries, int argc, const char **argv,
                                        const size_t *argvlen)
{
    size_t count = (size_t)argc, bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += argvlen[i];
    struct pending_command *o = mem_zero(sizeof *o);
    o->n = entries;
    o->bytes = sizeof *o + count * (sizeof *o->argv + sizeof *o->argvlen) + bytes;
    o->argc = argc;
    o->argv = mem_alloc(o->bytes - sizeof *o);
    o->argvlen = (size_t *)(o->argv + count);
    char *p = (char *)(o->argvlen + count);
    for (size_t i = 0; i < count; p += argvlen[i++]) {
        o->argv[i] = memcpy(p, argv[i], argvlen[i]);
        o->argvlen[i] = argvlen[i];
    }
    return o;
}

/* LANE.META lane n (id revision meta)... */
struct pending_command *pending_absent(const struct pending_command *o, const redisReply *answer)
{
    size_t n = answer->type == REDIS_REPLY_ARRAY ? answer->elements : 0, absent = 0;
    char count[NUMBER_TEXT];
    struct pending_command *rest = NULL;
    if (!o->argv || (size_t)o->argc != 3 + 3 * n)
        return NULL;
    const char **v = mem_alloc((3 + 3 * n) * sizeof *v);
    size_t *len = mem_alloc((3 + 3 * n) * sizeof *len);
    for (size_t i = 0; i < n; i++) {
        if (!answer->element[i]->str || strcmp(answer->element[i]->str, "ABSENT"))
            continue;
        memcpy(v + 3 + 3 * absent, o->argv + 3 + 3 * i, 3 * sizeof *v);
        memcpy(len + 3 + 3 * absent, o->argvlen + 3 + 3 * i, 3 * sizeof *len);
        absent++;
    }
    if (absent) {
        v[0] = o->argv[0], len[0] = o->argvlen[0];
        v[1] = o->argv[1], len[1] = o->argvlen[1];
        v[2] = count, len[2] = number_text(count, absent);
        rest = pending_command(absent, (int)(3 + 3 * absent), v, len);
        rest->before = o->before;
        rest->until = o->until;
    }
    free(v);
    free(len);
    return rest;
}

void pending_end(struct pending_command *o)
{
    free(o->lane);
    free(o->argv);
    free(o);
}

struct pending_command *pending_next(struct pending_queue *q)
{
    struct pending_command *o = TAILQ_FIRST(&q->list);
    if (o) {
        TAILQ_REMOVE(&q->list, o, next);
        ASSERT(q->n >= o->n && q->bytes >= o->bytes && q->before >= o->before);
        q->n -= o->n;
        q->bytes -= o->bytes;
        q->before -= o->before;
    }
    return o;
}

void pending_free(struct pending_queue *q)
{
    struct pending_command *o;
    while ((o = pending_next(q)))
        pending_end(o);
}

size_t pending_keep(struct pending_queue *q, struct pending_command *o)
{
    size_t forgotten = 0;
    TAILQ_INSERT_TAIL(&q->list, o, next);
    q->n += o->n;
    q->bytes += o->bytes;
    q->before += o->before;
    while (q->n > PENDING_MOST || q->bytes > PENDING_BYTES) {
        struct pending_command *oldest = pending_next(q);
        forgotten += oldest->n;
        pending_end(oldest);
    }
    return forgotten;
}

bool pending_send(const struct pending_command *o, struct wire *w, wire_reply_fn *fn, void *arg)
{
    char count[NUMBER_TEXT];
    if (o->argv)
        return wire_send(w, fn, arg, o->argc, (const char **)o->argv, o->argvlen);
    const char **v = mem_alloc((4 + o->n) * sizeof *v);
    size_t *len = mem_alloc((4 + o->n) * sizeof *len);
    v[0] = "LANE.ACK", len[0] = 8;
    v[1] = o->lane, len[1] = o->lane_len;
    v[2] = "IDS", len[2] = 3;
    v[3] = count, len[3] = number_text(count, o->n);
    for (size_t i = 0; i < o->n; i++) {
        v[4 + i] = (const char *)o->id[i];
        len[4 + i] = ENTRYID_LEN;
    }
    bool sent = wire_send(w, fn, arg, (int)(4 + o->n), v, len);
    free(v);
    free(len);
    return sent;
}
