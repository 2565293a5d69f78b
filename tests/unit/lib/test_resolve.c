/* With a getaddrinfo of our own: a name server that answers nobody until it is told to, but for
 * "quick.example"; what it answers then is 127.0.0.1. */
#include <arpa/inet.h>
#include <check.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/redis/path.h"
#include "lib/base/resolve.h"

#define NAMES 300

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static bool answers;
static unsigned entered, asked, most, answered, idle; /* idle: nobody asks now */
static struct ev_loop *loop;

static struct addrinfo *loopback(const char *port)
{
    struct addrinfo *ai = calloc(1, sizeof *ai);
    struct sockaddr_in *in = calloc(1, sizeof *in);
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)atoi(port));
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ai->ai_addr = (struct sockaddr *)in;
    ai->ai_addrlen = sizeof *in;
    return ai;
}

void freeaddrinfo(struct addrinfo *ai)
{
    free(ai->ai_addr);
    free(ai);
}

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    *out = NULL;
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    pthread_mutex_lock(&lock);
    idle = 0;
    entered++;
    pthread_cond_broadcast(&told);
    if (++asked > most)
        most = asked;
    while (!answers && strcmp(host, "quick.example"))
        pthread_cond_wait(&told, &lock);
    idle = !--asked;
    answered++;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
    *out = loopback(port);
    return 0;
}

static void answer_all(void)
{
    pthread_mutex_lock(&lock);
    answers = true;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
}

static void wait_until(const unsigned *what, unsigned n)
{
    pthread_mutex_lock(&lock);
    while (*what < n)
        pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
}

static void on_answer(const struct addresses *found, const char *error, void *arg)
{
    unsigned *count = arg;
    ck_assert_uint_eq(found->n, 1);
    ck_assert_ptr_null(error);
    ck_assert_str_eq(found->v[0].text, "127.0.0.1");
    ++*count;
}

static struct resolve *start(const char *host, enum resolve_for purpose, unsigned *count)
{
    struct resolve *r = NULL;
    ck_assert(!resolve_start(loop, host, "25", purpose, on_answer, count, &r));
    ck_assert_ptr_nonnull(r);
    return r;
}

START_TEST(test_a_silent_name_server_does_not_cost_a_thread_a_name)
{
    unsigned count = 0;
    for (int i = 0; i < NAMES; i++)
        start("next.example", RESOLVE_HOP, &count);
    answer_all();
    ev_run(loop, 0);
    ck_assert_uint_eq(count, NAMES);
    ck_assert_uint_ge(most, 1);
    ck_assert_uint_le(most, 32);
}
END_TEST

START_TEST(test_nodes_do_not_wait_behind_next_hops)
{
    unsigned hops = 0, nodes = 0;
    for (int i = 0; i < NAMES; i++)
        start("next.example", RESOLVE_HOP, &hops);
    for (int i = 0; i < NAMES; i++)
        start("quick.example", RESOLVE_NODE, &nodes);
    while (nodes < NAMES)
        ev_run(loop, EVRUN_ONCE);
    ck_assert_uint_eq(hops, 0);
    answer_all();
    ev_run(loop, 0);
    ck_assert_uint_eq(hops, NAMES);
    ck_assert_uint_le(most, 32 + 16);
}
END_TEST

/* Waiting, running, and answered; then there is no loop any more that a thread could speak to. */
START_TEST(test_a_lookup_that_is_cancelled_says_nothing)
{
    unsigned count = 0;
    struct resolve *r[NAMES], *quick = start("quick.example", RESOLVE_NODE, &count);
    wait_until(&answered, 1);
    for (int i = 0; i < NAMES; i++)
        r[i] = start("next.example", RESOLVE_HOP, &count);
    wait_until(&entered, 2);
    for (int i = 0; i < NAMES; i++)
        resolve_cancel(r[i]);
    resolve_cancel(quick);
    resolve_cancel(NULL);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_uint_eq(count, 0);
    ev_loop_destroy(loop);
    loop = NULL;
    answer_all();
    wait_until(&idle, 1);
    ck_assert_uint_eq(count, 0);
}
END_TEST

/* As in dovelane-replicator: Dovecot's loop waits for the epoll descriptor of libev's. */
START_TEST(test_an_answer_wakes_a_loop_that_another_one_waits_for)
{
    unsigned count = 0;
    struct pollfd waits = {.fd = dup(STDIN_FILENO), .events = POLLIN};
    close(waits.fd); /* the next one that is made has its number */
    ev_loop_destroy(loop);
    loop = ev_loop_new(EVBACKEND_EPOLL);
    start("next.example", RESOLVE_NODE, &count);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(poll(&waits, 1, 0), 0);
    answer_all();
    ck_assert_int_eq(poll(&waits, 1, 20000), 1);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_uint_eq(count, 1);
}
END_TEST

static void on_path(struct path *p, const char *why, void *arg)
{
    ck_assert_msg(!why, "%s", why);
    *(bool *)arg = true;
}

static void on_time(struct ev_loop *l, ev_timer *t, int events)
{
    *(bool *)t->data = true;
}

/* A name of a node's address that is looked up slowly holds up nothing else, however slowly;
 * then it is connected to. */
START_TEST(test_a_loop_goes_on_while_a_nodes_name_is_looked_up)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    char address[40];
    bool ticked = false, connected = false, never = false;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(bind(listener, (struct sockaddr *)&in, sizeof in) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&in, &len) == 0);
    snprintf(address, sizeof address, "node.example:%u", ntohs(in.sin_port));
    struct endpoint *to = endpoint_new(&(struct config_link){.address = address});
    struct path *p = path_open(loop, to, 0, false, 10., on_path, &connected),
                *given_up = path_open(loop, to, 0, false, 10., on_path, &never);
    ev_timer t;
    ev_timer_init(&t, on_time, 0.01, 0.);
    t.data = &ticked;
    ev_timer_start(loop, &t);
    while (!ticked)
        ev_run(loop, EVRUN_ONCE);
    ck_assert(!connected && !path_is_open(p));
    path_close(given_up, false);
    answer_all();
    while (!connected)
        ev_run(loop, EVRUN_ONCE);
    ck_assert(path_is_open(p) && !never);
    path_close(p, false);
    endpoint_free(to);
    close(listener);
}
END_TEST

static void setup(void)
{
    loop = ev_loop_new(0);
}

static void teardown(void)
{
    if (loop)
        ev_loop_destroy(loop);
}

int main(void)
{
    Suite *s = suite_create("resolve");
    TCase *t = tcase_create("resolve");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, test_a_silent_name_server_does_not_cost_a_thread_a_name);
    tcase_add_test(t, test_nodes_do_not_wait_behind_next_hops);
    tcase_add_test(t, test_a_lookup_that_is_cancelled_says_nothing);
    tcase_add_test(t, test_an_answer_wakes_a_loop_that_another_one_waits_for);
    tcase_add_test(t, test_a_loop_goes_on_while_a_nodes_name_is_looked_up);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
