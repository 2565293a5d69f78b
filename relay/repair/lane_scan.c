#include "relay/repair/lane_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

#define LANES 500 /* in one answer to LIST; their IDS are asked for together */
#define IDS 10000 /* in one answer to IDS */
#define RECORD 32

struct lane_scan {
    struct wire *wire;
    struct lane_scan_calls calls;
    void *arg;
    size_t open; /* requests */
    bool closed; /* nobody wants it any more */
    bool failed;
    char cursor[32]; /* of the next LIST; "0": none */
    char trouble[160];
};

/* One IDS under way. */
struct asked {
    struct lane_scan *scan;
    void *lane;
    size_t len;
    char name[];
};

static bool list(struct lane_scan *);

static void fail(struct lane_scan *l, const char *why)
{
    if (!l->failed)
        snprintf(l->trouble, sizeof l->trouble, "%s", why);
    l->failed = true;
}

/* After every answer. */
static void go_on(struct lane_scan *l)
{
    if (l->open)
        return;
    if (!l->closed && !l->failed && strcmp(l->cursor, "0")) {
        if (list(l))
            return;
        fail(l, "the connection was lost");
    }
    if (!l->closed)
        l->calls.done(l->failed ? l->trouble : NULL, l->arg);
    free(l);
}

static uint64_t little(const unsigned char *p, unsigned n)
{
    uint64_t x = 0;
    while (n--)
        x = x << 8 | p[n];
    return x;
}

static bool ask_ids(struct asked *, long long from);

static void read_ids(struct asked *a, const redisReply *records)
{
    static struct scanned_entry page[IDS];
    size_t n = records->len / RECORD;
    const unsigned char *p = (const unsigned char *)records->str;
    for (size_t i = 0; i < n && i < IDS; i++, p += RECORD) {
        page[i].sequence = little(p, 8);
        memcpy(page[i].id, p + 8, ENTRYID_LEN);
        page[i].revision = (uint32_t)little(p + 24, 4);
        page[i].age = (uint32_t)little(p + 28, 4);
    }
    a->scan->calls.ids(a->lane, page, n, a->scan->arg);
}

static void on_ids(struct wire *w, redisReply *reply, void *arg)
{
    struct asked *a = arg;
    struct lane_scan *l = a->scan;
    l->open--;
    if (!reply) {
        fail(l, "the connection was lost");
    } else if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
               reply->element[0]->type != REDIS_REPLY_INTEGER ||
               reply->element[1]->type != REDIS_REPLY_STRING || reply->element[1]->len % RECORD) {
        fail(l, reply->str ? reply->str : "IDS gave no list");
    } else if (!l->closed && !l->failed) {
        read_ids(a, reply->element[1]);
        if (reply->element[0]->integer && !l->closed) {
            if (ask_ids(a, reply->element[0]->integer))
                return;
            fail(l, "the connection was lost");
        }
    }
    free(a);
    go_on(l);
}

static bool ask_ids(struct asked *a, long long from)
{
    if (!wire_sendf(a->scan->wire, on_ids, a, "LANE.IDS %b %lld COUNT %d", a->name, a->len, from,
                    IDS))
        return false;
    a->scan->open++;
    return true;
}

static void look_at(struct lane_scan *l, const char *name, size_t len)
{
    struct lanename parsed;
    if (!lanename_parse(name, len, &parsed))
        return;
    void *lane = l->calls.lane(name, len, &parsed, l->arg);
    lanename_free(&parsed);
    if (!lane)
        return;
    struct asked *a = mem_alloc(sizeof *a + len);
    *a = (struct asked){l, lane, len};
    memcpy(a->name, name, len);
    if (!ask_ids(a, 0)) {
        free(a);
        fail(l, "the connection was lost");
    }
}

static void on_list(struct wire *w, redisReply *reply, void *arg)
{
    struct lane_scan *l = arg;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[1]->type == REDIS_REPLY_ARRAY &&
                reply->element[0]->type == REDIS_REPLY_INTEGER;
    if (good) {
        snprintf(l->cursor, sizeof l->cursor, "%lld", reply->element[0]->integer);
        const redisReply *names = reply->element[1];
        for (size_t i = 0; i + 2 < names->elements && !l->closed && !l->failed; i += 3)
            if (names->element[i]->type == REDIS_REPLY_STRING &&
                names->element[i + 1]->type == REDIS_REPLY_INTEGER &&
                names->element[i + 1]->integer > 0)
                look_at(l, names->element[i]->str, (size_t)names->element[i]->len);
    } else {
        fail(l, reply && reply->str ? reply->str
                : reply             ? "LIST gave no list"
                                    : "the connection was lost");
    }
    l->open--;
    go_on(l);
}

static bool list(struct lane_scan *l)
{
    if (!wire_sendf(l->wire, on_list, l, "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d",
                    l->cursor, LANES))
        return false;
    l->open++;
    return true;
}

struct lane_scan *lane_scan_open(struct wire *w, const struct lane_scan_calls *calls, void *arg)
{
    struct lane_scan *l = mem_zero(sizeof *l);
    l->wire = w;
    l->calls = *calls;
    l->arg = arg;
    strcpy(l->cursor, "0");
    if (list(l))
        return l;
    free(l);
    return NULL;
}

void lane_scan_close(struct lane_scan *l)
{
    l->closed = true;
}
