/* internal - what the files of the core share. */
#ifndef DOVELANE_LANE_INTERNAL_H
#define DOVELANE_LANE_INTERNAL_H

#include "lane.h"

#define BLOCK_SLOTS 128u
#define STRETCH_BITS 16

/* ---- blocks.c: where the slots are ---- */

struct slot {
    uint8_t id[LANE_ID_LEN];
    char *data; /* body, then the meta it was stored with; NULL when both are empty */
    char *meta; /* the meta that replaced it, NULL: the first one */
    struct lane_lease *lease;
    int64_t born;
    uint32_t body_len, meta_len;
    uint32_t data_len; /* of the allocation: body and first meta */
    uint32_t revision, attempts;
    uint32_t place; /* in the heap of its state: leased, delayed, or waiting below fresh */
    uint8_t state;
    bool has_id, has_meta, revoked;
};

struct block {
    uint64_t live[BLOCK_SLOTS / 64]; /* one bit per index */
    uint32_t first;                  /* index of slot[0] */
    uint32_t used, room;             /* slots from first on */
    uint32_t nlive;
    struct slot slot[];
};

/* A dead place of the directory says how far the next one alive is; the front and the back are never dead. */
struct place {
    uint64_t number;
    struct block *block; /* NULL: dead */
    size_t skip;
};

struct blocks {
    struct place *place;
    size_t begin, end, room, dead;
};

struct slot *blocks_find(const struct lane *, uint64_t seq);
struct slot *blocks_next(const struct lane *, uint64_t *seq); /* at or after *seq, which it sets */
struct slot *blocks_append(struct lane *, uint64_t seq);      /* above all others; zeroed; NULL: no memory */
void blocks_remove(struct lane *, uint64_t seq);
void blocks_free(struct lane *);
const char *blocks_check(const struct lane *);

/* ---- heap.c: binary heaps of sequences; slots know their place ---- */

struct heap_item {
    int64_t key;
    uint64_t seq;
};

struct heap {
    struct heap_item *item;
    uint32_t n, room;
};

bool heap_reserve(struct lane *, struct heap *, uint64_t room);
void heap_add(struct lane *, struct heap *, int64_t key, uint64_t seq); /* reserved before */
void heap_remove(struct lane *, struct heap *, uint32_t place);
void heap_change(struct lane *, struct heap *, uint32_t place, int64_t key);
void heap_free(struct lane *, struct heap *);
const char *heap_check(const struct lane *, const struct heap *, enum lane_state);

/* ---- idindex.c: id to sequence ---- */

struct idindex {
    uint64_t *seq;  /* 0: free */
    uint32_t *hash; /* behind it in the same allocation */
    size_t n, room; /* room: 0 or a power of two */
};

uint64_t idindex_find(const struct lane *, const uint8_t *id);
bool idindex_reserve(struct lane *); /* for one more */
void idindex_add(struct lane *, const uint8_t *id, uint64_t seq);
void idindex_remove(struct lane *, const uint8_t *id, uint64_t seq);
void idindex_free(struct lane *);
const char *idindex_check(const struct lane *);

/* ---- lease.c ---- */

struct lane_lease {
    uint64_t number;
    struct lane *lane;
    struct lane_holder *holder;
    struct lane_lease *prev, *next;           /* of the holder */
    struct lane_lease *lane_prev, *lane_next; /* of the lane */
    uint64_t *seq;                            /* what was taken, rising; some may have left since */
    uint32_t n, room, live;
    bool open;
};

void lease_leave(struct slot *); /* the slot's lease has one entry less */

/* ---- lane.c ---- */

struct lane {
    struct lane_env *env;
    void *owner;
    struct lane_settings settings;
    uint64_t length, bytes, memory;
    uint64_t last;       /* the last sequence ever stored here */
    uint64_t next, stop; /* what the next push gets; equal at the end of the stretch */
    uint64_t fresh;      /* nothing from here on was ever taken */
    struct blocks blocks;
    struct idindex ids;
    struct heap back;    /* waiting below fresh, by sequence */
    struct heap delayed; /* by due time */
    struct heap leased;  /* by the lease's end */
    struct lane_lease *leases;
};

void *lane_alloc(struct lane *, size_t);
void lane_release(struct lane *, void *, size_t); /* p may be NULL */

/* Room in the heaps for one entry more that is going to be delayed or leased, so that giving back never needs
 * memory. */
bool lane_reserve_one(struct lane *, bool leased);
void lane_trim(struct lane *); /* gives the heaps' memory back when they are empty */

#endif
