/* Where replicator.db and the reserve are, with the eyes of root, of the replicator's user and
 * of another one's. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/site/replicator_dir.h"
#include "lib/base/mem.h"
#include "tests/unit/replicator/tests.h"

#define RELAYS 12345      /* the user of versions before */
#define REPLICATORS 12346 /* its own */

static char base[] = "/tmp/dovelane-directory-XXXXXX", own[64], older[64];

static void make(const char *path, uid_t uid, mode_t mode)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(chown(path, uid, uid), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

static void begin(void)
{
    strcpy(base + strlen(base) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(base));
    ck_assert_int_eq(chmod(base, 0755), 0);
    snprintf(own, sizeof own, "%s/own", base);
    snprintf(older, sizeof older, "%s/older", base);
    make(own, REPLICATORS, 0700);
    make(older, RELAYS, 0711);
}

static void end(void)
{
    char *command = mem_printf("rm -rf %s", base);
    ck_assert_int_eq(system(command), 0);
    free(command);
}

static void reserve(const char *directory, uid_t uid)
{
    char *path = mem_printf("%s/reserve", directory);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert(fd >= 0 && fchown(fd, uid, uid) == 0);
    close(fd);
    free(path);
}

/* What that user finds: "own", "older", or the error. */
static char *found_by(uid_t uid)
{
    int ends[2];
    char text[2000] = "";
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        char *error, *at;
        if (uid && (setgid(uid) || setuid(uid)))
            _exit(1);
        at = replicator_dir_find("", own, older, &error);
        dprintf(ends[1], "%s",
                !at                  ? error
                : !strcmp(at, own)   ? "own"
                : !strcmp(at, older) ? "older"
                                     : at);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n, len = 0; (n = read(ends[0], text + len, sizeof text - 1 - (size_t)len)) > 0;
         len += n)
        ;
    close(ends[0]);
    int status;
    ck_assert(waitpid(child, &status, 0) == child && status == 0);
    return mem_strdup(text);
}

static void finds(uid_t uid, const char *expected)
{
    char *is = found_by(uid);
    ck_assert_msg(strstr(is, expected) == is, "user %u finds %s, not %s", (unsigned)uid, is,
                  expected);
    free(is);
}

START_TEST(a_new_host)
{
    finds(REPLICATORS, "own");
    finds(0, "own");
}
END_TEST

/* own is not made yet: Dovecot and the rest are as before. */
START_TEST(a_host_without_a_directory_of_its_own)
{
    ck_assert_int_eq(rmdir(own), 0);
    finds(RELAYS, "older");
    finds(REPLICATORS, "own"); /* the open says that it must be made */
}
END_TEST

static void refuses(uid_t uid, const char *path)
{
    char *said = found_by(uid);
    ck_assert_msg(strstr(said, path) == said && strstr(said, "Permission denied") &&
                      strstr(said, "upgrade page"),
                  "user %u finds %s", (unsigned)uid, said);
    free(said);
}

/* Whether own has a reserve, the user of before cannot see. */
START_TEST(the_user_of_before_after_the_move)
{
    refuses(RELAYS, own);
    reserve(own, REPLICATORS);
    refuses(RELAYS, own);
    finds(REPLICATORS, "own");
}
END_TEST

START_TEST(a_user_of_its_own_that_cannot_search_the_older_directory)
{
    static const mode_t modes[] = {0700, 0750};
    reserve(older, RELAYS);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(chmod(older, modes[i]), 0);
        refuses(REPLICATORS, older);
        finds(RELAYS, "older");
    }
    reserve(own, REPLICATORS);
    finds(REPLICATORS, "own");
}
END_TEST

START_TEST(an_upgraded_host_whose_dovecot_stays_as_it_was)
{
    reserve(older, RELAYS);
    finds(RELAYS, "older");
    finds(0, "older"); /* as `dovelane-replicator -t` asks */
}
END_TEST

START_TEST(a_user_of_its_own_whose_files_were_not_moved)
{
    char *said;
    reserve(older, RELAYS);
    said = found_by(REPLICATORS);
    ck_assert_msg(strstr(said, "older/reserve belongs to another user") && strstr(said, "mv ") &&
                      strstr(said, "upgrade page"),
                  "%s", said);
    free(said);
}
END_TEST

START_TEST(a_user_of_its_own_whose_files_were_moved)
{
    reserve(own, REPLICATORS);
    finds(REPLICATORS, "own");
    finds(0, "own");
    reserve(older, RELAYS); /* one that was left, or made by a try with the old user */
    finds(REPLICATORS, "own");
}
END_TEST

START_TEST(a_setting_counts_as_it_is)
{
    char *error, *at = replicator_dir_find("/elsewhere", own, older, &error);
    reserve(older, RELAYS);
    ck_assert_str_eq(at, "/elsewhere");
    free(at);
}
END_TEST

TCase *directory_tests(void)
{
    TCase *t = tcase_create("directory");
    tcase_add_checked_fixture(t, begin, end);
    if (geteuid())
        return t; /* users are root's to take */
    tcase_add_test(t, a_new_host);
    tcase_add_test(t, a_host_without_a_directory_of_its_own);
    tcase_add_test(t, the_user_of_before_after_the_move);
    tcase_add_test(t, a_user_of_its_own_that_cannot_search_the_older_directory);
    tcase_add_test(t, an_upgraded_host_whose_dovecot_stays_as_it_was);
    tcase_add_test(t, a_user_of_its_own_whose_files_were_not_moved);
    tcase_add_test(t, a_user_of_its_own_whose_files_were_moved);
    tcase_add_test(t, a_setting_counts_as_it_is);
    return t;
}
