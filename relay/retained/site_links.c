#include "relay/retained/site_links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "lib/base/number.h"
#include "lib/redis/node.h"

#define PING 1.       /* seconds: silence is measured */
#define BLOCK 10000   /* ms; TAKE then says "nothing" */
#define LEASE 60000   /* ms: an answer is acked at once */
#define COUNT 500     /* answers of one TAKE, and questions of one PUSH */
#define BYTES 262144  /* of one TAKE's answer */
#define EXPIRE 600000 /* ms: nobody answers a question of then any more */
#define MINUTE 60.
#define AGAIN 1.     /* seconds after an error */
#define PUSH_WORDS 7 /* before the entries */
#define WORDS_OF_ENTRY 4

struct asked {
    unsigned char id[ENTRYID_LEN];
    size_t len;
    char body[DISK_BODY_MAX];
};

struct site_link {
    struct relay *relay;
    struct site_links *of;
    uint32_t number;
    struct node *ask, *hear;
    char *asked, *answered; /* the lanes */
    bool refused;           /* the log said so */
    double told;            /* site_links_may_tell(): clock_monotonic */
    double refused_at;      /* when the log last said that TAKE was refused; 0: never */
    ev_timer again;         /* active: TAKE was refused */
    size_t n;               /* questions of this turn */
    struct asked question[COUNT];
};

struct site_links {
    site_answer_fn *answer;
    size_t n;
    struct site_link **link;
};

/* ---- questions ---- */

static void on_pushed(struct wire *w, redisReply *reply, void *arg)
{
    struct site_link *l = arg;
    if (!reply)
        return;
    bool refused = reply->type == REDIS_REPLY_ERROR;
    if (refused && !l->refused)
        log_warning("site %s takes no questions: %s", site_links_name(l->relay, l->number),
                    reply->str);
    l->refused = refused;
}

static void push(struct site_link *l)
{
    size_t n = PUSH_WORDS + WORDS_OF_ENTRY * l->n;
    const char **v = mem_alloc(n * sizeof *v);
    size_t *len = mem_alloc(n * sizeof *len);
    char count[NUMBER_TEXT], expire[NUMBER_TEXT];
    const char *const head[PUSH_WORDS] = {"LANE.PUSH", "1",       l->asked, "EXPIRE",
                                          expire,      "ENTRIES", count};
    expire[number_text(expire, EXPIRE)] = '\0';
    count[number_text(count, l->n)] = '\0';
    for (size_t i = 0; i < PUSH_WORDS; i++) {
        v[i] = head[i];
        len[i] = strlen(head[i]);
    }
    for (size_t i = 0; i < l->n; i++) {
        const struct asked *q = &l->question[i];
        const char *const word[WORDS_OF_ENTRY] = {"1", (const char *)q->id, "", q->body};
        const size_t length[WORDS_OF_ENTRY] = {1, ENTRYID_LEN, 0, q->len};
        memcpy(&v[PUSH_WORDS + WORDS_OF_ENTRY * i], word, sizeof word);
        memcpy(&len[PUSH_WORDS + WORDS_OF_ENTRY * i], length, sizeof length);
    }
    if (node_ready(l->ask) && wire_send(node_wire(l->ask), on_pushed, l, (int)n, v, len))
        metric_add(relay_questions, (long long)l->n);
    l->n = 0;
    free(v);
    free(len);
}

static struct site_link *link_of(const struct relay *r, uint32_t site)
{
    for (size_t i = 0; i < r->site_links->n; i++)
        if (r->site_links->link[i]->number == site)
            return r->site_links->link[i];
    return NULL;
}

void site_links_ask(struct relay *r, uint32_t site, const struct disk_question *q)
{
    struct site_link *l = link_of(r, site);
    if (!l || !node_ready(l->ask))
        return;
    struct asked *a = &l->question[l->n];
    a->len = disk_question_write(a->body, q);
    if (!a->len)
        return;
    disk_id(a->id, a->body, a->len);
    if (++l->n == COUNT)
        push(l);
}

void site_links_flush(struct relay *r)
{
    for (size_t i = 0; i < r->site_links->n; i++)
        if (r->site_links->link[i]->n)
            push(r->site_links->link[i]);
}

/* ---- answers ---- */

static void take(struct site_link *);

static void on_acked(struct wire *w, redisReply *reply, void *arg)
{
}

/* At once: an answer that gets lost here is asked for again. */
static void ack(struct site_link *l, const redisReply *entries)
{
    const char **v = mem_alloc((4 + entries->elements) * sizeof *v);
    size_t *len = mem_alloc((4 + entries->elements) * sizeof *len), n = 4;
    char count[NUMBER_TEXT];
    const char *const head[] = {"LANE.ACK", l->answered, "IDS", count};
    for (size_t i = 0; i < entries->elements; i++) {
        const redisReply *e = entries->element[i];
        if (e->type != REDIS_REPLY_ARRAY || e->elements < 7 ||
            e->element[1]->type != REDIS_REPLY_STRING)
            continue;
        v[n] = e->element[1]->str;
        len[n++] = (size_t)e->element[1]->len;
    }
    count[number_text(count, n - 4)] = '\0';
    for (size_t i = 0; i < 4; i++) {
        v[i] = head[i];
        len[i] = strlen(head[i]);
    }
    if (n > 4)
        wire_send(node_wire(l->hear), on_acked, l, (int)n, v, len);
    free(v);
    free(len);
}

static void read_answers(struct site_link *l, const redisReply *entries)
{
    for (size_t i = 0; i < entries->elements; i++) {
        const redisReply *e = entries->element[i];
        struct disk_answer a;
        if (e->type != REDIS_REPLY_ARRAY || e->elements < 7 ||
            e->element[6]->type != REDIS_REPLY_STRING)
            continue;
        /* Who may answer at that node is that site. */
        if (!disk_answer_read(&a, e->element[6]->str, (size_t)e->element[6]->len) ||
            a.site != l->number)
            log_debug("site %s sent what is not an answer", site_links_name(l->relay, l->number));
        else
            l->of->answer(l->relay, &a);
    }
}

static void take_again_later(struct site_link *l)
{
    ev_timer_stop(l->relay->loop, &l->again);
    ev_timer_set(&l->again, AGAIN, 0.);
    ev_timer_start(l->relay->loop, &l->again);
}

/* It is tried each second, for as long as it may last. */
static void tell_refused(struct site_link *l, const char *why)
{
    double now = clock_monotonic();
    if (l->refused_at > 0. && now - l->refused_at < MINUTE)
        return;
    l->refused_at = now;
    log_warning("the answers of site %s cannot be taken: %s", site_links_name(l->relay, l->number),
                why);
}

static void on_taken(struct wire *w, redisReply *reply, void *arg)
{
    struct site_link *l = arg;
    if (!reply)
        return; /* begun anew with the next connection */
    if (reply->type == REDIS_REPLY_ERROR) {
        tell_refused(l, reply->str);
        take_again_later(l);
        return;
    }
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const redisReply *lane = reply->element[i];
        if (lane->type != REDIS_REPLY_ARRAY || lane->elements < 3 ||
            lane->element[2]->type != REDIS_REPLY_ARRAY)
            continue;
        ack(l, lane->element[2]);
        read_answers(l, lane->element[2]);
    }
    take(l);
}

static void take(struct site_link *l)
{
    if (!node_ready(l->hear) || l->relay->stopping)
        return;
    wire_sendf(node_wire(l->hear), on_taken, l,
               "LANE.TAKE 1 %s COUNT %d BYTES %d LEASE %d BLOCK %d", l->answered, COUNT, BYTES,
               LEASE, BLOCK);
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    take(t->data);
}

/* What was asked over a connection that is lost is asked again. */
static void on_ask_state(struct node *node, bool ready, bool new_life, void *arg)
{
}

static void on_hear_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct site_link *l = arg;
    ev_timer_stop(l->relay->loop, &l->again);
    if (ready)
        take(l);
}

/* ---- links ---- */

double site_links_silence(const struct relay *r, uint32_t site)
{
    const struct site_link *l = link_of(r, site);
    return l ? node_silence(l->ask) : INFINITY;
}

bool site_links_may_tell(struct relay *r, uint32_t site)
{
    struct site_link *l = link_of(r, site);
    double now = clock_monotonic();
    if (!l || (l->told > 0. && now - l->told < MINUTE))
        return false;
    l->told = now;
    return true;
}

const char *site_links_name(const struct relay *r, uint32_t site)
{
    for (size_t i = 0; i < r->config->nreplicas; i++)
        if (r->config->replica[i].id == site)
            return r->config->replica[i].name;
    return "of no replica section";
}

static struct site_link *link_open(struct relay *r, size_t replica)
{
    struct site_link *l = mem_zero(sizeof *l);
    const struct config_replica *is = &r->config->replica[replica];
    struct config_link link = config_replica_link(r->config, replica);
    const char *name = *is->node ? is->node : is->name;
    link.user_file = r->config->node_user_file; /* a relay's, which is the same at every node */
    link.at = NULL;
    l->relay = r;
    l->of = r->site_links;
    l->number = (uint32_t)is->id;
    l->asked = mem_printf(DISK_ASKED "%u", l->number);
    l->answered = mem_printf(DISK_ANSWERED "%s", r->node);
    ev_timer_init(&l->again, on_again, 0., 0.);
    l->again.data = l;
    l->ask = node_open(r->loop, &(struct node_options){.name = name,
                                                       .link = link,
                                                       .purpose = "relay-ask",
                                                       .ping_every = PING,
                                                       .state = on_ask_state,
                                                       .arg = l});
    l->hear = node_open(r->loop, &(struct node_options){.name = name,
                                                        .link = link,
                                                        .purpose = "relay-hear",
                                                        .blocks = true,
                                                        .state = on_hear_state,
                                                        .arg = l});
    return l;
}

static void link_close(struct site_link *l)
{
    ev_timer_stop(l->relay->loop, &l->again);
    node_close(l->ask);
    node_close(l->hear);
    free(l->asked);
    free(l->answered);
    free(l);
}

static void open_all(struct relay *r)
{
    struct site_links *s = r->site_links;
    const struct config *c = r->config;
    if (!config_any_replicated(c))
        return;
    s->link = mem_zero(c->nreplicas * sizeof *s->link);
    for (size_t i = 0; i < c->nreplicas; i++)
        if (*c->replica[i].lmtp)
            s->link[s->n++] = link_open(r, i);
}

static void close_all(struct relay *r)
{
    struct site_links *s = r->site_links;
    for (size_t i = 0; i < s->n; i++)
        link_close(s->link[i]);
    free(s->link);
    s->link = NULL;
    s->n = 0;
}

void site_links_reload(struct relay *r)
{
    close_all(r);
    open_all(r);
}

struct site_links *site_links_open(struct relay *r, site_answer_fn *answer)
{
    r->site_links = mem_zero(sizeof *r->site_links);
    r->site_links->answer = answer;
    open_all(r);
    return r->site_links;
}

void site_links_close(struct relay *r)
{
    close_all(r);
    free(r->site_links);
    r->site_links = NULL;
}
