#include "relay/tables/lane_pause.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "relay/tables/destinations.h"

#define TICK 0.1 /* seconds: how exactly pauses end */

TAILQ_HEAD(paused_list, lane);

struct lane_pauses {
    struct relay *relay;
    struct paused_list paused;
    ev_timer tick; /* while there are some */
};

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    struct lane_pauses *p = t->data;
    struct lane *lane, *next;
    double now = clock_monotonic();
    for (lane = TAILQ_FIRST(&p->paused); lane; lane = next) {
        next = TAILQ_NEXT(lane, pause_link);
        if (now < lane->paused_until)
            continue;
        lane->paused = false;
        TAILQ_REMOVE(&p->paused, lane, pause_link);
        if (lane->destination)
            destination_want(lane->destination);
    }
    if (TAILQ_EMPTY(&p->paused))
        ev_timer_stop(loop, t);
}

void lane_pause(struct lane *lane, double seconds)
{
    struct lane_pauses *p = lane->destination->relay->lane_pauses;
    ASSERT(lane->parsed.generation);
    lane->paused_until = clock_monotonic() + seconds;
    if (lane->paused)
        return;
    lane->paused = true;
    TAILQ_INSERT_TAIL(&p->paused, lane, pause_link);
    if (!ev_is_active(&p->tick))
        ev_timer_again(p->relay->loop, &p->tick);
}

void lane_pause_end(struct lane *lane)
{
    lane->paused_until = 0.;
}

void lane_pause_forget(struct relay *r, struct lane *lane)
{
    if (lane->paused)
        TAILQ_REMOVE(&r->lane_pauses->paused, lane, pause_link);
    lane->paused = false;
    lane->head_since = 0.;
}

void lane_freeze(struct lane *lane, bool freeze)
{
    ASSERT(lane->frozen != freeze);
    lane->frozen = freeze;
    if (!freeze && lane->destination && !lane->destination->relay->stopping)
        destination_want(lane->destination);
}

bool lane_wait_for(struct entry *e, int64_t left)
{
    struct lane *lane = e->lane;
    double now = clock_monotonic(), most = (double)e->relay->config->head_hold / 1000.,
           wait = (double)left / 1e6;
    ASSERT(entry_keeps_place(e));
    if (left <= 0)
        return true;
    if (!lane->head_since || memcmp(lane->head, e->id, ENTRYID_LEN)) {
        memcpy(lane->head, e->id, ENTRYID_LEN);
        lane->head_since = now;
    }
    double hold = lane->head_since + most - now;
    if (hold <= 0.)
        return false;
    lane_pause(lane, wait < hold ? wait : hold);
    return true;
}

struct lane_pauses *lane_pauses_open(struct relay *r)
{
    struct lane_pauses *p = mem_zero(sizeof *p);
    p->relay = r;
    TAILQ_INIT(&p->paused);
    ev_timer_init(&p->tick, on_tick, TICK, TICK);
    p->tick.data = p;
    return p;
}

void lane_pauses_close(struct lane_pauses *p)
{
    ev_timer_stop(p->relay->loop, &p->tick);
    free(p);
}
