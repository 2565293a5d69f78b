#include "ctl/top_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/conn.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/mail/lanename.h"
#include "lib/redis/beat_reader.h"
#include "lib/redis/control_keys.h"
#include "lib/redis/wire.h"

#define LANES 1000                      /* in one answer */
#define DETAILS 100                     /* lanes whose age is asked in a round, the longest */
#define ANSWER_MOST ((size_t)256 << 20) /* bytes */
#define BEATS_MOST 256

/* One of them per server. */
struct source {
    struct top_reader *reader;
    size_t server;
    struct wire *wire;
    struct beat_reader beats;
    size_t open; /* requests without an answer */
    unsigned long rounds;
    size_t ndetails;
    char *detail[DETAILS];
    long long length[DETAILS];
    size_t answered;      /* of the details, in their order */
    bool replicas_denied; /* our user there may not look at their lanes: it is not asked again */
};

struct top_reader {
    struct top *top;
    size_t n;
    struct source *source;
};

/* ---- one more answer ---- */

static void forget_details(struct source *s)
{
    for (size_t i = 0; i < s->ndetails; i++)
        free(s->detail[i]);
    s->ndetails = s->answered = 0;
}

static void answered(struct source *s, const redisReply *reply)
{
    s->open--;
    if (!s->open && reply)
        s->rounds++;
}

static void send(struct source *s, wire_reply_fn *fn, int n, const char **word)
{
    size_t len[8];
    for (int i = 0; i < n; i++)
        len[i] = strlen(word[i]);
    if (wire_send(s->wire, fn, s, n, word, len))
        s->open++;
}

/* ---- the server itself ---- */

static void on_info(struct wire *w, redisReply *r, void *arg)
{
    struct source *s = arg;
    struct top *t = s->reader->top;
    (void)w;
    if (r && r->type == REDIS_REPLY_ERROR) {
        top_reached(t, s->server, r->str);
    } else if (r && r->type == REDIS_REPLY_ARRAY) {
        struct top_server said = {conn_number(r, "entries"), conn_number(r, "bytes"),
                                  conn_number(r, "used-memory"), conn_number(r, "maxmemory")};
        top_said(t, s->server, &said, clock_monotonic());
    }
    answered(s, r);
}

static size_t read_news(const redisReply *list, struct liveness_news *news)
{
    size_t n = 0;
    for (size_t i = 0; i < list->elements && n < BEATS_MOST; i++) {
        const redisReply *b = list->element[i];
        if (conn_shaped(b, "ssiis"))
            news[n++] = (struct liveness_news){b->element[0]->str,
                                               b->element[1]->str,
                                               b->element[4]->str,
                                               b->element[0]->len,
                                               b->element[1]->len,
                                               b->element[4]->len,
                                               (uint64_t)b->element[2]->integer,
                                               (double)b->element[3]->integer / 1000.};
    }
    return n;
}

static void on_beats(struct wire *w, redisReply *r, void *arg)
{
    struct source *s = arg;
    const char *error = r && r->type == REDIS_REPLY_ERROR ? r->str : NULL;
    (void)w;
    if (r && beat_reader_turns(&s->beats, error))
        send(s, on_beats, 1, (const char *[]){beat_reader_command(&s->beats)});
    if (conn_shaped(r, "ll")) {
        static struct liveness_news news[BEATS_MOST];
        size_t n = read_news(r->element[0], news);
        top_beats(s->reader->top, s->server, news, n, clock_monotonic());
        top_whole(s->reader->top, s->server, r->element[1]->elements / 2);
    }
    answered(s, r);
}

static void on_away(struct wire *w, redisReply *r, void *arg)
{
    struct source *s = arg;
    (void)w;
    if (r && r->type == REDIS_REPLY_ARRAY) {
        top_away_begin(s->reader->top, s->server);
        for (size_t i = 0; i + 1 < r->elements; i += 2)
            if (r->element[i]->str && r->element[i + 1]->str)
                top_away(s->reader->top, s->server, r->element[i]->str, r->element[i + 1]->str);
    }
    answered(s, r);
}

/* ---- its lanes ---- */

/* Answers come in the order of the questions. */
static void on_detail(struct wire *w, redisReply *r, void *arg)
{
    struct source *s = arg;
    size_t i = s->answered++;
    (void)w;
    if (r && r->type == REDIS_REPLY_ERROR && i < s->ndetails && !strncmp(r->str, "NOPERM", 6))
        s->replicas_denied |= lanename_of_replicas(s->detail[i]);
    if (r && r->type == REDIS_REPLY_ARRAY && i < s->ndetails) {
        struct top_lane lane = {s->detail[i], conn_number(r, "length"), conn_number(r, "bytes"),
                                conn_number(r, "next-sequence"),
                                (double)conn_number(r, "oldest-age") / 1000.};
        if (lane.length >= 0)
            top_lane_detail(s->reader->top, s->server, &lane, clock_monotonic());
    }
    answered(s, r);
}

/* Among the longest, in the place of the shortest. */
static void want_detail(struct source *s, const char *name, long long length)
{
    size_t at = s->ndetails;
    if (s->replicas_denied && lanename_of_replicas(name))
        return;
    if (at == DETAILS) {
        at = 0;
        for (size_t i = 1; i < DETAILS; i++)
            if (s->length[i] < s->length[at])
                at = i;
        if (length <= s->length[at])
            return;
        free(s->detail[at]);
    } else {
        s->ndetails++;
    }
    s->detail[at] = mem_strdup(name);
    s->length[at] = length;
}

static void ask_details(struct source *s)
{
    s->answered = 0;
    for (size_t i = 0; i < s->ndetails; i++)
        send(s, on_detail, 2, (const char *[]){"LANE.INFO", s->detail[i]});
}

static void ask_lanes(struct source *s, const char *cursor);

static void on_lanes(struct wire *w, redisReply *r, void *arg)
{
    struct source *s = arg;
    char cursor[32] = "0";
    (void)w;
    if (conn_shaped(r, "?l")) {
        const redisReply *at = r->element[0], *list = r->element[1];
        if (at->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", at->integer);
        else if (at->str)
            snprintf(cursor, sizeof cursor, "%s", at->str);
        for (size_t i = 0; i + 2 < list->elements; i += 3) {
            const redisReply *name = list->element[i];
            struct top_lane lane = {name->str, list->element[i + 1]->integer,
                                    list->element[i + 2]->integer, -1, -1};
            if (name->type != REDIS_REPLY_STRING)
                continue;
            top_lane(s->reader->top, s->server, &lane);
            want_detail(s, lane.name, lane.length);
        }
        if (!strcmp(cursor, "0")) {
            top_lanes_end(s->reader->top, s->server, clock_monotonic());
            ask_details(s);
        } else {
            ask_lanes(s, cursor);
        }
    }
    answered(s, r);
}

static void ask_lanes(struct source *s, const char *cursor)
{
    char most[16];
    snprintf(most, sizeof most, "%d", LANES);
    send(s, on_lanes, 6,
         (const char *[]){"LANE.LIST", cursor, "MATCH", LANENAME_PREFIX "*", "COUNT", most});
}

/* ---- rounds ---- */

static void ask(struct source *s)
{
    if (!wire_up(s->wire) || s->open)
        return;
    forget_details(s);
    send(s, on_info, 1, (const char *[]){"LANE.INFO"});
    send(s, on_beats, 1, (const char *[]){beat_reader_command(&s->beats)});
    send(s, on_away, 2, (const char *[]){"HGETALL", CONTROL_AWAY});
    top_lanes_begin(s->reader->top, s->server);
    ask_lanes(s, "0");
}

static void on_state(struct wire *w, bool up, const char *why, void *arg)
{
    struct source *s = arg;
    top_reached(s->reader->top, s->server, up ? NULL : why);
    if (up && s->wire == w)
        ask(s);
}

struct top_reader *top_reader_open(struct ev_loop *loop, struct top *t)
{
    struct top_reader *r = mem_zero(sizeof *r);
    *r = (struct top_reader){t, top_servers(t),
                             mem_zero((top_servers(t) + 1) * sizeof(struct source))};
    for (size_t i = 0; i < r->n; i++) {
        struct source *s = &r->source[i];
        struct config_link link = top_server_link(t, i);
        s->reader = r;
        s->server = i;
        s->wire = wire_open(loop, &link, false, on_state, s);
        wire_bound(s->wire, ANSWER_MOST);
    }
    return r;
}

void top_reader_close(struct top_reader *r)
{
    for (size_t i = 0; i < r->n; i++) {
        wire_close(r->source[i].wire);
        forget_details(&r->source[i]);
    }
    free(r->source);
    free(r);
}

void top_reader_ask(struct top_reader *r)
{
    for (size_t i = 0; i < r->n; i++)
        ask(&r->source[i]);
}

unsigned long top_reader_rounds(const struct top_reader *r, size_t server)
{
    return r->source[server].rounds;
}
