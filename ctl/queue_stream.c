#include "ctl/queue_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/out.h"
#include "lib/mail/disk_question.h"
#include "lib/redis/control_keys.h"

#define PAGE 500
#define LANES 1000

/* Halves of ids, which are random; {0} is empty. */
struct seen {
    size_t n, size; /* size: a power of two, at least twice n */
    uint64_t *slot;
};

struct names {
    size_t n;
    char **v;
};

struct hop {
    char *destination, *why;
};

struct stream {
    struct ctl *ctl;
    void (*each)(struct item *, void *arg);
    void *arg;
    struct names done; /* lanes */
    struct seen seen;  /* mails of this lane */
    size_t naway;
    struct hop *away;
    size_t n;
    struct item page[PAGE];
};

/* ---- which were seen ---- */

static uint64_t half(const unsigned char *id)
{
    uint64_t x;
    memcpy(&x, id + ENTRYID_LEN - sizeof x, sizeof x);
    return x ? x : 1;
}

static bool add_half(struct seen *s, uint64_t x)
{
    size_t at = (size_t)x & (s->size - 1);
    for (; s->slot[at]; at = (at + 1) & (s->size - 1))
        if (s->slot[at] == x)
            return false;
    s->slot[at] = x;
    s->n++;
    return true;
}

/* False: it was seen before. */
static bool see(struct seen *s, const unsigned char *id)
{
    if (2 * (s->n + 1) > s->size) {
        struct seen larger = {.size = s->size ? 2 * s->size : 1024};
        larger.slot = mem_zero(larger.size * sizeof *larger.slot);
        for (size_t i = 0; i < s->size; i++)
            if (s->slot[i])
                add_half(&larger, s->slot[i]);
        free(s->slot);
        *s = larger;
    }
    return add_half(s, half(id));
}

static void forget(struct seen *s)
{
    free(s->slot);
    *s = (struct seen){0};
}

/* ---- a page ---- */

static bool is_owner(const struct item *item, const char *node)
{
    for (size_t i = 0; i < item->name.nowners; i++)
        if (!strcmp(item->name.owner[i], node))
            return true;
    return !item->name.nowners; /* not named by our rule: anywhere */
}

/* Copies of the page's mails in another node. */
static void add_copies(struct stream *s, struct conn *other)
{
    static const char *const head[] = {"LANE.GET", NULL, "IDS"};
    const char *word[PAGE + 5];
    size_t len[PAGE + 5], n = 0;
    char number[24];
    for (; n < 3; n++)
        word[n] = head[n], len[n] = head[n] ? strlen(head[n]) : 0;
    word[1] = s->page[0].lane;
    len[1] = s->page[0].lane_len;
    snprintf(number, sizeof number, "%zu", s->n);
    word[n] = number, len[n++] = strlen(number);
    for (size_t i = 0; i < s->n; i++)
        word[n] = (const char *)s->page[i].id, len[n++] = ENTRYID_LEN;
    word[n] = "NOBODY", len[n++] = strlen("NOBODY");
    redisReply *got = conn_call_words(other, (int)n, word, len);
    for (size_t i = 0; got && got->type == REDIS_REPLY_ARRAY && i < got->elements; i++) {
        const redisReply *e = got->element[i];
        for (size_t k = 0; queue_well_formed(e) && k < s->n; k++) {
            /* They come in the order in which they were asked for. */
            struct item *item = &s->page[(i + k) % s->n];
            if (!memcmp(item->id, e->element[1]->str, ENTRYID_LEN)) {
                queue_take_in(item, other, e);
                break;
            }
        }
    }
    if (got)
        freeReplyObject(got);
}

static void add_away(const struct stream *s, struct item *item)
{
    for (size_t i = 0; i < s->naway && !item->away; i++)
        if (item->name.nowners && !strcmp(item->name.destination, s->away[i].destination))
            item->away = mem_strdup(s->away[i].why);
}

static void tell_page(struct stream *s, const struct conn *from)
{
    for (size_t i = 0; s->n && i < s->ctl->nconns; i++) {
        struct conn *other = &s->ctl->conn[i];
        if (other != from && conn_up(other) && is_owner(&s->page[0], other->name))
            add_copies(s, other);
    }
    for (size_t i = 0; i < s->n; i++) {
        add_away(s, &s->page[i]);
        s->each(&s->page[i], s->arg);
        item_free(&s->page[i]);
    }
    s->n = 0;
}

/* ---- a lane ---- */

/* Of a mail's copies the first node's is told of, with the others' beside it: in the order of the
 * configuration for all nodes alike. */
static bool read_lane(struct stream *s, struct conn *conn, const char *lane, size_t lane_len)
{
    for (long long next = 1, from; next;) {
        redisReply *page =
            conn_call(conn, "LANE.READ %b %lld COUNT %d NOBODY", lane, lane_len, next, PAGE);
        if (!page)
            return false;
        from = next;
        next = 0;
        if (conn_shaped(page, "il")) {
            /* no list goes backwards */
            next = page->element[0]->integer > from ? page->element[0]->integer : 0;
            for (size_t i = 0; i < page->element[1]->elements && i < PAGE; i++) {
                const redisReply *e = page->element[1]->element[i];
                const unsigned char *id =
                    queue_well_formed(e) ? (const unsigned char *)e->element[1]->str : NULL;
                if (!id || !see(&s->seen, id))
                    continue;
                queue_start_item(&s->page[s->n], lane, lane_len, id);
                queue_take_in(&s->page[s->n++], conn, e);
            }
        }
        freeReplyObject(page);
        tell_page(s, conn);
    }
    return true;
}

static void complain(struct stream *s, const struct conn *c)
{
    out_error("dovelane: node %s (%s): %s; what only it holds is missing here\n", c->name,
              c->address, c->trouble);
    ctl_status(s->ctl, STATUS_LOOK);
}

/* In every node that may hold it, from the one on that lists it first. */
static void read_lane_everywhere(struct stream *s, const char *lane, size_t len, size_t first)
{
    struct item item;
    static const unsigned char none[ENTRYID_LEN];
    for (size_t i = 0; i < s->done.n; i++)
        if (!strcmp(s->done.v[i], lane))
            return;
    s->done.v = mem_grow(s->done.v, (s->done.n + 1) * sizeof *s->done.v);
    s->done.v[s->done.n++] = mem_strndup(lane, len);
    queue_start_item(&item, lane, len, none);
    for (size_t i = first; i < s->ctl->nconns; i++) {
        struct conn *c = &s->ctl->conn[i];
        if (conn_up(c) && is_owner(&item, c->name) && !read_lane(s, c, lane, len))
            complain(s, c);
    }
    item_free(&item);
    forget(&s->seen);
}

/* ---- all ---- */

static bool read_node(struct stream *s, size_t node)
{
    char cursor[32] = "0";
    struct conn *conn = &s->ctl->conn[node];
    do {
        redisReply *list =
            conn_call(conn, "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d", cursor, LANES);
        if (!conn_shaped(list, "?l")) {
            if (list)
                freeReplyObject(list);
            return false;
        }
        const redisReply *at = list->element[0], *lanes = list->element[1];
        if (at->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", at->integer);
        else
            snprintf(cursor, sizeof cursor, "%s", at->str ? at->str : "0");
        for (size_t i = 0; i + 2 < lanes->elements; i += 3)
            if (lanes->element[i]->type == REDIS_REPLY_STRING &&
                !lanename_of_replicas(lanes->element[i]->str) && !disk_lane(lanes->element[i]->str))
                read_lane_everywhere(s, lanes->element[i]->str, (size_t)lanes->element[i]->len,
                                     node);
        freeReplyObject(list);
        if (!conn_up(conn)) /* the lanes' reading has said so */
            return true;
    } while (strcmp(cursor, "0"));
    return true;
}

/* The relays say which next hops they cannot reach. */
static void read_away(struct stream *s, struct conn *conn)
{
    redisReply *r = conn_call(conn, "HGETALL " CONTROL_AWAY);
    for (size_t i = 0; r && r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements; i += 2) {
        if (!r->element[i]->str || !r->element[i + 1]->str)
            continue;
        s->away = mem_grow(s->away, (s->naway + 1) * sizeof *s->away);
        s->away[s->naway++] =
            (struct hop){mem_strdup(r->element[i]->str), mem_strdup(r->element[i + 1]->str)};
    }
    if (r)
        freeReplyObject(r);
}

void queue_stream(struct ctl *ctl, void (*each)(struct item *, void *arg), void *arg)
{
    struct stream *s = mem_zero(sizeof *s);
    s->ctl = ctl;
    s->each = each;
    s->arg = arg;
    for (size_t i = 0; i < ctl->nconns; i++)
        if (conn_up(&ctl->conn[i]))
            read_away(s, &ctl->conn[i]);
    for (size_t i = 0; i < ctl->nconns; i++)
        if (conn_up(&ctl->conn[i]) && !read_node(s, i))
            complain(s, &ctl->conn[i]);
    for (size_t i = 0; i < s->done.n; i++)
        free(s->done.v[i]);
    for (size_t i = 0; i < s->naway; i++) {
        free(s->away[i].destination);
        free(s->away[i].why);
    }
    free(s->done.v);
    free(s->away);
    free(s);
}
