#include "ctl/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/out.h"
#include "lib/mail/disk_question.h"
#include "lib/redis/control_keys.h"

#define PAGE 500
#define LANES 1000

/* ---- taking an entry in ---- */

/* Copies of one mail meet here: by id, and by lane because an id counts within its lane. */
struct index {
    size_t size;  /* a power of two */
    size_t *slot; /* index + 1 */
};

static size_t hash(const unsigned char id[ENTRYID_LEN])
{
    uint64_t x;
    memcpy(&x, id + ENTRYID_LEN - sizeof x, sizeof x); /* random by construction */
    return (size_t)x;
}

static void put(struct index *x, const struct queue *q, size_t i)
{
    size_t at = hash(q->item[i].id) & (x->size - 1);
    while (x->slot[at])
        at = (at + 1) & (x->size - 1);
    x->slot[at] = i + 1;
}

static void grow(struct index *x, const struct queue *q)
{
    free(x->slot);
    x->size = x->size ? 4 * x->size : 1024;
    x->slot = mem_zero(x->size * sizeof *x->slot);
    for (size_t i = 0; i < q->n; i++)
        put(x, q, i);
}

static struct item *find(const struct index *x, const struct queue *q, const char *lane, size_t len,
                         const unsigned char *id)
{
    for (size_t at = hash(id) & (x->size - 1); x->slot[at]; at = (at + 1) & (x->size - 1)) {
        struct item *item = &q->item[x->slot[at] - 1];
        if (!memcmp(item->id, id, ENTRYID_LEN) && item->lane_len == len &&
            !memcmp(item->lane, lane, len))
            return item;
    }
    return NULL;
}

void queue_start_item(struct item *item, const char *lane, size_t len, const unsigned char *id)
{
    *item = (struct item){.lane = mem_strndup(lane, len), .lane_len = len};
    memcpy(item->id, id, ENTRYID_LEN);
    lanename_parse(lane, len, &item->name);
}

static struct item *add(struct index *x, struct queue *q, const char *lane, size_t len,
                        const unsigned char *id)
{
    if (q->n == q->size) {
        q->size = q->size ? 2 * q->size : 256;
        q->item = mem_grow(q->item, q->size * sizeof *q->item);
    }
    struct item *item = &q->item[q->n++];
    queue_start_item(item, lane, len, id);
    if (2 * q->n > x->size)
        grow(x, q);
    else
        put(x, q, q->n - 1);
    return item;
}

bool queue_well_formed(const redisReply *e)
{
    return conn_shaped(e, "?si?is?s") && e->element[1]->len == ENTRYID_LEN;
}

static enum copy_state state_of(const char *word)
{
    return !strcmp(word, "leased")    ? COPY_LEASED
           : !strcmp(word, "delayed") ? COPY_DELAYED
                                      : COPY_WAITING;
}

void queue_take_in(struct item *item, struct conn *conn, const redisReply *e)
{
    uint32_t revision = (uint32_t)e->element[2]->integer;
    if (item->ncopies == LANENAME_OWNERS_MAX)
        return;
    if (!item->ncopies || revision > item->revision) {
        envelope_free(&item->envelope);
        item->wrong =
            envelope_decode(e->element[5]->str, (size_t)e->element[5]->len, &item->envelope);
        item->revision = revision;
    }
    if (e->element[4]->integer > item->age)
        item->age = e->element[4]->integer;
    item->copy[item->ncopies++] = (struct copy){conn, revision, state_of(e->element[7]->str)};
}

/* ---- reading ---- */

static bool read_lane(struct conn *conn, struct index *x, struct queue *q, const redisReply *lane)
{
    for (long long next = 1, from; next;) {
        redisReply *page = conn_call(conn, "LANE.READ %b %lld COUNT %d NOBODY", lane->str,
                                     (size_t)lane->len, next, PAGE);
        if (!page)
            return false;
        from = next;
        next = 0;
        if (conn_shaped(page, "il")) {
            /* no list goes backwards */
            next = page->element[0]->integer > from ? page->element[0]->integer : 0;
            for (size_t i = 0; i < page->element[1]->elements; i++) {
                const redisReply *e = page->element[1]->element[i];
                if (!queue_well_formed(e))
                    continue; /* a stranger's: it has no id of ours */
                const unsigned char *id = (const unsigned char *)e->element[1]->str;
                struct item *item = find(x, q, lane->str, (size_t)lane->len, id);
                if (!item)
                    item = add(x, q, lane->str, (size_t)lane->len, id);
                queue_take_in(item, conn, e);
            }
        }
        freeReplyObject(page);
    }
    return true;
}

static bool read_node(struct conn *conn, struct index *x, struct queue *q)
{
    char cursor[32] = "0";
    do {
        redisReply *list =
            conn_call(conn, "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d", cursor, LANES);
        if (!list)
            return false;
        bool good = conn_shaped(list, "?l");
        const redisReply *at = good ? list->element[0] : NULL;
        if (at && at->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", at->integer);
        else
            snprintf(cursor, sizeof cursor, "%s", at && at->str ? at->str : "0");
        for (size_t i = 0; good && i + 2 < list->element[1]->elements; i += 3)
            if (list->element[1]->element[i]->type == REDIS_REPLY_STRING &&
                !lanename_of_replicas(list->element[1]->element[i]->str) &&
                !disk_lane(list->element[1]->element[i]->str) &&
                !read_lane(conn, x, q, list->element[1]->element[i]))
                good = false;
        freeReplyObject(list);
        if (!good)
            return false;
    } while (strcmp(cursor, "0"));
    return true;
}

/* The relays say which next hops they cannot reach; what waits for those was not tried, so its
 * envelopes say nothing. */
static void read_away(struct conn *conn, struct queue *q)
{
    redisReply *r = conn_call(conn, "HGETALL " CONTROL_AWAY);
    for (size_t i = 0; r && r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements; i += 2)
        for (size_t k = 0; r->element[i]->str && r->element[i + 1]->str && k < q->n; k++) {
            struct item *item = &q->item[k];
            if (!item->away && item->name.nowners &&
                !strcmp(item->name.destination, r->element[i]->str))
                item->away = mem_strdup(r->element[i + 1]->str);
        }
    if (r)
        freeReplyObject(r);
}

static int by_arrival(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->envelope.arrived != y->envelope.arrived)
        return x->envelope.arrived < y->envelope.arrived ? -1 : 1;
    return memcmp(x->id, y->id, ENTRYID_LEN);
}

void queue_load(struct ctl *ctl, struct queue *q)
{
    struct index x = {0};
    *q = (struct queue){0};
    grow(&x, q);
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *conn = &ctl->conn[i];
        if (!conn_up(conn) || read_node(conn, &x, q))
            continue;
        out_error("dovelane: node %s (%s): %s; what only it holds is missing here\n", conn->name,
                  conn->address, conn->trouble);
        ctl_status(ctl, STATUS_LOOK);
    }
    free(x.slot);
    for (size_t i = 0; i < ctl->nconns; i++)
        if (conn_up(&ctl->conn[i]))
            read_away(&ctl->conn[i], q);
    if (q->n)
        qsort(q->item, q->n, sizeof *q->item, by_arrival);
}

bool queue_reload(struct ctl *ctl, struct item *item)
{
    item->ncopies = 0;
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *got = conn_call(&ctl->conn[i], "LANE.GET %b IDS 1 %b NOBODY", item->lane,
                                    item->lane_len, item->id, (size_t)ENTRYID_LEN);
        if (!got)
            continue;
        if (got->type == REDIS_REPLY_ARRAY && got->elements == 1 &&
            queue_well_formed(got->element[0]))
            queue_take_in(item, &ctl->conn[i], got->element[0]);
        freeReplyObject(got);
    }
    return item->ncopies > 0;
}

bool queue_body(struct item *item, struct buf *out)
{
    for (size_t i = 0; i < item->ncopies; i++) {
        redisReply *got = conn_call(item->copy[i].conn, "LANE.GET %b IDS 1 %b", item->lane,
                                    item->lane_len, item->id, (size_t)ENTRYID_LEN);
        if (!got)
            continue;
        bool held = got->type == REDIS_REPLY_ARRAY && got->elements == 1 &&
                    queue_well_formed(got->element[0]) &&
                    got->element[0]->element[6]->type == REDIS_REPLY_STRING;
        if (held)
            buf_add(out, got->element[0]->element[6]->str,
                    (size_t)got->element[0]->element[6]->len);
        freeReplyObject(got);
        if (held)
            return true;
    }
    return false;
}

void item_free(struct item *item)
{
    free(item->lane);
    free(item->away);
    lanename_free(&item->name);
    envelope_free(&item->envelope);
}

void queue_free(struct queue *q)
{
    for (size_t i = 0; i < q->n; i++) {
        item_free(&q->item[i]);
    }
    free(q->item);
    *q = (struct queue){0};
}

/* ---- what it is called ---- */

const char *item_queue_id(const struct item *item, char hex[ENTRYID_HEX])
{
    entryid_hex(item->id, hex);
    return item->envelope.queue_id && *item->envelope.queue_id ? item->envelope.queue_id : hex;
}

static bool tried(const struct envelope *e)
{
    for (size_t i = 0; i < e->nrecipients; i++)
        if (e->recipient[i].attempts)
            return true;
    return false;
}

const char *item_queue_name(const struct item *item)
{
    if (item->envelope.marks & ENVELOPE_HELD)
        return "hold";
    for (size_t i = 0; i < item->ncopies; i++)
        if (item->copy[i].state == COPY_LEASED)
            return "active";
    if (!item->wrong && envelope_is_retained(&item->envelope))
        return "retained";
    for (size_t i = 0; i < item->ncopies; i++)
        if (item->copy[i].state == COPY_DELAYED)
            return "deferred";
    return tried(&item->envelope) ? "deferred" : "incoming";
}

bool recipient_open(const struct recipient *r)
{
    return r->state == RECIPIENT_WAITING || r->state == RECIPIENT_FAILED;
}

const char *recipient_error(const struct item *item, const struct recipient *r)
{
    const char *s = r->text && *r->text ? r->text : item->away ? item->away : "";
    size_t n = strspn(s, "0123456789.");
    return (*s == '4' || *s == '5' || *s == '2') && n >= 5 && s[1] == '.' && s[n] == ' ' ? s + n + 1
                                                                                         : s;
}
