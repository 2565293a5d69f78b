/* internal - what the files of the core share. */
#ifndef DOVELANE_REDIS_MODULE_CORE_INTERNAL_H
#define DOVELANE_REDIS_MODULE_CORE_INTERNAL_H

/* What a comment says must hold, checked in release builds, too: nobody can say what a lane that
 * broke a rule would do to mail. Redis logs where it was, and a node that ended comes back with
 * what the other owners hold. Only where it costs next to nothing; check.c looks at all of it. */
#undef NDEBUG
#include <assert.h>
#define LANE_ASSERT assert

#include "redis-module/core/lane.h"

#define BLOCK_SLOTS 128u
#define STRETCH_BITS 16
#define LANE_META_MASK 0x1fffffu /* what a slot's field holds: LANE_META_MAX is below it */

/* ---- pages.c: arrays that grow without moving what they hold ---- */

struct pages {
    char **page;
    uint32_t npages, table_room;
    uint32_t room; /* things */
};

/* What is in a page: 2^bits things of `size` bytes. The first page begins with room for 4. */
struct page_kind {
    uint32_t bits, size;
};

bool pages_reserve(struct lane *, struct pages *, struct page_kind, uint64_t room);
/* at least that stays */
void pages_trim(struct lane *, struct pages *, struct page_kind, uint64_t room);
void pages_free(struct lane *, struct pages *, struct page_kind);

static inline void *pages_at(const struct pages *p, struct page_kind kind, uint32_t i)
{
    return p->page[i >> kind.bits] + (size_t)(i & ((1u << kind.bits) - 1)) * kind.size;
}

/* ---- arena.c: where bodies and metas are ---- */

/* Where a record is. Survives until the record is dropped or the arena moves it. */
struct ref {
    uint32_t segment; /* its number, 0: there is nothing */
    uint32_t at;
};

#define ARENA_BUCKETS 7

struct arena {
    struct segment **segment; /* by number; a free number has the next free one, see arena.c */
    uint32_t n, room, free;
    /* segments that records are appended to: new ones, moved ones */
    uint32_t open, survivors;
    uint32_t bucket[ARENA_BUCKETS]; /* closed segments by their live part, in eighths */
    struct segment *spare;
    uint64_t size, live; /* bytes of all segments, of all live records */
};

/* A record of that many bytes: where the caller writes them, NULL for want of memory. It is
 * owned before any other record is dropped. `meta`: it is a meta that replaced the first one,
 * belonging to the slot's extra. */
char *arena_reserve(struct lane *, size_t len, struct ref *);
void arena_own(char *, uint32_t handle, bool meta);
/* len 0: not known. May move other records, after it */
void arena_drop(struct lane *, struct ref, size_t len);

/* Where the next record would be in the open segment, and how many bytes are left there; NULL:
 * it needs another segment. */
char *arena_room(const struct lane *, struct ref *, uint32_t *left_r);
/* a record there, owned; its data is behind RECORD_HEAD */
void arena_lay(char *at, uint32_t handle, uint32_t len);
void arena_laid(struct lane *, uint32_t size); /* that much was laid from there on */

/* Several of one segment, none of which is owned any more: `size` is the sum of arena_size() of
 * their lengths. */
void arena_drop_some(struct lane *, uint32_t segment, uint32_t size);

#define RECORD_HEAD 8u

/* The bytes that a record takes. */
static inline uint32_t arena_size(uint32_t len)
{
    return RECORD_HEAD + ((len + 7) & ~7u);
}
void arena_free(struct lane *);
char *arena_at(const struct lane *, struct ref);
bool arena_alone(const struct lane *, struct ref);

/* A record that is alone in its segment goes to another lane without being copied. False: it has
 * to be. */
bool arena_hand_over(struct lane *from, struct ref, struct lane *to, struct ref *);
const char *arena_check(const struct lane *);

/* ---- blocks.c: where the slots are ---- */

/* 40 bytes: a block of them fills a size class of the usual allocators (5,120). What few entries
 * have is in an extra. */
struct slot {
    uint8_t id[LANE_ID_LEN];
    struct ref data; /* body, then the meta it was stored with; none when both are empty */
    int64_t born : 40;
    uint64_t meta_len : 21;
    uint64_t state : 2;
    uint64_t has_id : 1;
    uint32_t body_len;
    uint32_t extra; /* number of its extra + 1, 0: it has none */
};

/* Slots by index: one after the other from `first` on, or, when packed, only those that `laid`
 * names. */
struct block {
    uint64_t live[BLOCK_SLOTS / 64]; /* one bit per index */
    uint64_t laid[BLOCK_SLOTS / 64];
    uint64_t number;
    struct slot *slot;
    uint32_t id; /* in the table of blocks */
    uint8_t first, used, room, nlive;
    bool packed;
};

/* A dead place of the directory says how far the next one alive is; the front and the back are
 * never dead. */
struct place {
    uint64_t number;
    struct block *block; /* NULL: dead */
    size_t skip;
};

struct blocks {
    struct place *place;
    size_t begin, end, room, dead;
    struct block **by_id; /* from 1; a free id has the next free one, see blocks.c */
    uint32_t ids, ids_room, free_id;
};

/* A handle names a slot of a lane in 32 bits as long as it lives: block id * 128 + index. Never
 * 0. */
struct slot *blocks_at(const struct lane *, uint32_t handle); /* NULL: no such slot now */
struct slot *blocks_find(const struct lane *, uint64_t seq);
uint32_t blocks_handle(const struct lane *, uint64_t seq);    /* of a live one */
struct slot *blocks_next(const struct lane *, uint64_t *seq); /* at or after *seq, which it sets */
/* The slots of *n_r sequences one after the other, all alive, from the first at or after *seq
 * on, which it sets; none above `to`. */
struct slot *blocks_run(const struct lane *, uint64_t *seq, uint64_t to, uint32_t *n_r);
/* Above all others; the caller writes all of it; NULL: no memory. */
struct slot *blocks_append(struct lane *, uint64_t seq, uint32_t *handle_r);
/* The same for several, as far as there is room for them: the first one's slot and handle, and
 * how many; NULL: none. They are there when blocks_appended says so. */
struct slot *blocks_room(const struct lane *, uint64_t seq, uint32_t *handle_r, uint32_t *n_r);
void blocks_appended(struct lane *, uint32_t n);
void blocks_remove(struct lane *, uint64_t seq);                 /* slots of its block may move */
void blocks_remove_run(struct lane *, uint64_t seq, uint32_t n); /* as blocks_run found them */
void blocks_free(struct lane *);
const char *blocks_check(const struct lane *);

/* A block has another address. */
void blocks_moved(struct lane *, struct block *);

/* Fetches what finding a handle's slot needs: first its block, then the slot. */
void blocks_fetch_block(const struct lane *, uint32_t handle);
void blocks_fetch_slot(const struct lane *, uint32_t handle);

/* The sequence of a handle. */
uint64_t blocks_seq(const struct lane *, uint32_t handle);

/* ---- extra.c: what leased, delayed, tried and changed entries have besides ---- */

#define LIFE_BITS 20
#define LIFE_MAX ((1u << LIFE_BITS) - 1)

struct extra {
    uint64_t seq;
    struct lane_lease *lease;
    struct ref meta;           /* the meta that replaced the first one, see has_meta */
    int64_t expires : 40;      /* 0: never */
    uint64_t life : LIFE_BITS; /* of the lane's leases, when it was leased */
    uint64_t has_meta : 1;
    uint64_t revoked : 1;
    uint32_t revision, attempts;
    uint32_t place; /* in the heap of its state: leased, delayed, or waiting below fresh */
    uint32_t expiry_place;
};

struct extras {
    struct pages pages;
    uint32_t n;
};

struct extra *extra_at(const struct lane *, uint32_t number);
struct extra *extra_of(const struct lane *, const struct slot *); /* NULL: it has none */
/* what it has, too; NULL: no memory */
struct extra *extra_make(struct lane *, struct slot *, uint64_t seq);
void extra_drop(struct lane *, struct slot *); /* others may move */
void extra_free(struct lane *);
const char *extra_check(const struct lane *);

/* ---- heap.c: binary heaps of extras, which know their place ---- */

struct heap_item {
    int64_t key;
    uint32_t extra;
};

struct heap {
    struct pages pages;
    uint32_t n;
    bool by_expiry; /* an extra is in one heap by its state, and perhaps in this one, too */
};

struct heap_item *heap_at(const struct heap *, uint32_t place);
bool heap_reserve(struct lane *, struct heap *, uint64_t room);
void heap_trim(struct lane *, struct heap *, uint64_t room);
void heap_add(struct lane *, struct heap *, int64_t key, uint32_t extra); /* reserved before */
void heap_remove(struct lane *, struct heap *, uint32_t place);
void heap_change(struct lane *, struct heap *, uint32_t place, int64_t key);
void heap_free(struct lane *, struct heap *);
const char *heap_check(const struct lane *, const struct heap *, enum lane_state); /* 0: any */
uint64_t heap_first_seq(const struct lane *, const struct heap *); /* it is not empty */

/* ---- idindex.c: id to handle ---- */

struct idindex {
    uint64_t **table; /* 2^depth pointers to tables, see idindex.c */
    uint32_t depth;
    uint64_t n;
    uint32_t tables, deepest; /* how many there are; how many of them have `depth` */
};

/* a handle, 0: none */
uint32_t idindex_find(const struct lane *, const uint8_t *id, uint64_t hash);
/* for one more of that hash */
bool idindex_reserve(struct lane *, uint64_t hash);
void idindex_add(struct lane *, uint64_t hash, uint32_t handle); /* reserved before */
void idindex_remove(struct lane *, uint64_t hash, uint32_t handle);
void idindex_ahead(const struct lane *, const uint64_t *hash, size_t n);
void idindex_free(struct lane *);
const char *idindex_check(const struct lane *);

/* ---- lease.c ---- */

/* What the leases of one lane have in common. When all of them end at once, as when the lane is
 * unlinked, it leaves the lane with them and is taken apart later. Then its lane is NULL. */
struct leasing {
    struct lane *lane;
    struct lane_env *env;
    struct lane_lease *first;
    size_t memory;
    struct leasing *next; /* of those that are over */
};

struct lane_lease {
    uint64_t number;
    struct leasing *leasing;
    struct lane_holder *holder;
    struct lane_lease *prev, *next;           /* of the holder */
    struct lane_lease *lane_prev, *lane_next; /* of the lane */
    uint64_t *seq;                            /* what was taken, rising; some may have left since */
    uint32_t n, room, live;
    uint32_t gone; /* so many at the front have left */
    bool open;
};

void lease_leave(struct extra *); /* its lease has one entry less */

/* Its lease ended with all others of the lane, and it is looked at for the first time since. */
void lease_tell(struct lane *, struct slot *);

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
    struct arena arena;
    struct idindex ids;
    struct extras extras;
    struct heap back;    /* waiting below fresh, by sequence */
    struct heap delayed; /* by due time */
    struct heap leased;  /* by the lease's end */
    /* by the time when they expire; what is leased by then, by the lease's end */
    struct heap expiry;
    /* what is leased, but in another life of the leases, is not leased any more */
    uint32_t life;
    struct leasing *leasing; /* NULL: no leases */
};

void *lane_alloc(struct lane *, size_t);
void lane_release(struct lane *, void *, size_t); /* p may be NULL */

/* Room in the heaps for one entry more that is going to be delayed or leased, so that giving
 * back never needs memory. */
bool lane_reserve_one(struct lane *, bool leased);

#endif
