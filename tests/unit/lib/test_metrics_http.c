#include <arpa/inet.h>
#include <check.h>
#include <ev.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/metrics.h"
#include "lib/daemon/metrics_http.h"
#include "tests/unit/lib/tests.h"

static struct ev_loop *loop;
static const char *trouble;
static int collects;
static char listen_at[32], answer[65536];
static struct sockaddr_in address;
static struct config config = {.metrics_listen = listen_at,
                               .metrics_tls_cert_file = "",
                               .metrics_tls_key_file = "",
                               .metrics_user_file = ""};

static const char *ready(void *arg)
{
    (void)arg;
    return trouble;
}

static void collect(void *arg)
{
    (void)arg;
    metric_set(relay_lanes, ++collects);
    metrics_http_collected();
}

/* The relay's port is the second one above. */
static void begin(void)
{
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    close(fd);
    snprintf(listen_at, sizeof listen_at, "127.0.0.1:%d", ntohs(address.sin_port) - 2);
    loop = ev_loop_new(EVFLAG_AUTO);
    metrics_http_start(
        &(struct metrics_http){
            .loop = loop, .program = "dovelane-relay", .ready = ready, .collect = collect},
        &config);
}

/* From another thread, while the loop turns or does not. */
static void *ask(void *path)
{
    char request[100];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 600 && connect(fd, (struct sockaddr *)&address, sizeof address); i++)
        usleep(50000);
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\n\r\n", (const char *)path);
    ssize_t sent = send(fd, request, (size_t)n, MSG_NOSIGNAL), got;
    size_t len = 0;
    while (sent == n && (got = recv(fd, answer + len, sizeof answer - 1 - len, 0)) > 0)
        len += (size_t)got;
    answer[len] = '\0';
    close(fd);
    return NULL;
}

static const char *asked(const char *path, bool turn)
{
    pthread_t thread;
    answer[0] = '\0';
    ck_assert_int_eq(pthread_create(&thread, NULL, ask, (void *)path), 0);
    while (turn && pthread_tryjoin_np(thread, NULL)) {
        ev_run(loop, EVRUN_NOWAIT);
        usleep(1000);
    }
    if (!turn)
        pthread_join(thread, NULL);
    return answer;
}

static bool says(const char *text, const char *status, const char *body)
{
    return !strncmp(text, "HTTP/1.0 ", 9) + !strncmp(text, "HTTP/1.1 ", 9) &&
           !strncmp(text + 9, status, 3) && strstr(text, body);
}

START_TEST(test_a_loop_that_turns_not)
{
    begin();
    ck_assert(says(asked("/healthz", true), "200", "ok"));
    ck_assert(says(asked("/healthz", false), "503", "the event loop does not turn"));
    ck_assert(says(asked("/metrics", false), "200", "dovelane_relay_lanes 0"));
    ck_assert(says(asked("/healthz", true), "200", "ok"));
    metrics_http_stop();
}
END_TEST

START_TEST(test_ready_and_not)
{
    begin();
    trouble = "it is being tested";
    ck_assert(says(asked("/readyz", true), "503", "it is being tested"));
    ck_assert(says(asked("/healthz", true), "200", "ok"));
    trouble = NULL;
    ck_assert(says(asked("/readyz", true), "200", "ok"));
    metrics_http_stop();
    metrics_http_stop();
}
END_TEST

START_TEST(test_gauges_are_asked_for)
{
    begin();
    ck_assert(says(asked("/metrics", true), "200", "dovelane_relay_lanes 1\n"));
    usleep(150000); /* what was collected is good for a tenth of a second */
    ck_assert(says(asked("/metrics", true), "200", "dovelane_relay_lanes 2\n"));
    ck_assert_int_eq(collects, 2);
    metrics_http_stop();
}
END_TEST

TCase *metrics_http_tests(void)
{
    TCase *c = tcase_create("metrics over HTTP");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_a_loop_that_turns_not);
    tcase_add_test(c, test_ready_and_not);
    tcase_add_test(c, test_gauges_are_asked_for);
    return c;
}
