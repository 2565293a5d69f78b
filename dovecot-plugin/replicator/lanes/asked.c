/* asked - takes from one lane with BLOCK over a connection of its own, so that nobody is woken by
 * the node's other lanes; answers go over the outbox's connection. */
#include "dovecot-plugin/replicator/lanes/asked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/redis/node.h"
#include "dovecot-plugin/replicator/lanes/claims.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"

#define BLOCK 10000 /* ms; TAKE then gives nothing, so that a dead connection is found */
#define PATIENCE 5. /* seconds beyond that */
#define AGAIN 60.   /* seconds after a refusal */
#define LEASE 60000 /* ms */
#define COUNT 256
#define BYTES (256 * 1024)
#define ANSWER_LASTS 3600000 /* ms: who has not taken it by then asks again */

struct asked {
    struct replicator *r;
    const struct asked_calls *calls;
    struct node *node;
    char *lane;
    bool waits; /* a TAKE is not answered */
    bool stopped;
    double said;
    ev_timer patience;
};

struct answer {
    struct asked *asked;
    unsigned char question[ENTRYID_LEN];
};

static void arm(struct asked *a, double after)
{
    ev_timer_stop(a->r->loop, &a->patience);
    ev_timer_set(&a->patience, after, 0.);
    ev_timer_start(a->r->loop, &a->patience);
}

/* ---- taking ---- */

static void on_acked(struct wire *w, redisReply *reply, void *arg)
{
    (void)w, (void)reply, (void)arg; /* what was not acked comes again */
}

static void ack(struct asked *a, const void *id)
{
    struct node *own = outbox_own(a->r->outbox);
    const char *argv[] = {"LANE.ACK", a->lane, "IDS", "1", id};
    const size_t len[] = {8, strlen(a->lane), 3, 1, ENTRYID_LEN};
    if (node_ready(own))
        wire_send(node_wire(own), on_acked, NULL, 5, argv, len);
}

static void take_entry(struct asked *a, const redisReply *e)
{
    struct disk_question q;
    if (e->type != REDIS_REPLY_ARRAY || e->elements < 7 ||
        e->element[1]->type != REDIS_REPLY_STRING || e->element[6]->type != REDIS_REPLY_STRING)
        return;
    const redisReply *id = e->element[1], *body = e->element[6];
    unsigned char is[ENTRYID_LEN];
    disk_id(is, body->str, (size_t)body->len);
    if (id->len == ENTRYID_LEN && !memcmp(id->str, is, sizeof is) &&
        disk_question_read(&q, body->str, (size_t)body->len)) {
        metric_add(replicator_questions, 1);
        a->calls->came(a->r, &q);
        return;
    }
    if (replicator_may_say(&a->said, 60.))
        log_error("an entry of %s that is no question is dropped", a->lane);
    if (id->len == ENTRYID_LEN) /* else it stays, leased */
        ack(a, id->str);
}

static void ask(struct asked *a);

static void on_taken(struct wire *w, redisReply *reply, void *arg)
{
    struct asked *a = arg;
    (void)w;
    a->waits = false;
    if (!reply)
        return;
    if (reply->type != REDIS_REPLY_ARRAY) {
        if (replicator_may_say(&a->said, 3600.))
            log_info(
                "questions of relays cannot be taken from %s: %s%s", a->lane,
                reply->str ? reply->str : "no list",
                reply->str && !strncmp(reply->str, "NOPERM", 6)
                    ? ". If mail is to be on two disks: `dovelane acl` again, into the aclfile "
                      "of that Redis, and ACL LOAD"
                    : "");
        arm(a, AGAIN);
        return;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *l = reply->element[i];
        if (l->type != REDIS_REPLY_ARRAY || l->elements < 3 ||
            l->element[2]->type != REDIS_REPLY_ARRAY)
            continue;
        for (size_t k = 0; k < l->element[2]->elements; k++)
            take_entry(a, l->element[2]->element[k]);
    }
    ask(a);
}

static void ask(struct asked *a)
{
    if (a->waits || a->stopped || !node_ready(a->node) || !claims_may(a->r->claims, CLAIM_OWN))
        return;
    a->waits = wire_sendf(node_wire(a->node), on_taken, a,
                          "LANE.TAKE 1 %s COUNT %d BYTES %d LEASE %d BLOCK %d", a->lane, COUNT,
                          BYTES, LEASE, BLOCK);
    arm(a, BLOCK / 1000. + PATIENCE);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    struct asked *a = t->data;
    (void)loop, (void)events;
    if (a->waits)
        node_drop(a->node, "TAKE was not answered in time");
    else
        ask(a);
}

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct asked *a = arg;
    (void)node, (void)new_life;
    a->waits = false;
    ev_timer_stop(a->r->loop, &a->patience);
    if (ready)
        ask(a);
}

/* ---- answering ---- */

static void id_of(unsigned char id[ENTRYID_LEN], const struct disk_question *q)
{
    char body[DISK_BODY_MAX];
    disk_id(id, body, disk_question_write(body, q));
}

void asked_let_go(struct asked *a, const struct disk_question *q)
{
    unsigned char id[ENTRYID_LEN];
    id_of(id, q);
    ack(a, id);
}

static void on_answered(struct wire *w, redisReply *reply, void *arg)
{
    struct answer *n = arg;
    (void)w;
    const redisReply *said = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
                                     reply->element[1]->type == REDIS_REPLY_ARRAY &&
                                     reply->element[1]->elements == 1
                                 ? reply->element[1]->element[0]
                                 : NULL;
    if (said && (said->type == REDIS_REPLY_INTEGER || (said->str && !strcmp(said->str, "DONE"))))
        ack(n->asked, n->question);
    else if (reply && replicator_may_say(&n->asked->said, 60.))
        log_warning("an answer to a relay was not stored: %s; it asks again",
                    said && said->str ? said->str
                    : reply->str      ? reply->str
                                      : "PUSH gave no list");
    free(n);
}

void asked_answer(struct asked *a, const struct disk_question *q, uint64_t epoch, bool safe)
{
    struct disk_answer answer = {.site = a->r->group.self, .epoch = epoch, .safe = safe};
    char body[DISK_BODY_MAX], *lane = mem_printf(DISK_ANSWERED "%s", q->node), expire[24];
    unsigned char id[ENTRYID_LEN];
    struct node *own = outbox_own(a->r->outbox);
    memcpy(answer.guid, q->guid, sizeof answer.guid);
    size_t n = disk_answer_write(body, &answer);
    disk_id(id, body, n);
    snprintf(expire, sizeof expire, "%d", ANSWER_LASTS);
    const char *argv[] = {"LANE.PUSH", "1", lane,       "EXPIRE", expire, "ENTRIES",
                          "1",         "1", (char *)id, "",       body};
    const size_t len[] = {9, 1, strlen(lane), 6, strlen(expire), 7, 1, 1, sizeof id, 0, n};
    struct answer *arg = mem_zero(sizeof *arg);
    arg->asked = a;
    id_of(arg->question, q);
    if (safe)
        metric_add(replicator_answers_safe, 1);
    else
        metric_add(replicator_answers_unknown, 1);
    if (!node_ready(own) || !wire_send(node_wire(own), on_answered, arg, 11, argv, len))
        free(arg);
    free(lane);
}

/* ---- all of it ---- */

void asked_go(struct asked *a)
{
    if (a)
        ask(a);
}

struct asked *asked_open(struct replicator *r, const struct asked_calls *calls)
{
    struct asked *a = mem_zero(sizeof *a);
    a->r = r;
    a->calls = calls;
    a->lane = mem_printf(DISK_ASKED "%" PRIu64, r->group.self);
    ev_timer_init(&a->patience, on_patience, 0., 0.);
    a->patience.data = a;
    a->node = node_open(r->loop, &(struct node_options){.name = r->group.node,
                                                        .link = r->group.link,
                                                        .purpose = "replicator-asked",
                                                        .blocks = true,
                                                        .state = on_state,
                                                        .arg = a});
    return a;
}

void asked_stop(struct asked *a)
{
    a->stopped = true;
}

void asked_close(struct asked *a)
{
    if (!a)
        return;
    ev_timer_stop(a->r->loop, &a->patience);
    node_close(a->node);
    free(a->lane);
    free(a);
}
