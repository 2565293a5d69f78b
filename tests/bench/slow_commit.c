/* slow_commit - a disk whose commit takes a while, for programs that are started with
 * LD_PRELOAD=slow_commit.so: fsync and fdatasync return when such a commit has ended, and the file
 * system below does nothing for them.
 *
 * Group commit, as a journal has it: one commit is under way at a time; whoever comes meanwhile is
 * in the next one, which begins when this one ends and takes all who wait along. So one process
 * alone gets 1000 / SLOW_COMMIT_MS a second, many together that many times their number, and a
 * commit costs no CPU.
 *
 * SLOW_COMMIT_FILE: shared by all programs of one such disk, 8 bytes. SLOW_COMMIT_MS: how long a
 * commit takes. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int fsync(int fd);
int fdatasync(int fd);

/* of the latest commit that has begun or is sure to: CLOCK_MONOTONIC, ns */
static _Atomic int64_t *last_end;
static int64_t takes;

static void prepare(void)
{
    const char *path = getenv("SLOW_COMMIT_FILE"), *ms = getenv("SLOW_COMMIT_MS");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *last_end) < 0)
        return;
    void *p = mmap(NULL, sizeof *last_end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    takes = (ms ? atoll(ms) : 5) * 1000000;
    last_end = p == MAP_FAILED ? NULL : p;
}

/* Before the program drops its rights and changes its root. */
__attribute__((constructor)) static void start(void)
{
    prepare();
}

static int commit(void)
{
    struct timespec t;
    if (!last_end)
        return -1; /* better no figure than a wrong one */
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, end = atomic_load(last_end), ours;
    do {
        if (end - takes > now) {
            ours = end; /* it has not begun: join it */
            break;
        }
        ours = (end > now ? end : now) + takes;
    } while (!atomic_compare_exchange_weak(last_end, &end, ours));
    t = (struct timespec){ours / 1000000000, ours % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
        ;
    return 0;
}

int fsync(int fd)
{
    (void)fd;
    return commit();
}

int fdatasync(int fd)
{
    (void)fd;
    return commit();
}
