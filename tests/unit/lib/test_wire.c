/* wire against a peer that follows a script: short writes, garbage, closing at any byte. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "tests/unit/lib/tests.h"
#include "lib/redis/wire.h"

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
    int near;         /* answers that come at once; later ones are far away */
    char asked[4096]; /* what came first */
    size_t asked_len;
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
        if (n > 0 && !p->connections)
            memcpy(p->asked, input, p->asked_len = (size_t)n);
        if (n > 0 && p->connections++ == 0)
            send_pieces(fd, p->reply, p->reply_len, p->piece);
        else if (n > 0)
            send_pieces(fd, p->later, strlen(p->later), 4096);
        close(fd);
    }
    return NULL;
}

static void peer_listen(struct peer *p)
{
    static int number;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    *p = (struct peer){0};
    snprintf(p->path, sizeof p->path, "/tmp/dovelane-wire-%d-%d", (int)getpid(), number++);
    strcpy(a.sun_path, p->path);
    unlink(p->path);
    p->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(p->listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(p->listener, 8), 0);
}

static void peer_start(struct peer *p, const char *reply, size_t len, size_t piece,
                       const char *later)
{
    peer_listen(p);
    p->reply = reply;
    p->reply_len = len;
    p->piece = piece;
    p->later = later;
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

static void exchange(struct client *c, const char *reply, size_t len, size_t piece,
                     const char *later, unsigned want)
{
    struct peer p;
    ev_timer hang;
    char address[120];
    *c = (struct client){.want = want};
    peer_start(&p, reply, len, piece, later);
    snprintf(address, sizeof address, "unix:%s", p.path);
    c->loop = ev_loop_new(EVFLAG_AUTO);
    c->wire = wire_open(c->loop, &(struct config_link){.address = address}, false, on_state, c);
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
    /* Lists that are allocated by their heads, and take minutes to be freed. */
    {"*2147483647\r\n*2147483647\r\n*2147483647\r\n*2147483647\r\n", "too large"},
    {"*20000000\r\n", "too large"},
    {"*2\r\n*10000000\r\n*10000000\r\n", "too large"},
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
    c.wire = wire_open(c.loop, &(struct config_link){.address = address}, false, on_state_drop, &c);
    ev_run(c.loop, 0);
    ck_assert_uint_eq(c.answered, 1);
    ck_assert_uint_eq(c.lost, REQUESTS - 1);
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    peer_stop(&p);
}
END_TEST

/* ---- requests ---- */

/* Lengths around each further digit, none at all, and bytes that are no text. */
#define ARGUMENTS 7
static const size_t argument_len[ARGUMENTS] = {4, 0, 9, 10, 99, 100, 1000};
static const char *argument[ARGUMENTS];

static void on_state_arguments(struct wire *w, bool up, const char *why, void *arg)
{
    (void)why, (void)arg;
    if (up)
        ck_assert(wire_send(w, on_reply, arg, ARGUMENTS, argument, argument_len));
}

START_TEST(test_a_request_has_the_form_that_hiredis_gives_it)
{
    char bytes[1000], *want = NULL;
    struct peer p;
    struct client c = {.want = 1};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i % 256);
    for (int i = 0; i < ARGUMENTS; i++)
        argument[i] = argument_len[i] ? bytes : NULL;
    peer_start(&p, ":1\r\n", 4, 4, "");
    char address[120];
    snprintf(address, sizeof address, "unix:%s", p.path);
    c.loop = ev_loop_new(EVFLAG_AUTO);
    c.wire =
        wire_open(c.loop, &(struct config_link){.address = address}, false, on_state_arguments, &c);
    ev_run(c.loop, 0);
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    peer_stop(&p);
    argument[1] = "";
    long long len = redisFormatCommandArgv(&want, ARGUMENTS, argument, argument_len);
    ck_assert_uint_eq(p.asked_len, len);
    ck_assert_mem_eq(p.asked, want, (size_t)len);
    free(want);
}
END_TEST

/* ---- a peer that reads slowly ---- */

/* Reads a few bytes at a time, so that the client's writes are short, and answers what it has
 * read whole. */
struct slow_peer {
    char path[100];
    int listener;
    pthread_t thread;
    size_t expected, got, different;
};

#define BIG (2u << 20)

static char pattern(size_t i)
{
    return (char)('a' + (i * 2654435761u >> 13) % 26);
}

static void *slow_run(void *arg)
{
    struct slow_peer *p = arg;
    static char input[70000];
    int fd = accept(p->listener, NULL, NULL), least = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    char head[64];
    size_t at = 0, body = (size_t)snprintf(head, sizeof head, "*2\r\n$4\r\nECHO\r\n$%u\r\n", BIG);
    for (unsigned turn = 0; p->got < p->expected; turn++) {
        ssize_t n = read(fd, input, turn % 7 ? 1 + turn % 1000 : sizeof input);
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n; i++, p->got++) {
            at = p->got % (body + BIG + 2);
            char want = at < body          ? head[at]
                        : at < body + BIG  ? pattern(at - body)
                        : at == body + BIG ? '\r'
                                           : '\n';
            p->different += input[i] != want;
        }
        if (turn % 50 == 0)
            usleep(100);
    }
    for (int i = 0; i < REQUESTS; i++)
        send_pieces(fd, ":7\r\n", 4, 1);
    usleep(50000);
    close(fd);
    return NULL;
}

static void on_state_big(struct wire *w, bool up, const char *why, void *arg)
{
    (void)why;
    if (!up)
        return;
    char *body = malloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        body[i] = pattern(i);
    const char *argv[] = {"ECHO", body};
    const size_t len[] = {4, BIG};
    for (int i = 0; i < REQUESTS; i++)
        ck_assert(wire_send(w, on_reply, arg, 2, argv, len));
    free(body);
    ck_assert_uint_gt(wire_unsent_bytes(w), REQUESTS * BIG);
    ck_assert_uint_eq(wire_open_requests(w), REQUESTS);
}

START_TEST(test_short_writes_send_every_byte_once_and_in_order)
{
    struct slow_peer p = {.expected =
                              REQUESTS * (sizeof "*2\r\n$4\r\nECHO\r\n$2097152\r\n" - 1 + BIG + 2)};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct client c = {.want = REQUESTS};
    char address[120];
    snprintf(p.path, sizeof p.path, "/tmp/dovelane-wire-slow-%d", (int)getpid());
    strcpy(a.sun_path, p.path);
    unlink(p.path);
    p.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(p.listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(p.listener, 8), 0);
    ck_assert_int_eq(pthread_create(&p.thread, NULL, slow_run, &p), 0);
    snprintf(address, sizeof address, "unix:%s", p.path);
    c.loop = ev_loop_new(EVFLAG_AUTO);
    c.wire = wire_open(c.loop, &(struct config_link){.address = address}, false, on_state_big, &c);
    ev_run(c.loop, 0);
    ck_assert_uint_eq(c.answered, REQUESTS);
    ck_assert_int_eq(c.value[2], 7);
    ck_assert_uint_eq(wire_unsent_bytes(c.wire), 0);
    pthread_join(p.thread, NULL);
    ck_assert_uint_eq(p.got, p.expected);
    ck_assert_uint_eq(p.different, 0);
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    close(p.listener);
    unlink(p.path);
}
END_TEST

/* ---- a peer that is silent ---- */

static double silent_for;

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)events;
    struct client *c = t->data;
    double now = wire_silence(c->wire);
    ck_assert(now >= silent_for);
    silent_for = now;
    if (now < 0.2)
        return;
    ev_timer_stop(loop, t);
    wire_drop(c->wire, "silent for too long");
}

/* It takes the requests and never answers: the caller sees how long, drops, and the next
 * connection answers. */
START_TEST(test_delay_is_measured_and_a_dropped_connection_comes_back)
{
    struct peer p;
    struct client c = {.want = 2 * REQUESTS};
    ev_timer look;
    char address[120], *nothing = calloc(1, 30000);
    /* A reply that is announced, and trickles in for three seconds: bytes are no answers. */
    snprintf(nothing, 30000, "$20000\r\n");
    memset(nothing + 8, 'x', 20000);
    silent_for = 0;
    peer_start(&p, nothing, 20008, 1, all);
    snprintf(address, sizeof address, "unix:%s", p.path);
    c.loop = ev_loop_new(EVFLAG_AUTO);
    c.wire = wire_open(c.loop, &(struct config_link){.address = address}, false, on_state, &c);
    ck_assert(wire_silence(c.wire) == 0);
    ev_timer_init(&look, on_look, 0.01, 0.01);
    look.data = &c;
    ev_timer_start(c.loop, &look);
    ev_run(c.loop, 0);
    ck_assert_uint_eq(c.lost, REQUESTS);
    ck_assert_uint_eq(c.answered, REQUESTS);
    ck_assert_uint_eq(c.ups, 2);
    ck_assert_str_eq(c.why, "silent for too long");
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    peer_stop(&p);
    free(nothing);
}
END_TEST

static void on_enough(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)t, (void)events;
    ev_break(loop, EVBREAK_ALL);
}

static void on_useless(struct wire *w, bool up, const char *why, void *arg)
{
    struct client *c = arg;
    (void)why;
    if (!up)
        return;
    c->ups++;
    ck_assert(wire_sendf(w, on_reply, c, "LANE.INFO"));
}

/* Two addresses that answer PING and then close: tried in turn, but not at the speed of the
 * network. A busy machine makes fewer. */
START_TEST(test_two_addresses_of_no_use_are_not_tried_without_a_pause)
{
    struct peer active, standby;
    struct client c = {.want = 1u << 30};
    ev_timer enough;
    char address[120], other[120];
    peer_start(&active, ":1\r\n", 4, 4, ":1\r\n");
    peer_start(&standby, ":1\r\n", 4, 4, ":1\r\n");
    snprintf(address, sizeof address, "unix:%s", active.path);
    snprintf(other, sizeof other, "unix:%s", standby.path);
    c.loop = ev_loop_new(EVFLAG_AUTO);
    c.wire = wire_open(c.loop, &(struct config_link){.address = address, .standby = other}, false,
                       on_useless, &c);
    ev_timer_init(&enough, on_enough, 1.5, 0.);
    ev_timer_start(c.loop, &enough);
    ev_run(c.loop, 0);
    ck_assert_msg(c.ups >= 2 && c.ups <= 30, "%u connections", c.ups);
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    peer_stop(&active);
    peer_stop(&standby);
    ck_assert(standby.connections > 0);
}
END_TEST

/* Answers whatever comes, and closes nothing. */
static void *steady_run(void *arg)
{
    struct peer *p = arg;
    char input[4096];
    int fd;
    while ((fd = accept(p->listener, NULL, NULL)) >= 0) {
        while (read(fd, input, sizeof input) > 0)
            send_pieces(fd, ":1\r\n", 4, 4);
        close(fd);
    }
    return NULL;
}

#define BACK_TWICE 3 /* times that the active path is up: in the beginning, and gone back to */

struct flapping {
    struct client c;
    struct peer *active;
    int tries[BACK_TWICE]; /* connections that it has had, each time */
};

static void on_flapping(struct wire *w, bool up, const char *why, void *arg)
{
    struct flapping *f = arg;
    (void)why;
    if (!up || wire_on_standby(w))
        return;
    f->tries[f->c.ups++] = f->active->connections;
    if (f->c.ups == BACK_TWICE)
        ev_break(f->c.loop, EVBREAK_ALL);
}

/* An active path that answers PING and then breaks, again and again: each time it is tried for
 * twice as long before it is used. */
START_TEST(test_a_path_that_comes_and_goes_is_gone_back_to_later_each_time)
{
    struct peer active, standby;
    struct flapping f = {.active = &active};
    ev_timer hang;
    char address[120], other[120];
    peer_start(&active, ":1\r\n", 4, 4, ":1\r\n");
    peer_listen(&standby);
    ck_assert_int_eq(pthread_create(&standby.thread, NULL, steady_run, &standby), 0);
    snprintf(address, sizeof address, "unix:%s", active.path);
    snprintf(other, sizeof other, "unix:%s", standby.path);
    f.c.loop = ev_loop_new(EVFLAG_AUTO);
    f.c.wire = wire_open(f.c.loop, &(struct config_link){.address = address, .standby = other},
                         false, on_flapping, &f);
    ev_timer_init(&hang, on_hang, 55., 0.);
    ev_timer_start(f.c.loop, &hang);
    ev_run(f.c.loop, 0);
    ck_assert_msg(f.tries[1] - f.tries[0] >= 5 && f.tries[2] - f.tries[1] >= 10,
                  "after %d connections, %d, %d", f.tries[0], f.tries[1], f.tries[2]);
    wire_close(f.c.wire);
    ev_loop_destroy(f.c.loop);
    peer_stop(&active);
    peer_stop(&standby);
}
END_TEST

#define FAR_AWAY 300000 /* microseconds until an answer */
#define ANSWERS 16

/* Each answer comes late, but for the first ones; from one connection after the other. */
static void *far_run(void *arg)
{
    struct peer *p = arg;
    char input[4096];
    int fd;
    while ((fd = accept(p->listener, NULL, NULL)) >= 0) {
        while (read(fd, input, sizeof input) > 0) {
            if (p->near-- <= 0)
                usleep(FAR_AWAY);
            send_pieces(fd, ":1\r\n", 4, 4);
        }
        close(fd);
    }
    return NULL;
}

static void far_start(struct peer *p, int near)
{
    peer_listen(p);
    p->near = near;
    ck_assert_int_eq(pthread_create(&p->thread, NULL, far_run, p), 0);
}

/* One request after the other, each when the one before it is answered. */
static void ask_on(struct wire *w, redisReply *reply, void *arg)
{
    struct client *c = arg;
    if (!reply) {
        c->lost++;
        return;
    }
    if (++c->answered == c->want)
        ev_break(c->loop, EVBREAK_ALL);
    else
        ck_assert(wire_sendf(w, ask_on, c, "PING"));
}

static void on_far(struct wire *w, bool up, const char *why, void *arg)
{
    struct client *c = arg;
    (void)why;
    if (!up)
        return;
    c->ups++;
    ck_assert(wire_sendf(w, ask_on, c, "PING"));
}

static const int near_first[] = {0, 100};

/* Answers take three times as long as path_timeout is at least, over either address, from the
 * beginning or from one moment on. The other one is tried, answers as late, and is not used: this
 * one has answered meanwhile. */
START_TEST(test_a_server_that_is_far_away_is_not_left_for_its_other_address)
{
    struct peer active, standby;
    struct client c = {.want = ANSWERS + (unsigned)near_first[_i]};
    ev_timer hang;
    char address[120], other[120];
    far_start(&active, near_first[_i]);
    far_start(&standby, 0);
    snprintf(address, sizeof address, "unix:%s", active.path);
    snprintf(other, sizeof other, "unix:%s", standby.path);
    c.loop = ev_loop_new(EVFLAG_AUTO);
    c.wire = wire_open(c.loop,
                       &(struct config_link){
                           .address = address, .standby = other, .path_timeout = {.1, 2., 2., 0.}},
                       false, on_far, &c);
    ev_timer_init(&hang, on_hang, 55., 0.);
    ev_timer_start(c.loop, &hang);
    ev_run(c.loop, 0);
    double timeout = wire_path_timeout(c.wire);
    ck_assert_msg(timeout >= 1.5 * FAR_AWAY / 1e6 && timeout <= 2., "%f s", timeout);
    ck_assert_msg(c.ups == 1 && !c.lost, "%u connections, %u requests lost", c.ups, c.lost);
    wire_close(c.wire);
    ev_loop_destroy(c.loop);
    peer_stop(&active);
    peer_stop(&standby);
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
    tcase_add_test(t, test_a_request_has_the_form_that_hiredis_gives_it);
    tcase_add_test(t, test_short_writes_send_every_byte_once_and_in_order);
    tcase_add_test(t, test_two_addresses_of_no_use_are_not_tried_without_a_pause);
    tcase_add_test(t, test_a_path_that_comes_and_goes_is_gone_back_to_later_each_time);
    tcase_add_loop_test(t, test_a_server_that_is_far_away_is_not_left_for_its_other_address, 0,
                        sizeof near_first / sizeof *near_first);
    tcase_add_test(t, test_delay_is_measured_and_a_dropped_connection_comes_back);
    return t;
}
