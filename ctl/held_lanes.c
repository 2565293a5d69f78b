#include "ctl/held_lanes.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

static int by_lane(const void *a, const void *b)
{
    const struct held_lane *x = a, *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->lane, y->lane, x->len);
}

static struct held_lane *new_lane(struct held_lanes *all, const char *lane, size_t len)
{
    struct lanename name;
    if (!lanename_parse(lane, len, &name))
        return NULL;
    struct held_lane *h = mem_alloc(sizeof *h);
    *h = (struct held_lane){all->first, mem_strndup(lane, len), len, name, 0};
    if (!tsearch(h, &all->tree, by_lane))
        abort(); /* out of memory */
    all->first = h;
    return h;
}

void held_lanes_add(struct held_lanes *all, const char *lane, size_t len, long long entries)
{
    struct held_lane key = {.lane = (char *)lane, .len = len};
    void *found = tfind(&key, &all->tree, by_lane);
    struct held_lane *h = found ? *(struct held_lane **)found : new_lane(all, lane, len);
    if (h && entries > h->entries)
        h->entries = entries;
}

static void forget(void *lane)
{
    struct held_lane *h = lane;
    lanename_free(&h->name);
    free(h->lane);
    free(h);
}

void held_lanes_clear(struct held_lanes *all)
{
    tdestroy(all->tree, forget);
    *all = (struct held_lanes){0};
}
