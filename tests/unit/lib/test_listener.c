#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/socket_swap.h"
#include "lib/daemon/listener.h"
#include "tests/unit/lib/tests.h"

static char directory[] = "/tmp/test-listener-XXXXXX", path[sizeof directory + 120];
static struct ev_loop *loop;
static int taken;
static bool full;
static gid_t group;

static void take(int fd)
{
    taken++;
    close(fd);
}

static bool has_room(void)
{
    return !full;
}

static struct listener *open_it(bool replace, char **error_r)
{
    return listener_open(&(struct listener_options){.loop = loop,
                                                    .setting = "some_socket",
                                                    .path = path,
                                                    .group = group,
                                                    .mode = 0660,
                                                    .replace = replace,
                                                    .take = take,
                                                    .has_room = has_room},
                         error_r);
}

static struct listener *opened(bool replace)
{
    char *error = NULL;
    struct listener *l = open_it(replace, &error);
    ck_assert_msg(l != NULL, "%s", error);
    return l;
}

/* It is there until the process ends: a look for leaks must find it. */
static void leaves(struct listener *l)
{
    static struct listener *left[2];
    left[left[0] != NULL] = l;
    listener_leave(l);
    while (!listener_left(l))
        ev_run(loop, EVRUN_ONCE);
}

/* Nothing at the path is touched, and nothing is left beside it. */
static void is_refused(bool replace, const char *why)
{
    char *error = NULL;
    struct dirent **name;
    struct stat before = {0}, after = {0};
    int there = lstat(path, &before);
    ck_assert(!open_it(replace, &error));
    ck_assert_msg(!strncmp(error, "some_socket = /tmp/", 19) && strstr(error, why), "%s", error);
    ck_assert(lstat(path, &after) == there && before.st_ino == after.st_ino);
    free(error);
    int n = scandir(directory, &name, NULL, NULL);
    ck_assert_int_eq(n, there < 0 ? 2 : 3);
    while (n)
        free(name[--n]);
    free(name);
}

static int socket_of(const char *at, bool listening, int queue)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    strcpy(un.sun_path, at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listening)
        ck_assert(bind(fd, (struct sockaddr *)&un, sizeof un) == 0 &&
                  (queue < 0 || listen(fd, queue) == 0));
    else if (connect(fd, (struct sockaddr *)&un, sizeof un) < 0)
        return -1;
    return fd;
}

static int connection(void)
{
    return socket_of(path, false, 0);
}

static void serves(int connections)
{
    int before = taken;
    for (int i = 0; i < connections; i++)
        ck_assert_int_ge(connection(), 0);
    while (taken < before + connections)
        ev_run(loop, EVRUN_ONCE);
}

START_TEST(test_it_takes_what_connects_and_gives_the_path_back)
{
    struct stat st;
    struct listener *l = opened(false);
    ck_assert(stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0660);
    serves(100);
    leaves(l);
    ck_assert(lstat(path, &st) < 0 && errno == ENOENT);
    listener_leave(NULL);
    ck_assert(listener_left(NULL));
}
END_TEST

START_TEST(test_without_room_connections_wait)
{
    struct listener *l = opened(false);
    full = true;
    ck_assert_int_ge(connection(), 0);
    ev_run(loop, EVRUN_ONCE);
    ck_assert_int_eq(taken, 0);
    full = false;
    serves(1);
    ck_assert_int_eq(taken, 2);
    leaves(l);
}
END_TEST

/* Postfix has connected, and would take the end of its connection for a failure of its mail. */
START_TEST(test_who_waits_when_it_leaves_is_taken)
{
    struct listener *l = opened(false);
    for (int i = 0; i < 100; i++) /* more than in one turn */
        ck_assert_int_ge(connection(), 0);
    leaves(l);
    ck_assert_int_eq(taken, 100);
    ck_assert(connection() < 0 && errno == ENOENT);
}
END_TEST

START_TEST(test_who_waits_for_room_when_it_leaves_is_taken)
{
    struct listener *l = opened(false);
    full = true;
    ck_assert_int_ge(connection(), 0);
    ev_run(loop, EVRUN_ONCE);
    listener_leave(l);
    listener_leave(l);
    while (connection() >= 0)
        ev_run(loop, EVRUN_NOWAIT);
    int waiting = taken;
    ck_assert(!listener_left(l));
    full = false;
    leaves(l);
    ck_assert(waiting == 0 && taken >= 1);
}
END_TEST

/* By the path that it had: as if somebody had looked it up before it was taken away. */
START_TEST(test_who_connects_after_that_is_refused)
{
    char before[sizeof path];
    snprintf(before, sizeof before, "%s", path);
    struct listener *l = opened(false);
    strcat(path, "-found");
    ck_assert_int_eq(link(before, path), 0);
    full = true;
    ck_assert_int_ge(connection(), 0);
    ev_run(loop, EVRUN_ONCE);
    listener_leave(l);
    for (struct stat st; stat(before, &st) == 0;)
        ev_run(loop, EVRUN_NOWAIT);
    ck_assert(connection() < 0 && errno == ECONNREFUSED);
    full = false;
    leaves(l);
    ck_assert_int_eq(taken, 1);
}
END_TEST

START_TEST(test_a_stale_socket_is_replaced)
{
    close(socket_of(path, true, 1));
    ck_assert(connection() < 0 && errno == ECONNREFUSED);
    struct listener *l = opened(false);
    serves(1);
    leaves(l);
}
END_TEST

/* Its socket still answers the first look; the process is gone with that. */
START_TEST(test_a_predecessor_that_is_dying_is_waited_for)
{
    int fd = socket_of(path, true, 1);
    pid_t pid = fork();
    if (!pid) {
        fd_set wait;
        FD_ZERO(&wait);
        FD_SET(fd, &wait);
        _exit(select(fd + 1, &wait, NULL, NULL, NULL) != 1);
    }
    close(fd);
    struct listener *l = opened(false);
    int status;
    ck_assert(waitpid(pid, &status, 0) == pid && status == 0);
    serves(1);
    leaves(l);
}
END_TEST

START_TEST(test_one_who_listens_keeps_its_path_however_full_its_queue_is)
{
    int fd = socket_of(path, true, 0);
    while (connection() >= 0)
        ;
    ck_assert_int_eq(errno, EAGAIN);
    is_refused(false, ": another process answers there: stop it, or name another path");
    ck_assert_int_ge(accept(fd, NULL, NULL), 0);
    close(fd);
}
END_TEST

START_TEST(test_the_process_before_this_one_keeps_its_connections_and_leaves_the_path)
{
    struct stat st;
    struct listener *before = opened(false);
    ck_assert_int_ge(connection(), 0);
    struct listener *l = opened(true);
    while (!taken)
        ev_run(loop, EVRUN_ONCE);
    leaves(before);
    ck_assert(stat(path, &st) == 0);
    serves(3);
    leaves(l);
    ck_assert(stat(path, &st) < 0);
}
END_TEST

START_TEST(test_what_is_no_socket_is_kept)
{
    static const char why[] = ": what is there is no socket: name another path, or take it away";
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs("precious", f) >= 0 && fclose(f) == 0);
    is_refused(false, why);
    is_refused(true, why);
    unlink(path);
    ck_assert_int_eq(symlink("elsewhere", path), 0);
    is_refused(false, why);
    is_refused(true, why);
}
END_TEST

/* Or it would depend on the process' number whether the next start succeeds. */
START_TEST(test_the_longest_path)
{
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    memset(path + sizeof directory, 'x', sizeof path - sizeof directory - 1);
    path[most + 1] = '\0';
    is_refused(false, ": longer than the 107 bytes that a socket's path may have");
    path[most] = '\0';
    struct listener *l = opened(false);
    serves(1);
    leaves(l);
}
END_TEST

START_TEST(test_a_directory_that_is_not_there_is_said)
{
    strcat(path, "/there/s");
    is_refused(false, ": there is no directory ");
    char *error = listener_check("some_socket", path);
    ck_assert_msg(error && strstr(error, "some_socket = ") && strstr(error, "/there: make it"),
                  "%s", error);
    free(error);
}
END_TEST

START_TEST(test_what_can_be_told_of_a_path_before)
{
    char *error = listener_check("some_socket", path);
    ck_assert_msg(!error, "%s", error);
    error = listener_check("some_socket", "/run/dovelane-none/s"); /* made when the unit starts */
    ck_assert_msg(!error, "%s", error);
    error = listener_check("some_socket", "/dev/null/s");
    ck_assert_msg(error && strstr(error, "there is no directory /dev/null: "), "%s", error);
    free(error);
    error = listener_check("some_socket", "/s");
    ck_assert_msg(!error, "%s", error);
    memset(path + sizeof directory, 'x', sizeof path - sizeof directory - 1);
    path[SOCKET_SWAP_PATH_MOST + 1] = '\0';
    error = listener_check("some_socket", path);
    ck_assert_msg(error && strstr(error, ": longer than the 107 bytes"), "%s", error);
    free(error);
}
END_TEST

START_TEST(test_a_group_that_it_may_not_give_is_said)
{
    uid_t we = geteuid();
    if (!we)
        ck_assert(chown(directory, 65534, 65534) == 0 && setgroups(0, NULL) == 0 &&
                  setegid(65534) == 0 && seteuid(65534) == 0);
    group = 0;
    is_refused(false, ": cannot set group and mode: Operation not permitted (this process' user "
                      "must be in that group)");
    ck_assert_int_eq(seteuid(we), 0);
}
END_TEST

static void setup(void)
{
    strcpy(directory + sizeof directory - 7, "XXXXXX");
    ck_assert(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/s", directory);
    loop = ev_loop_new(0);
    taken = 0;
    full = false;
    group = (gid_t)-1;
}

static void teardown(void)
{
    unlink(path);
    rmdir(directory);
    ev_loop_destroy(loop);
}

TCase *listener_tests(void)
{
    TCase *t = tcase_create("listener");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, test_it_takes_what_connects_and_gives_the_path_back);
    tcase_add_test(t, test_without_room_connections_wait);
    tcase_add_test(t, test_who_waits_when_it_leaves_is_taken);
    tcase_add_test(t, test_who_waits_for_room_when_it_leaves_is_taken);
    tcase_add_test(t, test_who_connects_after_that_is_refused);
    tcase_add_test(t, test_a_stale_socket_is_replaced);
    tcase_add_test(t, test_a_predecessor_that_is_dying_is_waited_for);
    tcase_add_test(t, test_one_who_listens_keeps_its_path_however_full_its_queue_is);
    tcase_add_test(t, test_the_process_before_this_one_keeps_its_connections_and_leaves_the_path);
    tcase_add_test(t, test_what_is_no_socket_is_kept);
    tcase_add_test(t, test_the_longest_path);
    tcase_add_test(t, test_a_directory_that_is_not_there_is_said);
    tcase_add_test(t, test_what_can_be_told_of_a_path_before);
    tcase_add_test(t, test_a_group_that_it_may_not_give_is_said);
    return t;
}
