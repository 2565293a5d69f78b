#include "tests/bench/delay_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "lib/base/mem.h"

struct call {
    double due;
    void (*fn)(void *a, void *b);
    void *a, *b;
};

struct delay_line {
    struct ev_loop *loop;
    ev_timer timer;
    double delay;
    struct call *ring;
    size_t size, first, n;
};

static void arm(struct delay_line *l)
{
    double left = l->ring[l->first].due - ev_now(l->loop);
    ev_timer_set(&l->timer, left > 0 ? left : 0, 0);
    ev_timer_start(l->loop, &l->timer);
}

static void due(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)events;
    struct delay_line *l = t->data;
    while (l->n && l->ring[l->first].due <= ev_now(loop) + 1e-5) {
        struct call c = l->ring[l->first];
        l->first = (l->first + 1) % l->size;
        l->n--;
        c.fn(c.a, c.b);
    }
    if (l->n)
        arm(l);
}

struct delay_line *delay_line_open(struct ev_loop *loop, double delay)
{
    struct delay_line *l = mem_zero(sizeof *l);
    l->loop = loop;
    l->delay = delay;
    ev_init(&l->timer, due);
    l->timer.data = l;
    return l;
}

static void grow(struct delay_line *l)
{
    size_t size = l->size ? 2 * l->size : 64;
    struct call *ring = mem_zero(size * sizeof *ring);
    for (size_t i = 0; i < l->n; i++)
        ring[i] = l->ring[(l->first + i) % l->size];
    free(l->ring);
    l->ring = ring;
    l->size = size;
    l->first = 0;
}

void delay_line_put(struct delay_line *l, void (*fn)(void *a, void *b), void *a, void *b)
{
    if (l->delay <= 0) {
        fn(a, b);
        return;
    }
    if (l->n == l->size)
        grow(l);
    l->ring[(l->first + l->n++) % l->size] = (struct call){ev_now(l->loop) + l->delay, fn, a, b};
    if (l->n == 1 && !ev_is_active(&l->timer))
        arm(l);
}
