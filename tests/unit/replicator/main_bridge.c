/* The bridge finds the descriptor of its loop, also where another thread (that of the metrics)
 * opens and closes some meanwhile. */
#include "dovecot-plugin/compat.h"

#include <ioloop.h>
#include <lib.h>

#include <ev.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/bridge.h"

#define ROUNDS 2000

static atomic_bool over;

static void *open_and_close(void *arg)
{
    (void)arg;
    while (!over) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            close(fd);
    }
    return NULL;
}

static void on_timer(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    *(bool *)t->data = TRUE;
    io_loop_stop(current_ioloop);
}

/* A loop that was found runs its timers. */
static void opens_and_runs(void)
{
    struct ioloop *ioloop = io_loop_create();
    struct bridge *b = bridge_open();
    bool came = FALSE;
    ev_timer t;
    ev_timer_init(&t, on_timer, 0., 0.);
    t.data = &came;
    ev_timer_start(bridge_loop(b), &t);
    bridge_start(b);
    while (!came)
        io_loop_run(ioloop);
    bridge_close(&b);
    io_loop_destroy(&ioloop);
}

int main(void)
{
    pthread_t thread;
    lib_init();
    if (pthread_create(&thread, NULL, open_and_close, NULL) != 0)
        i_fatal("no thread");
    for (int i = 0; i < ROUNDS; i++)
        opens_and_runs();
    over = TRUE;
    pthread_join(thread, NULL);
    lib_deinit();
    return 0;
}
