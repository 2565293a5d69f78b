/* defrag - moves what a lane is made of to where its allocator would rather have it, a few pieces
 * at a time.
 *
 *    cursor:  stage (32 bits) | next piece of it (32 bits)
 *
 * Left out are the lane itself and its leases: others point to them, and they are few or
 * short-lived. */
#include "redis-module/core/internal.h"

struct pieces {
    const struct lane_defrag *how;
    struct lane *lane;
    uint32_t at, n; /* the next one, and how many there are */
};

/* Where it is now. */
static void *moved(const struct pieces *p, void *piece)
{
    void *to = piece ? p->how->move(p->how->arg, piece) : NULL;
    return to ? to : piece;
}

static void segments(struct pieces *p)
{
    struct arena *a = &p->lane->arena;
    p->n = a->n;
    if (p->at == 0) {
        a->spare = moved(p, a->spare);
        a->segment = moved(p, a->segment);
    }
    if (p->at < p->n && !((uintptr_t)a->segment[p->at] & 1))
        a->segment[p->at] = moved(p, a->segment[p->at]);
}

static void blocks(struct pieces *p)
{
    struct blocks *b = &p->lane->blocks;
    p->n = b->ids;
    if (p->at == 0) {
        b->place = moved(p, b->place);
        b->by_id = moved(p, b->by_id);
    }
    if (p->at < p->n && !((uintptr_t)b->by_id[p->at] & 1)) {
        struct block *block = moved(p, b->by_id[p->at]);
        block->slot = moved(p, block->slot);
        blocks_moved(p->lane, block);
    }
}

static void tables(struct pieces *p)
{
    struct idindex *x = &p->lane->ids;
    p->n = x->table ? 1u << x->depth : 0;
    if (p->at == 0)
        x->table = moved(p, x->table);
    if (p->at >= p->n || (p->at && x->table[p->at] == x->table[p->at - 1]))
        return;
    uint64_t *old = x->table[p->at], *to = moved(p, old);
    for (uint32_t i = p->at; to != old && i < p->n && x->table[i] == old; i++)
        x->table[i] = to;
}

static void pages(struct pieces *p, struct pages *pages)
{
    p->n = pages->npages;
    if (p->at == 0)
        pages->page = moved(p, pages->page);
    if (p->at < p->n)
        pages->page[p->at] = moved(p, pages->page[p->at]);
}

bool lane_defrag(struct lane *lane, const struct lane_defrag *how, uint64_t *cursor)
{
    struct pages *const paged[] = {&lane->extras.pages, &lane->back.pages, &lane->delayed.pages,
                                   &lane->leased.pages, &lane->expiry.pages};
    const uint32_t stages = 3 + sizeof paged / sizeof *paged;
    uint32_t stage = (uint32_t)(*cursor >> 32);
    struct pieces p = {.how = how, .lane = lane, .at = (uint32_t)*cursor};
    for (; stage < stages; stage++, p.at = 0) {
        do {
            if (how->stop(how->arg)) {
                *cursor = (uint64_t)stage << 32 | p.at;
                return true;
            }
            switch (stage) {
            case 0: segments(&p); break;
            case 1: blocks(&p); break;
            case 2: tables(&p); break;
            default: pages(&p, paged[stage - 3]); break;
            }
        } while (++p.at < p.n);
    }
    return false;
}
