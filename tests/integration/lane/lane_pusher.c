/* lane_pusher - stores entries over a verified connection (lib/redis/node) that is lost now and
 * then, and goes on by itself.
 *
 *     lane_pusher ADDRESS NODE LANE ENTRIES WINDOW BATCH
 *
 * Begins RATE entries a millisecond at most, until SIGTERM or until all ENTRIES are stored.
 *
 * Entry n has the id "id" and 14 digits of n. What was unanswered when a connection was lost
 * goes again, in order, in a new session: the ids keep it from being stored twice. Prints a line
 * for each answer, "n answer", and "ready" and "lost" between them. Ends when every entry has
 * its answer. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/redis/node.h"

#define BATCH_MAX 100
#define BODY 100
#define RATE 50

struct batch {
    long n;
    long entry[BATCH_MAX];
};

static struct ev_loop *loop;
static struct node *node;
static const char *lane;
static long entries, window, batch_size;
static long next_entry, begun, allowed, answered, in_flight;
static char *done;
static unsigned long txn;
static char session[40];

static void fail(const char *what, const char *said)
{
    fprintf(stderr, "lane_pusher: %s: %s\n", what, said);
    exit(1);
}

static void on_answer(struct wire *w, redisReply *reply, void *arg);

static void send_batch(struct batch *b)
{
    const char *argv[10 + 4 * BATCH_MAX];
    size_t len[10 + 4 * BATCH_MAX];
    static char id[BATCH_MAX][17], body[BODY], number[24], count[24];
    int argc = 0;
    memset(body, 'x', sizeof body);
    snprintf(number, sizeof number, "%lu", ++txn);
    snprintf(count, sizeof count, "%ld", b->n);
    const char *head[] = {"LANE.PUSH", "1", lane, "SESSION", session, number, "ENTRIES", count};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++, argc++) {
        argv[argc] = head[i];
        len[argc] = strlen(head[i]);
    }
    for (long i = 0; i < b->n; i++) {
        snprintf(id[i], sizeof id[i], "id%014ld", b->entry[i]);
        const char *part[] = {"1", id[i], "", body};
        const size_t part_len[] = {1, 16, 0, BODY};
        for (int k = 0; k < 4; k++, argc++) {
            argv[argc] = part[k];
            len[argc] = part_len[k];
        }
    }
    in_flight += b->n;
    if (!wire_send(node_wire(node), on_answer, b, argc, argv, len))
        fail("send", "the connection is not up");
}

static void go_on(void)
{
    while (node_ready(node) && next_entry < allowed && in_flight + batch_size <= window) {
        struct batch *b = calloc(1, sizeof *b);
        if (!b)
            abort();
        for (; next_entry < allowed && b->n < batch_size; next_entry++)
            if (!done[next_entry])
                b->entry[b->n++] = next_entry;
        begun = next_entry > begun ? next_entry : begun;
        if (b->n)
            send_batch(b);
        else
            free(b);
    }
}

static void on_answer(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct batch *b = arg;
    in_flight -= b->n;
    if (reply && reply->type != REDIS_REPLY_ARRAY)
        fail("answer", reply->str ? reply->str : "not an array");
    for (long i = 0; reply && i < b->n; i++) {
        const redisReply *a = reply->element[1]->element[i];
        if (a->type == REDIS_REPLY_INTEGER)
            printf("%ld %lld\n", b->entry[i], a->integer);
        else if (!strcmp(a->str, "DONE"))
            printf("%ld DONE\n", b->entry[i]);
        else
            fail("answer", a->str);
        done[b->entry[i]] = 1;
        answered++;
    }
    free(b);
    fflush(stdout);
    if (answered == entries)
        ev_break(loop, EVBREAK_ALL);
    else if (reply)
        go_on();
}

static void on_tick(struct ev_loop *l, ev_timer *t, int events)
{
    (void)l, (void)t, (void)events;
    allowed = allowed + RATE < entries ? allowed + RATE : entries;
    go_on();
}

/* Nothing new; what was begun gets its answer. */
static void on_term(struct ev_loop *l, ev_signal *s, int events)
{
    (void)l, (void)s, (void)events;
    entries = allowed = begun;
    if (answered == entries)
        ev_break(loop, EVBREAK_ALL);
}

static void on_state(struct node *n, bool ready, bool new_life, void *arg)
{
    (void)n, (void)arg;
    static int sessions;
    printf(ready ? new_life ? "ready, a new life\n" : "ready\n" : "lost\n");
    fflush(stdout);
    if (!ready)
        return;
    snprintf(session, sizeof session, "%ld.%d", (long)getpid(), ++sessions);
    txn = 0;
    for (next_entry = 0; next_entry < entries && done[next_entry];)
        next_entry++;
    go_on();
}

int main(int argc, char **argv)
{
    if (argc != 7)
        fail("usage", "lane_pusher ADDRESS NODE LANE ENTRIES WINDOW BATCH");
    lane = argv[3];
    entries = atol(argv[4]);
    window = atol(argv[5]);
    batch_size = atol(argv[6]) < BATCH_MAX ? atol(argv[6]) : BATCH_MAX;
    done = calloc((size_t)entries, 1);
    loop = ev_default_loop(0);
    node = node_open(loop, &(struct node_options){.name = argv[2],
                                                  .link = {.address = argv[1]},
                                                  .purpose = "pusher",
                                                  .ping_every = NODE_PING,
                                                  .state = on_state});
    ev_timer tick;
    ev_signal term;
    ev_timer_init(&tick, on_tick, 0., 0.001);
    ev_timer_start(loop, &tick);
    ev_signal_init(&term, on_term, SIGTERM);
    ev_signal_start(loop, &term);
    ev_run(loop, 0);
    node_close(node);
    free(done);
    return 0;
}
