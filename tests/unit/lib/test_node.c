/* node against a peer that follows a script: who are you? Wrong types in the answer, cut off at
 * each byte, another name, another server under the same name. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/redis/node.h"
#include "tests/unit/lib/tests.h"

/* ---- the peer: connection i gets answer[i] (the last one again and again), then stays open
 * until the client leaves ---- */

#define ANSWERS 400

static struct {
    char path[100];
    int listener, connections;
    pthread_t thread;
    char answer[ANSWERS][600];
    int n;
    bool closes; /* all but the last one */
} peer;

static void *peer_run(void *arg)
{
    (void)arg;
    int fd;
    while ((fd = accept(peer.listener, NULL, NULL)) >= 0) {
        char input[4096];
        int i = peer.connections < peer.n ? peer.connections : peer.n - 1;
        size_t got = 0;
        ssize_t n;
        /* SETNAME and INFO may come one by one; what is sent before is no answer to them. */
        while (got < sizeof input - 1 && (n = read(fd, input + got, sizeof input - 1 - got)) > 0) {
            got += (size_t)n;
            input[got] = 0;
            if (strstr(input, "LANE.INFO"))
                break;
        }
        peer.connections++;
        send(fd, peer.answer[i], strlen(peer.answer[i]), MSG_NOSIGNAL);
        while (!(peer.closes && i < peer.n - 1) && read(fd, input, sizeof input) > 0)
            ;
        close(fd);
    }
    return NULL;
}

static void peer_start(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(peer.path, sizeof peer.path, "/tmp/dovelane-node-%d", (int)getpid());
    strcpy(a.sun_path, peer.path);
    unlink(peer.path);
    peer.connections = 0;
    peer.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(peer.listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(peer.listener, 8), 0);
    ck_assert_int_eq(pthread_create(&peer.thread, NULL, peer_run, NULL), 0);
}

static void peer_stop(void)
{
    shutdown(peer.listener, SHUT_RDWR);
    pthread_join(peer.thread, NULL);
    close(peer.listener);
    unlink(peer.path);
}

static void script(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void script(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    ck_assert_int_lt(peer.n, ANSWERS);
    vsnprintf(peer.answer[peer.n++], sizeof peer.answer[0], format, list);
    va_end(list);
}

#define TEXT(s) "$%zu\r\n%s\r\n"

static void good_answer(const char *node, const char *run_id)
{
    script(
        "+OK\r\n*10\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n" TEXT(run_id) "$4\r\nnode\r\n" TEXT(
            node) "$9\r\nsettle-ms\r\n:5000\r\n$6\r\npolicy\r\n$10\r\nnoeviction\r\n",
        strlen(run_id), run_id, strlen(node), node);
}

/* ---- the client ---- */

static struct ev_loop *loop;
static struct node *node;
static unsigned readies, losses, lives, want;

static void on_state(struct node *n, bool ready, bool new_life, void *arg)
{
    (void)arg;
    if (!ready) {
        losses++;
        return;
    }
    readies++;
    lives += new_life;
    ck_assert(node_ready(n));
    ck_assert_uint_eq(node_life(n), lives);
    if (readies == want)
        ev_break(loop, EVBREAK_ALL);
}

static void on_hang(struct ev_loop *l, ev_timer *t, int events)
{
    (void)l, (void)t, (void)events;
    ck_abort_msg("hung after %d connections", peer.connections);
}

static char said[20000];

static void hear(enum log_level level, const char *line)
{
    (void)level;
    size_t at = strlen(said);
    if (at + strlen(line) + 2 < sizeof said)
        sprintf(said + at, "%s\n", line);
}

/* Until it was ready so many times. */
static void run(unsigned times)
{
    char address[120];
    ev_timer hang;
    want = times;
    readies = losses = lives = 0;
    said[0] = 0;
    log_stderr_to(hear);
    peer_start();
    snprintf(address, sizeof address, "unix:%s", peer.path);
    loop = ev_loop_new(EVFLAG_AUTO);
    node = node_open(loop, &(struct node_options){.name = "mx1",
                                                  .link = {.address = address},
                                                  .purpose = "test",
                                                  .settle = 5000,
                                                  .state = on_state});
    ev_timer_init(&hang, on_hang, 100., 0.);
    ev_timer_start(loop, &hang);
    ev_run(loop, 0);
    ev_timer_stop(loop, &hang);
}

static void end(void)
{
    node_close(node);
    ev_loop_destroy(loop);
    peer_stop();
    peer.n = 0;
    peer.closes = false;
}

#define ANSWER_LEN 150 /* of good_answer, at most */
#define REST "$9\r\nsettle-ms\r\n:5000\r\n$6\r\npolicy\r\n$10\r\nnoeviction\r\n"

static const struct {
    const char *answer, *why;
} wrong[] = {
    {"+OK\r\n:1\r\n", "gave no list"},
    {"+OK\r\n$2\r\nhi\r\n", "gave no list"},
    {"+OK\r\n$-1\r\n", "gave no list"},
    {"+OK\r\n*-1\r\n", "gave no list"},
    {"+OK\r\n*0\r\n", "another grammar"},
    {"+OK\r\n*1\r\n$7\r\ngrammar\r\n", "another grammar"},
    {"+OK\r\n*2\r\n:1\r\n:1\r\n", "another grammar"},
    {"+OK\r\n*2\r\n*1\r\n$7\r\ngrammar\r\n:1\r\n", "another grammar"},
    {"+OK\r\n*2\r\n$7\r\ngrammar\r\n*1\r\n:1\r\n", "another grammar"},
    {"+OK\r\n*2\r\n$7\r\ngrammar\r\n$-1\r\n", "another grammar"},
    {"+OK\r\n*2\r\n$7\r\ngrammar\r\n:2\r\n", "another grammar"},
    {"+OK\r\n*2\r\n$7\r\ngrammar\r\n:1\r\n", "no run-id"},
    {"+OK\r\n*4\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n:7\r\n", "no run-id"},
    {"+OK\r\n*4\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$0\r\n\r\n", "no run-id"},
    {"+OK\r\n*4\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$100\r\n"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789\r\n",
     "no run-id"},
    {"+OK\r\n*4\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$3\r\nabc\r\n", "says it is node"},
    {"+OK\r\n*10\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$3\r\nabc\r\n$4\r\nnode\r\n$"
     "3\r\nmx2\r\n" REST,
     "says it is node \"mx2\""},
    {"+OK\r\n*10\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$3\r\nabc\r\n$4\r\nnode\r\n*0\r\n" REST,
     "says it is node"},
    {"+OK\r\n*10\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$3\r\nabc\r\n$4\r\nnode\r\n$"
     "3\r\nmx1\r\n$9\r\nsettle-ms\r\n$-1\r\n$6\r\npolicy\r\n:1\r\n",
     "settle-ms"},
    {"+OK\r\n-ERR unknown command 'LANE.INFO'\r\n", "lane.so is not loaded"},
    {"+OK\r\n-LOADING Redis is loading the dataset in memory\r\n", "LOADING"},
    {"-ERR max number of clients reached\r\n", "max number of clients"},
    {"SSH-2.0-OpenSSH_9.2\r\n", "protocol"},
};

/* One after the other on one node; it goes on until somebody answers well. */
START_TEST(test_an_answer_of_wrong_types_is_refused_and_asked_for_again)
{
    script("%s", wrong[_i].answer);
    good_answer("mx1", "abc");
    peer.closes = true;
    run(1);
    ck_assert_int_eq(peer.connections, 2);
    ck_assert_uint_eq(losses, 0);
    ck_assert_msg(strstr(said, wrong[_i].why) != NULL, "said: %s", said);
    ck_assert_str_eq(node_run_id(node), "abc");
    end();
}
END_TEST

START_TEST(test_an_answer_that_ends_at_any_byte_is_asked_for_again)
{
    good_answer("mx1", "abc");
    char whole[600];
    strcpy(whole, peer.answer[0]);
    peer.n = 0;
    ck_assert_uint_lt(strlen(whole), ANSWER_LEN + 1);
    if ((size_t)_i >= strlen(whole))
        return;
    script("%.*s", _i, whole);
    good_answer("mx1", "abc");
    peer.closes = true;
    run(1);
    ck_assert_int_eq(peer.connections, 2);
    ck_assert_uint_eq(losses, 0);
    end();
}
END_TEST

START_TEST(test_another_server_under_the_same_name_is_another_life)
{
    good_answer("mx1", "one");
    good_answer("mx1", "one");
    good_answer("mx1", "two");
    good_answer("mx1", "one");
    peer.closes = true;
    run(4);
    ck_assert_uint_eq(losses, 3);
    /* one, two, one again: nothing of the first life may be believed */
    ck_assert_uint_eq(lives, 3);
    ck_assert_str_eq(node_run_id(node), "one");
    end();
}
END_TEST

TCase *node_tests(void)
{
    TCase *t = tcase_create("node");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, test_an_answer_of_wrong_types_is_refused_and_asked_for_again, 0,
                        sizeof wrong / sizeof *wrong);
    tcase_add_loop_test(t, test_an_answer_that_ends_at_any_byte_is_asked_for_again, 0, ANSWER_LEN);
    tcase_add_test(t, test_another_server_under_the_same_name_is_another_life);
    return t;
}
