/* wire against a peer that follows a script: short writes, garbage, closing at any byte. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mem.h"
#include "tests.h"
#include "wire.h"

#define REQUESTS 3

/* ---- the peer: per connection, reads a little, then sends `reply` in pieces and closes ---- */

struct peer {
    char path[100];
    int listener;
    pthread_t thread;
    const char *reply; /* of the first connection; later ones get `later` */
    size_t reply_len, piece;
    const char *later;
    int connections;
};

static void send_pieces(int fd, const char *p, size_t n, size_t piece)
{
    for (size_t i = 0; i < n; i += piece) {
        size_t len = n - i < piece ? n - i : piece;
        if (send(fd, p + i, len, MSG_NOSIGNAL) < 0)
            return;
        usleep(200);
    }
}

static void *peer_run(void *arg)
{
    struct peer *p = arg;
    char input[4096];
    int fd;
    while ((fd = accept(p->listener, NULL, NULL)) >= 0) {
        ssize_t n = read(fd, input, sizeof input);
        if (n > 0 && p->connections++ == 0)
            send_pieces(fd, p->reply, p->reply_len, p->piece);
        else if (n > 0)
            send_pieces(fd, p->later, strlen(p->later), 4096);
        close(fd);
    }
    return NULL;
}

static void peer_start(struct peer *p, const char *reply, size_t len, size_t piece, const char *later)
{
    static int number;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    *p = (struct peer){.reply = reply, .reply_len = len, .piece = piece, .later = later};
    snprintf(p->path, sizeof p->path, "/tmp/dovelane-wire-%d-%d", (int)getpid(), number++);
    strcpy(a.sun_path, p->path);
    unlink(p->path);
    p->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(p->listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(p->listener, 8), 0);
    ck_assert_int_eq(pthread_create(&p->thread, NULL, peer_run, p), 0);
}

static void peer_stop(struct peer *p)
{
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
    unlink(p->path);
}

/* ---- the client: sends REQUESTS on each connection until it has seen `want` of them end ---- */

struct client {
    struct ev_loop *loop;
    struct wire *wire;
    unsigned ups, answered, lost, want;
    char why[200];
    long long value[64];
};

static void on_reply(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct client *c = arg;
    if (reply) {
        if (c->answered < 64)
            c->value[c->answered] = reply->integer;
        c->answered++;
    } else {
        c->lost++;
    }
    if (c->answered + c->lost >= c->want)
        ev_break(c->loop, EVBREAK_ALL);
}

static void on_state(struct wire *w, bool up, const char *why, void *arg)
{
    struct client *c = arg;
    if (!up) {
        if (!*c->why)
            snprintf(c->why, sizeof c->why, "%s", why);
        return;
    }
    c->ups++;
    for (int i = 0; i < REQUESTS; i++)
        ck_assert(wire_sendf(w, on_reply, c, "PING %d", i));
}

static void on_hang(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)t, (void)events;
    ck_abort_msg("hung");
}

static void exchange(struct client *c, const char *reply, size_t len, size_t piece, const char *later, unsigned want)
{
    struct peer p;
    ev_timer hang;
    char address[120];
    *c = (struct client){.want = want};
    peer_start(&p, reply, len, piece, later);
    snprintf(address, sizeof address, "unix:%s", p.path);
    c->loop = ev_loop_new(EVFLAG_AUTO);
    c->wire = wire_open(c->loop, address, on_state, c);
    ev_timer_init(&hang, on_hang, 20., 0.);
    ev_timer_start(c->loop, &hang);
    ev_run(c->loop, 0);
    wire_close(c->wire);
    ev_loop_destroy(c->loop);
    peer_stop(&p);
}

static const char all[] = ":1\r\n:2\r\n:3\r\n";

START_TEST(test_replies_arrive_in_order_in_pieces_of_any_size)
{
    for (size_t piece = 1; piece <= sizeof all; piece++) {
        struct client c;
        exchange(&c, all, strlen(all), piece, all, REQUESTS);
        ck_assert_uint_eq(c.answered, REQUESTS);
        for (int i = 0; i < REQUESTS; i++)
            ck_assert_int_eq(c.value[i], i + 1);
    }
}
END_TEST

START_TEST(test_closing_at_each_byte_fails_what_is_open_and_reconnects)
{
    for (size_t n = 0; n < strlen(all); n++) {
        struct client c;
        /* the first connection gets n bytes, the second one everything */
        exchange(&c, all, n, 3, all, 2 * REQUESTS);
        ck_assert_uint_eq(c.answered, n / 4 + REQUESTS);
        ck_assert_uint_eq(c.lost, REQUESTS - n / 4);
        ck_assert_uint_eq(c.ups, 2);
    }
}
END_TEST

static const struct {
    const char *text, *why;
} garbage[] = {
    {"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol"},
    {"$-5\r\n", "protocol"},
    {"*99999999999999\r\n", "protocol"},
    {"$99999999999999999999999\r\n", "protocol"},
    {":1\r\n:2\r\n:3\r\n:4\r\n", "nobody asked"},
};

START_TEST(test_garbage_drops_the_connection)
{
    struct client c;
    bool extra = _i == 4;
    exchange(&c, garbage[_i].text, strlen(garbage[_i].text), 4096, all, 2 * REQUESTS);
    ck_assert_uint_eq(c.ups, 2);
    ck_assert_msg(strstr(c.why, garbage[_i].why) != NULL, "said: %s", c.why);
    ck_assert_uint_eq(c.lost, extra ? 0 : REQUESTS);
}
END_TEST

/* A request that is dropped from within the answer to another one. */
static void on_reply_drop(struct wire *w, redisReply *reply, void *arg)
{
    struct client *c = arg;
    if (reply) {
        c->answered++;
        wire_drop(w, "test");
        ck_assert(!wire_up(w));
        ck_assert(!wire_sendf(w, on_reply_drop, c, "PING"));
    } else {
        c->lost++;
    }
    if (c->answered + c->lost >= c->want)
        ev_break(c->loop, EVBREAK_ALL);
}

static void on_state_drop(struct wire *w, bool up, const char *why, void *arg)
{
    (void)why;
    if (up)
        for (int i = 0; i < REQUESTS; i++)
            wire_sendf(w, on_reply_drop, arg, "PING");
}

START_TEST(test_dropping_from_within_an_answer_is_safe)
{
    struct peer p;
    struct client c = {.want = REQUESTS};
    char address[120];
    peer_start(&p, all, strlen(all), 4096, all);
    snprintf(address, sizeof address, "unix:%s", p.path);
    c.loop = ev_loop_new(EVFLAG_AUTO);
    c.wire = wire_open(c.loop, address, on_state_drop, &c);
    ev_run(c.loop, 0);
    ck_assert_uint_eq(c.answered, 1);
    ck_assert_uint_eq(c.lost, REQUESTS - 1);
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    peer_stop(&p);
}
END_TEST

TCase *wire_tests(void)
{
    TCase *t = tcase_create("wire");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_replies_arrive_in_order_in_pieces_of_any_size);
    tcase_add_test(t, test_closing_at_each_byte_fails_what_is_open_and_reconnects);
    tcase_add_loop_test(t, test_garbage_drops_the_connection, 0, sizeof garbage / sizeof *garbage);
    tcase_add_test(t, test_dropping_from_within_an_answer_is_safe);
    return t;
}
