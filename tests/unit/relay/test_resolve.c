/* With a getaddrinfo of our own: a name server that answers nobody until it is told to. */
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>

#include "resolve.h"
#include "tests.h"

#define NAMES 300

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static bool answers;
static unsigned asked, most;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    *out = NULL;
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    pthread_mutex_lock(&lock);
    if (++asked > most)
        most = asked;
    while (!answers)
        pthread_cond_wait(&told, &lock);
    asked--;
    pthread_mutex_unlock(&lock);
    return EAI_NONAME;
}

static void on_answer(const struct addresses *found, const char *error, void *arg)
{
    unsigned *count = arg;
    ck_assert_uint_eq(found->n, 0);
    ck_assert_ptr_nonnull(error);
    ++*count;
}

static void on_time(struct ev_loop *loop, ev_timer *t, int events)
{
    pthread_mutex_lock(&lock);
    answers = true;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
}

START_TEST(test_a_silent_name_server_does_not_cost_a_thread_a_name)
{
    struct ev_loop *loop = ev_loop_new(0);
    struct nexthop hop;
    unsigned count = 0;
    ck_assert(nexthop_parse("smtp:[next.example]:25", &hop));
    for (int i = 0; i < NAMES; i++) {
        struct resolve *r = NULL;
        ck_assert(!resolve_start(loop, &hop, on_answer, &count, &r));
        ck_assert_ptr_nonnull(r);
    }
    ev_timer timer;
    ev_timer_init(&timer, on_time, 0.3, 0.);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
    ck_assert_uint_eq(count, NAMES);
    ck_assert_uint_ge(most, 2);
    ck_assert_uint_le(most, 32);
    nexthop_free(&hop);
    ev_loop_destroy(loop);
}
END_TEST

TCase *resolve_tests(void)
{
    TCase *t = tcase_create("resolve");
    tcase_add_test(t, test_a_silent_name_server_does_not_cost_a_thread_a_name);
    return t;
}
