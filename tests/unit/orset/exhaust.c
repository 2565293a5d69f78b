/* exhaust - every history of a few operations on 2 and 3 replicas, in every order of delivery: all
 * kinds of operation on 2 folders, 2 mails and 1 flag.
 *
 * Checked at the end of every history: all orders of the last deliveries give one digest per
 * replica, all replicas have the same digest, nothing is remembered any more, and what is shown is
 * what exhaust_model.h says: nothing removed is back, nothing added and not removed is missing, an
 * add or flag concurrent with its remove wins.
 *
 *     exhaust              2 replicas, up to 4 operations; 3 replicas, up to 3 of all, 4 of some
 *     exhaust short        a part that is quick enough for the sanitizers
 *     exhaust long         what is more than that, with 3 replicas: 4 of all, also with \Deleted; 3 of all with an exchange
 *     exhaust R N LETTER [deleted|seen [plain|reduced [exchange]]]   R replicas, up to N operations */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/orset/exhaust_walk.h"

#define WORKERS_MAX 8

static unsigned alphabet[OPERATIONS], nalphabet;
static uint64_t all_histories;

/* Shared by the processes of one run. */
static struct run {
    unsigned next; /* part of the programs that nobody has taken yet */
    struct worker {
        struct walked walked;
        struct work_done done;
    } worker[WORKERS_MAX];
} * run;

/* The part-th part of all programs of up to most operations: those of one length, one
 * distribution over the replicas and one beginning of two operations. False: there is no such
 * part. */
static bool walk_part(const struct manner *how, unsigned most, unsigned part)
{
    for (unsigned n = 0; n <= most; n++) {
        struct program p = {.n = n};
        unsigned parts = n == 0 ? 1 : n == 1 ? nalphabet : nalphabet * nalphabet;
        for (p.len[0] = 0; p.len[0] <= n; p.len[0]++)
            for (p.len[1] = how->replicas > 2 ? 0 : n - p.len[0]; p.len[1] <= n - p.len[0];
                 p.len[1]++) {
                p.len[2] = n - p.len[0] - p.len[1];
                if (part >= parts) {
                    part -= parts;
                    continue;
                }
                unsigned rest = 1;
                for (unsigned i = 2; i < n; i++)
                    rest *= nalphabet;
                for (unsigned number = part * rest; number < (part + 1) * rest; number++) {
                    unsigned digits = number;
                    for (unsigned s = SITES; s-- > 0;)
                        for (unsigned i = p.len[s]; i-- > 0; digits /= nalphabet)
                            p.op[s][i] = alphabet[digits % nalphabet];
                    walk_program(&p);
                    if (forget_if_full())
                        walk_start(how);
                }
                return true;
            }
    }
    return false;
}

static void walk_parts(const struct manner *how, unsigned most, struct worker *w)
{
    memset(&walked, 0, sizeof walked);
    memset(&work_done, 0, sizeof work_done);
    forget_all();
    walk_start(how);
    while (walk_part(how, most, __atomic_fetch_add(&run->next, 1, __ATOMIC_RELAXED)))
        ;
    w->walked = walked;
    w->done = work_done;
}

/* Ends the program when one of them found something. */
static void work_in_processes(const struct manner *how, unsigned most, unsigned n)
{
    pid_t pid[WORKERS_MAX];
    fflush(NULL);
    for (unsigned i = 0; i < n; i++) {
        if ((pid[i] = fork()) < 0) {
            perror("fork");
            exit(1);
        }
        if (pid[i] == 0) {
            walk_parts(how, most, &run->worker[i]);
            _exit(0);
        }
    }
    for (unsigned left = n; left > 0; left--) {
        int status;
        wait(&status);
        if (status == 0)
            continue;
        for (unsigned i = 0; i < n; i++)
            kill(pid[i], SIGKILL);
        fprintf(stderr, "a process of this run ended with %d\n", status);
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* All histories of up to most operations; what was walked. */
static struct walked walk_all(const struct manner *how, unsigned most, char letter)
{
    struct walked sum = {.leaves = 0};
    struct work_done done = {0};
    uint64_t histories = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = cores < 1 ? 1 : cores > WORKERS_MAX ? WORKERS_MAX : (unsigned)cores;
    double begin = now();
    memset(run, 0, sizeof *run);
    nalphabet = 0;
    for (unsigned i = 0; i < OPERATIONS; i++)
        if (strchr(OPERATION[i].in, letter))
            alphabet[nalphabet++] = i;
    work_in_processes(how, most, n);
    for (unsigned i = 0; i < n; i++) {
        const struct worker *w = &run->worker[i];
        for (unsigned j = 0; j <= PROGRAM_MAX; j++) {
            sum.histories[j] += w->walked.histories[j];
            histories += w->walked.histories[j];
        }
        sum.leaves += w->walked.leaves;
        sum.sum += w->walked.sum;
        done.issued += w->done.issued;
        done.applied += w->done.applied;
        done.pulled += w->done.pulled;
        done.rechecked += w->done.rechecked;
    }
    printf("%u replicas, up to %u of %2u operations%s%s%s: %13" PRIu64 " histories, %" PRIu64
           " walks, %" PRIu64 " steps (%" PRIu64 " of them again), %.1f s\n",
           how->replicas, most, nalphabet, how->disable_wins ? ", \\Deleted" : "",
           how->exchange ? ", with an exchange" : "", how->reduced ? "" : ", not reduced",
           histories, sum.leaves, done.issued + done.applied + done.pulled, done.rechecked,
           now() - begin);
    fflush(stdout);
    all_histories += histories;
    return sum;
}

/* The reductions lose nothing: the same histories with the same ends, walked one by one. */
static void compare(struct manner how, unsigned most, char letter)
{
    struct walked some = walk_all(&how, most, letter), all;
    how.reduced = false;
    all = walk_all(&how, most, letter);
    if (memcmp(some.histories, all.histories, sizeof all.histories) != 0 || some.sum != all.sum) {
        fprintf(stderr, "FAILED: reduced, the histories or their ends are others\n");
        exit(1);
    }
}

static const struct manner TWO = {.replicas = 2, .reduced = true},
                           THREE = {.replicas = 3, .reduced = true},
                           TWO_DELETED = {.replicas = 2, .reduced = true, .disable_wins = true},
                           THREE_DELETED = {.replicas = 3, .reduced = true, .disable_wins = true},
                           TWO_EXCHANGE = {.replicas = 2, .reduced = true, .exchange = true},
                           THREE_EXCHANGE = {.replicas = 3, .reduced = true, .exchange = true};

static void walk_short(void)
{
    compare(TWO, 2, 'a');
    compare(TWO, 2, 'r');
    compare(THREE_DELETED, 2, 'd');
    compare(TWO_EXCHANGE, 2, 'a');
    walk_all(&TWO, 3, 'a');
    walk_all(&THREE, 2, 'a');
    walk_all(&THREE, 3, 'r');
}

static void walk_full(void)
{
    compare(THREE, 3, 'a');
    compare(THREE_DELETED, 3, 'd');
    compare(THREE, 3, 'r');
    compare(TWO_EXCHANGE, 3, 'a');
    compare(THREE_EXCHANGE, 2, 'a');
    walk_all(&TWO, 4, 'a');
    walk_all(&TWO_DELETED, 4, 'a');
    walk_all(&THREE_DELETED, 4, 'd');
    walk_all(&THREE, 4, 'r');
}

static void walk_long(void)
{
    walk_all(&THREE, 4, 'a');
    walk_all(&THREE_DELETED, 4, 'a');
    walk_all(&THREE_EXCHANGE, 3, 'a');
}

int main(int argc, char **argv)
{
    run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED)
        return 1;
    if (argc > 3) {
        struct manner how = {.replicas = (unsigned)atoi(argv[1]),
                             .disable_wins = argc > 4 && argv[4][0] == 'd',
                             .reduced = argc <= 5 || argv[5][0] == 'r',
                             .exchange = argc > 6};
        walk_all(&how, (unsigned)atoi(argv[2]), argv[3][0]);
    } else if (argc > 1 && strcmp(argv[1], "short") == 0) {
        walk_short();
    } else if (argc > 1) {
        walk_long();
    } else {
        walk_full();
    }
    printf("%" PRIu64 " histories, all equal\n", all_histories);
    return 0;
}
