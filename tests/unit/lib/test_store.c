/* store against a node that answers who it is and keeps what else comes. */
#include <check.h>
#include <ev.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/store/store.h"
#include "tests/unit/lib/tests.h"

#define WITHIN 60 /* seconds: a hang guard */

static struct {
    char path[100], got[65536];
    size_t len;
    int listener, fd;
    atomic_bool fresh; /* the beats that it tells are new ones */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
} peer = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

/* What a process sees of a host that was suspended: this clock has gone on, CLOCK_MONOTONIC has not.
 * (The time of day has gone on, too, but here it only bounds waits.) */
static atomic_long suspended; /* seconds */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    long r = syscall(SYS_clock_gettime, clock, t);
    if (!r && clock == CLOCK_BOOTTIME)
        t->tv_sec += suspended;
    return (int)r;
}

#define ASKS "LANE.BEATS"
#define HELD 2 /* seconds, more than suspect_after of the test */

static bool has_asked(unsigned times)
{
    const char *at = peer.got;
    pthread_mutex_lock(&peer.lock);
    for (; times && (at = strstr(at, ASKS)); times--)
        at += strlen(ASKS);
    pthread_mutex_unlock(&peer.lock);
    return !times;
}

/* One young beat of mx1, and what it is whole for. The first answer comes late. */
static void answer_beats(unsigned answered)
{
    char text[200];
    if (answered == 1)
        sleep(HELD);
    snprintf(text, sizeof text,
             "*2\r\n*1\r\n*5\r\n$3\r\nmx1\r\n$1\r\ni\r\n:%u\r\n:0\r\n$11\r\nstate=alive\r\n"
             "*2\r\n$3\r\nmx1\r\n:1\r\n",
             peer.fresh ? answered : 1);
    send(peer.fd, text, strlen(text), MSG_NOSIGNAL);
}

/* In the order in which they were asked; what is neither has no answer. */
static void answer_questions(void)
{
    static const char *at = peer.got;
    static unsigned answered;
    for (;;) {
        const char *ping = strstr(at, "PING\r\n"), *beats = strstr(at, ASKS "\r\n");
        if (!ping && !beats)
            return;
        if (ping && (!beats || ping < beats)) {
            send(peer.fd, "+PONG\r\n", 7, MSG_NOSIGNAL);
            at = ping + 4;
        } else {
            answer_beats(++answered);
            at = beats + strlen(ASKS);
        }
    }
}

static void *peer_run(void *arg)
{
    static const char answer[] =
        "+OK\r\n*10\r\n$7\r\ngrammar\r\n:1\r\n$6\r\nrun-id\r\n$3\r\nabc\r\n$4\r\nnode\r\n$"
        "3\r\nmx1\r\n$9\r\nsettle-ms\r\n:5000\r\n$6\r\npolicy\r\n$10\r\nnoeviction\r\n";
    ssize_t n;
    (void)arg;
    peer.fd = accept(peer.listener, NULL, NULL);
    bool told = false;
    do {
        pthread_mutex_lock(&peer.lock);
        char *at = peer.got + peer.len;
        size_t room = sizeof peer.got - 1 - peer.len;
        pthread_mutex_unlock(&peer.lock);
        n = read(peer.fd, at, room);
        pthread_mutex_lock(&peer.lock);
        peer.len += n > 0 ? (size_t)n : 0;
        peer.got[peer.len] = '\0';
        pthread_cond_broadcast(&peer.more);
        bool asked = strstr(peer.got, "LANE.INFO") != NULL;
        pthread_mutex_unlock(&peer.lock);
        if (asked && !told)
            send(peer.fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
        told = told || asked;
        answer_questions();
    } while (n > 0);
    close(peer.fd);
    return NULL;
}

static void peer_start(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(peer.path, sizeof peer.path, "/tmp/dovelane-store-%d", (int)getpid());
    strcpy(a.sun_path, peer.path);
    unlink(peer.path);
    peer.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(peer.listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(peer.listener, 8), 0);
    ck_assert_int_eq(pthread_create(&peer.thread, NULL, peer_run, NULL), 0);
}

static bool peer_has(const char *word)
{
    struct timespec end;
    int e = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WITHIN;
    pthread_mutex_lock(&peer.lock);
    while (!strstr(peer.got, word) && !e)
        e = pthread_cond_timedwait(&peer.more, &peer.lock, &end);
    pthread_mutex_unlock(&peer.lock);
    return !e;
}

static struct config *config(const char *settings)
{
    char path[120], *error = NULL;
    snprintf(path, sizeof path, "%s.conf", peer.path);
    FILE *f = fopen(path, "w");
    fprintf(f, "copies = 1\n%snode mx1 {\n  redis = \"unix:%s\"\n}\n", settings, peer.path);
    fclose(f);
    struct config *c = config_read(path, &error);
    ck_assert_msg(c != NULL, "%s", error);
    unlink(path);
    return c;
}

static struct store *store;

static void done(struct store_request *r)
{
    (void)r;
}

static void submit(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    store_submit(store, t->data);
}

static void quiet(enum log_level level, const char *line)
{
    (void)level, (void)line;
}

/* What is submitted in one turn of the loop is written before the loop waits for anything: a
 * mail that comes alone would wait for the next timer. */
START_TEST(test_what_is_submitted_leaves_before_the_loop_waits)
{
    struct store_entry entry = {.destination = "lmtp:[127.0.0.1]:24", .meta = "m", .meta_len = 1};
    struct store_request request = {
        .queue_id = "Q", .body = "b", .body_len = 1, .nentries = 1, .entry = &entry, .done = done};
    char *error = NULL;
    log_stderr_to(quiet);
    peer_start();
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct config *c = config("takeover = manual\n");
    store = store_open_on(loop, c, NULL, &error);
    ck_assert_msg(store != NULL, "%s", error);
    for (time_t end = time(NULL) + WITHIN; !store_able(store) && time(NULL) < end;)
        ev_run(loop, EVRUN_ONCE);
    ck_assert(store_able(store));
    ev_timer now;
    ev_timer_init(&now, submit, 0., 0.);
    now.data = &request;
    ev_timer_start(loop, &now);
    ev_run(loop, EVRUN_NOWAIT); /* it is submitted */
    ev_run(loop, EVRUN_NOWAIT); /* before this one waits */
    bool sent = peer_has("LANE.PUSH");
    unlink(peer.path);
    ck_assert_msg(sent, "nothing was sent");
}
END_TEST

/* Of what was said before the answer was held up nobody knows whether it is still so. */
START_TEST(test_a_beat_is_as_old_as_the_question_that_it_answers)
{
    char *error = NULL;
    log_stderr_to(quiet);
    peer_start();
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct config *c = config("suspect_after = 1s\nbeat = 100ms\n");
    store = store_open_on(loop, c, NULL, &error);
    ck_assert_msg(store != NULL, "%s", error);
    bool able = false;
    time_t end = time(NULL) + WITHIN;
    while (!has_asked(4) && time(NULL) < end) {
        ev_run(loop, EVRUN_ONCE);
        able |= store_able(store);
    }
    ck_assert(has_asked(4));
    ck_assert_msg(!able, "an old beat was taken for a new one");
    peer.fresh = true;
    while (!store_able(store) && time(NULL) < end)
        ev_run(loop, EVRUN_ONCE);
    unlink(peer.path);
    ck_assert(store_able(store));
}
END_TEST

static void turn_until(struct ev_loop *loop, bool able)
{
    for (time_t end = time(NULL) + WITHIN; store_able(store) != able && time(NULL) < end;)
        ev_run(loop, EVRUN_ONCE);
    ck_assert_int_eq(store_able(store), able);
}

/* Others may have died, or come back without their mail, while this host was suspended. What they
 * said before counts for nothing. */
START_TEST(test_a_suspended_host_believes_no_beat_of_before)
{
    char *error = NULL;
    log_stderr_to(quiet);
    peer_start();
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    /* far longer than the test: only a clock that saw the suspension says that it is over */
    struct config *c = config("suspect_after = 1min\ndead_after = 3min\nbeat = 100ms\n");
    store = store_open_on(loop, c, NULL, &error);
    ck_assert_msg(store != NULL, "%s", error);
    peer.fresh = true;
    turn_until(loop, true);
    peer.fresh = false;
    suspended += 3600;
    unsigned long looks = store_tick(store);
    for (time_t end = time(NULL) + WITHIN / 2; store_tick(store) < looks + 2 && time(NULL) < end;)
        ev_run(loop, EVRUN_ONCE);
    ck_assert_msg(!store_able(store), "beats of before the suspension count");
    peer.fresh = true;
    turn_until(loop, true);
    unlink(peer.path);
}
END_TEST

TCase *store_tests(void)
{
    TCase *t = tcase_create("store");
    tcase_add_test(t, test_what_is_submitted_leaves_before_the_loop_waits);
    tcase_add_test(t, test_a_beat_is_as_old_as_the_question_that_it_answers);
    tcase_add_test(t, test_a_suspended_host_believes_no_beat_of_before);
    tcase_set_timeout(t, 120);
    return t;
}
