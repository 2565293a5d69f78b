/* pages - arrays in pages of a fixed size.
 *
 *    table: | * | * | * |          the first page grows from 4 things to a full page, all later ones are full;
 *             v   v   v            what is in a full page never moves
 *            [ ] [ ] [ ]
 *
 * An array that doubles by copying stops the server for as long as a million things take to
 * copy. */
#include "redis-module/core/internal.h"

#include <string.h>

#define FIRST_ROOM 4u
#define PAGES_A_TIME 32

static bool table_room(struct lane *lane, struct pages *p)
{
    if (p->npages < p->table_room)
        return true;
    uint32_t room = p->table_room ? 2 * p->table_room : 1;
    char **table = lane_alloc(lane, room * sizeof *table);
    if (!table)
        return false;
    if (p->npages)
        memcpy(table, p->page, p->npages * sizeof *table);
    lane_release(lane, p->page, p->table_room * sizeof *table);
    p->page = table;
    p->table_room = room;
    return true;
}

/* The first page with more room. */
static bool widen_first(struct lane *lane, struct pages *p, struct page_kind kind, uint32_t room)
{
    char *page = lane_alloc(lane, (size_t)room * kind.size);
    if (!page)
        return false;
    if (p->npages) {
        memcpy(page, p->page[0], (size_t)p->room * kind.size);
        lane_release(lane, p->page[0], (size_t)p->room * kind.size);
    } else if (!table_room(lane, p)) {
        lane_release(lane, page, (size_t)room * kind.size);
        return false;
    }
    p->page[0] = page;
    p->npages = 1;
    p->room = room;
    return true;
}

bool pages_reserve(struct lane *lane, struct pages *p, struct page_kind kind, uint64_t room)
{
    uint32_t full = 1u << kind.bits;
    if (room > UINT32_MAX - full)
        return false;
    while (p->room < room) {
        if (p->room < full) {
            uint32_t next = p->room ? p->room : FIRST_ROOM;
            while (next < room && next < full)
                next = next * 4 < full ? next * 4 : full;
            if (!widen_first(lane, p, kind, next))
                return false;
            continue;
        }
        if (!table_room(lane, p))
            return false;
        char *page = lane_alloc(lane, (size_t)full * kind.size);
        if (!page)
            return false;
        p->page[p->npages++] = page;
        p->room += full;
    }
    return true;
}

void pages_trim(struct lane *lane, struct pages *p, struct page_kind kind, uint64_t room)
{
    uint32_t full = 1u << kind.bits;
    /* One page more stays: what goes up and down at the border costs nothing. After a million
     * leases that ended at once there is much to give back; nobody waits for it. */
    for (int i = 0; i < PAGES_A_TIME && p->npages > 1 && room + full <= p->room - full; i++) {
        lane_release(lane, p->page[--p->npages], (size_t)full * kind.size);
        p->room -= full;
    }
}

void pages_free(struct lane *lane, struct pages *p, struct page_kind kind)
{
    uint32_t full = 1u << kind.bits;
    for (uint32_t i = 0; i < p->npages; i++)
        lane_release(lane, p->page[i], (size_t)(p->room < full ? p->room : full) * kind.size);
    lane_release(lane, p->page, p->table_room * sizeof *p->page);
    *p = (struct pages){0};
}
