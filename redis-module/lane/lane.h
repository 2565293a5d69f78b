/* lane - the queue core: one ordered physical queue that holds whole messages. It knows no Redis, does no I/O
 * and has no clock.
 *
 *      directory         blocks (up to 128 slots)         data
 *     +--------+        +----+----+----+----+----+       +----------+------+
 *     | number |------->|slot|slot|dead|slot|  ..|------>| body     | meta |   one allocation per entry;
 *     +--------+        +----+----+----+----+----+       +----------+------+   a replaced meta has its own
 *     | dead   | skip     ^          ^        ^
 *     +--------+          |          |        '--- fresh: nothing from here on was ever taken
 *     | number |-----> .. |          |
 *     +--------+          |          |
 *           id index: id -> sequence            heaps: given back (by sequence), delayed (by due time),
 *           (open addressing, keyed hash)              leased (by the lease's end); slots know their place
 *
 * Sequence = position. A sequence is block number * 128 + index, so a lookup is arithmetic once the block is
 * found, and the block is found at the guess "number - first number" as long as no stretch border or removed
 * block is in between, else by binary search.
 *
 * Sequences never repeat in one server's life, in no lane: the environment hands out *stretches* of 2^16
 * sequences. A new lane (also one that vanished and came back, a copied or a loaded one) opens a stretch
 * nobody had with its first push. So a late acknowledgement by sequence can never meet another entry. 2^47
 * stretches last for 4 years at a million births per second.
 *
 * Times are milliseconds of one monotonic clock of the caller's choice, passed in. Nothing here fails but for
 * want of memory, and then nothing has changed. Not thread safe; lane_free may run on any thread once
 * lane_end_leases was called on the lane. */
#ifndef DOVELANE_LANE_H
#define DOVELANE_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_ID_LEN 16
#define LANE_META_MAX (1u << 20)
#define LANE_BODY_MAX (512u << 20)
#define LANE_SEQ_MAX INT64_MAX
#define LANE_NEVER INT64_MAX

/* What the core gets from outside. Must outlive its lanes. */
struct lane_env {
    void *(*alloc)(size_t); /* NULL when there is none left */
    void (*free)(void *);   /* never called with NULL; from any thread that calls lane_free */
    uint8_t key[16];        /* of the id hash: random, because ids come from the wire */
    uint64_t stretches;     /* the next stretch of sequences to hand out, 0 at first */
};

enum lane_state { LANE_WAITING = 1, LANE_DELAYED, LANE_LEASED };

struct lane;
struct lane_lease;

/* Who holds leases: a connection. All its leases are on one list, so that its end costs no more than them. */
struct lane_holder {
    struct lane_lease *first;
    uint64_t number; /* the caller's */
};

/* Settings and counters; the caller may read all and write the settings. */
struct lane_settings {
    uint64_t maxlen, maxbytes; /* 0: no bound; what is leased or delayed counts */
    uint32_t maxattempts;      /* 0: no bound; the caller acts on it */
    bool strict;               /* nothing is given behind an entry that is leased or delayed */
    bool created;              /* stays when it is empty; the caller acts on it */
};

struct lane_counts {
    uint64_t length, bytes, leased, delayed, waiting;
    uint64_t memory; /* bytes allocated, of the lane and all in it */
};

/* A view of an entry: valid until the lane changes. */
struct lane_entry {
    uint64_t seq;
    const uint8_t *id; /* NULL: it has none */
    const char *meta, *body;
    uint32_t meta_len, body_len;
    uint32_t revision, attempts;
    int64_t born;
    int64_t until;  /* delayed: due time; leased: end of the lease */
    uint64_t lease; /* number of the lease, 0 when not leased */
    enum lane_state state;
    bool revoked; /* leased, and to be let go when the lease ends */
};

/* What is to be stored. The strings are copied. */
struct lane_new {
    uint64_t seq; /* 0: the next one; else it must be above all the lane had */
    const uint8_t *id;
    const char *meta, *body;
    size_t meta_len, body_len;
    uint32_t revision, attempts;
    int64_t born;
    int64_t due;    /* 0: waiting at once */
    bool unbounded; /* the lane's bounds are not asked (dead letters, replicas) */
};

enum lane_result {
    LANE_OK,
    LANE_HELD,   /* the lane holds that id */
    LANE_FULL,   /* a bound would be exceeded */
    LANE_NOMEM,  /* the allocator gave none */
    LANE_STALE,  /* has that revision or a higher one */
    LANE_ABSENT, /* no such entry */
    LANE_ORDER   /* that sequence is not above all the lane had, or is beyond LANE_SEQ_MAX */
};

/* Life. lane_create and lane_copy return NULL for want of memory. A copy holds the same entries with the same
 * sequences; what is leased here waits there. lane_free needs all leases ended. */
struct lane *lane_create(struct lane_env *);
struct lane *lane_copy(const struct lane *);
void lane_free(struct lane *);

struct lane_settings *lane_settings(struct lane *);
void **lane_owner(struct lane *); /* a pointer of the caller's, NULL at first */
struct lane_counts lane_counts(const struct lane *);

/* Storing. *seq_r gets the sequence of the stored entry (LANE_OK) or of the one held (LANE_HELD). */
enum lane_result lane_push(struct lane *, const struct lane_new *, uint64_t *seq_r);
enum lane_result lane_set_meta(struct lane *, uint64_t seq, uint32_t revision, const char *meta, size_t len);

/* Hands an entry that is not leased to another lane of the same environment without copying its data: its id,
 * meta, revision, attempts, age and delay stay, bounds are not asked. LANE_HELD: the other lane holds the id;
 * nothing was done. */
enum lane_result lane_hand_over(struct lane *from, uint64_t seq, struct lane *to, uint64_t *seq_r);

/* Removing, in any state. False when there is none. */
bool lane_remove(struct lane *, uint64_t seq);

/* Looking. lane_next: the first entry at or after a sequence. */
bool lane_get(const struct lane *, uint64_t seq, struct lane_entry *);
bool lane_find(const struct lane *, const uint8_t id[LANE_ID_LEN], struct lane_entry *);
bool lane_next(const struct lane *, uint64_t from, struct lane_entry *);
uint64_t lane_first_seq(const struct lane *); /* 0 when empty */
uint64_t lane_last_seq(const struct lane *);  /* the last one ever stored here, 0 at first */
uint64_t lane_next_seq(const struct lane *);  /* what a push would get */

/* Nothing up to that sequence will be stored from now on. False, and nothing changes, when something above
 * was. */
bool lane_raise_last(struct lane *, uint64_t seq);

/* Taking. A lease is opened on one lane for one holder, filled, and closed; an empty one is gone then.
 * lane_candidate is what would be given next into that lease (NULL: to anybody); in STRICT order a lease may
 * hold a run of entries, but nothing is given behind another's lease. */
struct lane_lease *lane_lease_open(struct lane *, struct lane_holder *, uint64_t number);
bool lane_candidate(struct lane *, const struct lane_lease *, struct lane_entry *);
bool lane_lease_add(struct lane_lease *, uint64_t seq, int64_t until); /* the candidate; false: no memory */
void lane_lease_close(struct lane_lease *);
bool lane_takeable(struct lane *);

/* Leases. lane_put_back works on an entry in any state: it waits from then on, or is delayed until due (0:
 * not). An entry that was leased keeps its place, its revoked mark is the caller's to look at before. False
 * for want of memory, never for a leased entry. */
bool lane_put_back(struct lane *, uint64_t seq, bool attempt, int64_t due);
void lane_extend(struct lane *, uint64_t seq, int64_t until); /* a leased one */
void lane_mark_revoked(struct lane *, uint64_t seq);          /* a leased one */
struct lane_lease *lane_lease_find(struct lane *, uint64_t number);
uint64_t lane_lease_next(const struct lane_lease *,
                         uint64_t after); /* its first entry with a sequence above; 0: none */
struct lane *lane_lease_lane(const struct lane_lease *);
void lane_end_leases(struct lane *); /* all, silently: entries wait, no attempt is counted */

/* Time. */
void lane_due(struct lane *, int64_t now);               /* what is due waits */
uint64_t lane_overdue(const struct lane *, int64_t now); /* an entry whose lease is over by then; 0: none */
int64_t lane_wake(const struct lane *); /* when the next of these happens by itself; LANE_NEVER */

/* Keyed 64-bit hash (SipHash-2-4) of the environment, for other tables over data from the wire. */
uint64_t lane_hash(const uint8_t key[16], const void *p, size_t n);

/* NULL, or which invariant is broken. O(length); for tests. */
const char *lane_check(const struct lane *);

#endif
