/* lane - the queue core: one ordered physical queue that holds whole messages. It knows no Redis,
 * does no I/O and has no clock.
 *
 *      directory         blocks (up to 128 slots)         arena: segments of 4 KB to 1 MB
 *     +--------+        +----+----+----+----+----+       +------------+------------+-------------
 *     | number |------->|slot|slot|dead|slot|  ..|------>| body meta  | body meta  | ..
 *     +--------+        +----+----+----+----+----+       +------------+------------+-------------
 *     | dead   | skip     ^    |             ^
 *     +--------+          |    |             '--- fresh: nothing from here on was ever taken
 *     | number |-----> .. |    '--> extra: what was leased, delayed, tried or changed has more
 *     +--------+          |           |
 *           id index: id -> slot      '--> heaps: given back (by sequence), delayed (by due time),
 *           (extendible hashing, keyed)           leased (by the lease's end), expiring (by its time)
 *
 * No step costs more than a block, a table or a page of these, however long the lane is. Of what
 * grows only directories (8 to 24 bytes per 128 entries) are ever copied as a whole.
 *
 * Sequence = position. A sequence is block number * 128 + index, so a lookup is arithmetic once the
 * block is found. The block is at the guess "number - first number" if no stretch border or removed
 * block is in between. Else it is found by binary search.
 *
 * Sequences never repeat in one server's life, in no lane: the environment hands out *stretches* of
 * 2^16 sequences. A new lane (also one that vanished and came back, a copied or a loaded one) opens
 * a stretch nobody had with its first push. So a late acknowledgement by sequence can never meet
 * another entry. 2^47 stretches last for 4 years at a million births per second.
 *
 * Times are milliseconds of one monotonic clock of the caller's choice, passed in. Nothing here
 * fails but for want of memory, and then nothing has changed. Not thread safe; lane_free may run
 * on any thread once lane_end_leases was called on the lane. */
#ifndef DOVELANE_REDIS_MODULE_CORE_LANE_H
#define DOVELANE_REDIS_MODULE_CORE_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_ID_LEN 16
#define LANE_META_MAX (1u << 20)
#define LANE_BODY_MAX (512u << 20)
#define LANE_SEQ_MAX INT64_MAX
#define LANE_NEVER INT64_MAX
#define LANE_AHEAD 64 /* ids whose hashes are kept */

/* What the core gets from outside. Must outlive its lanes. */
struct lane_env {
    void *(*alloc)(size_t); /* NULL when there is none left */
    void (*free)(void *);   /* never called with NULL; from any thread that calls lane_free */
    uint8_t key[16];        /* of the id hash: random, because ids come from the wire */
    uint64_t stretches;     /* the next stretch of sequences to hand out, 0 at first */
    struct leasing *over;   /* leases that lost their lane, for lane_sweep(); NULL at first */

    /* of the last ids, for lane_id_hash(); zeros at first */
    struct {
        uint8_t id[LANE_ID_LEN];
        uint64_t hash;
    } hashed[LANE_AHEAD];
};

enum lane_state { LANE_WAITING = 1, LANE_DELAYED, LANE_LEASED };

struct lane;
struct lane_lease;

/* Who holds leases: a connection. All its leases are on one list, so that its end costs no more
 * than them. */
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
    uint64_t length, bytes, leased, delayed, waiting, expiring;
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
    int64_t until;   /* delayed: due time; leased: end of the lease */
    int64_t expires; /* 0: never */
    uint64_t lease;  /* number of the lease, 0 when not leased */
    enum lane_state state;
    bool revoked; /* leased, and to be removed when the lease ends */
};

/* What is to be stored. The strings are copied. */
struct lane_new {
    uint64_t seq; /* 0: the next one; else it must be above all the lane had */
    const uint8_t *id;
    const char *meta, *body;
    size_t meta_len, body_len;
    uint32_t revision, attempts;
    int64_t born;
    int64_t due;     /* 0: waiting at once */
    int64_t expires; /* 0: never; the caller acts on it, see lane_expired() */
    bool unbounded;  /* the lane's bounds are not asked (dead letters, replicas) */
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

/* Life. lane_create and lane_copy return NULL for want of memory. A copy holds the same entries
 * with the same sequences; what is leased here waits there. lane_free needs all leases ended. */
struct lane *lane_create(struct lane_env *);
struct lane *lane_copy(const struct lane *);
void lane_free(struct lane *);

/* Takes all entries out at once, leases ended silently: a lane of its own to be freed, on any
 * thread. What is left is empty and keeps its settings and numbers. NULL for want of memory:
 * nothing was done. */
struct lane *lane_empty(struct lane *);

/* About how many allocations a lane is, for a caller that chooses where to free it. */
uint64_t lane_pieces(const struct lane *);

struct lane_settings *lane_settings(struct lane *);
void **lane_owner(struct lane *); /* a pointer of the caller's, NULL at first */
struct lane_counts lane_counts(const struct lane *);

/* Storing. *seq_r gets the sequence of the stored entry (LANE_OK) or of the one held
 * (LANE_HELD). */
enum lane_result lane_push(struct lane *, const struct lane_new *, uint64_t *seq_r);

/* What an entry has that has no id, no delay and nothing else. */
struct lane_data {
    const char *body, *meta;
    uint32_t body_len, meta_len; /* at most LANE_BODY_MAX and LANE_META_MAX */
};

/* Stores such entries, with sequences one after the other from *seq_r on, as far as that takes
 * no memory and asks no bound. Returns how many, often none: the next one is for lane_push. */
size_t lane_push_plain(struct lane *, int64_t born, const struct lane_data *, size_t n,
                       uint64_t *seq_r);

enum lane_result lane_set_meta(struct lane *, uint64_t seq, uint32_t revision, const char *meta,
                               size_t len);

/* Hands an entry that is not leased to another lane of the same environment. Its id, meta,
 * revision, attempts, age, delay and expiry stay, and bounds are not asked. Large data is not
 * copied. LANE_HELD: the other lane holds the id; nothing was done. */
enum lane_result lane_hand_over(struct lane *from, uint64_t seq, struct lane *to, uint64_t *seq_r);

/* Removing, in any state. False when there is none. */
bool lane_remove(struct lane *, uint64_t seq);

/* What lane_remove_range tells before it removes: sequences one after the other that are all
 * there, then the ids of those that have one, in order. */
struct lane_going {
    void (*run)(void *arg, uint64_t from, uint64_t to);
    void (*id)(void *arg, const uint8_t *id);
    void *arg;
};

/* All from one sequence to another; how many. */
uint64_t lane_remove_range(struct lane *, uint64_t from, uint64_t to, const struct lane_going *);

/* Looking. lane_next: the first entry at or after a sequence. */
bool lane_get(const struct lane *, uint64_t seq, struct lane_entry *);
bool lane_find(const struct lane *, const uint8_t id[LANE_ID_LEN], struct lane_entry *);
bool lane_next(const struct lane *, uint64_t from, struct lane_entry *);
uint64_t lane_first_seq(const struct lane *); /* 0 when empty */
uint64_t lane_last_seq(const struct lane *);  /* the last one ever stored here, 0 at first */
uint64_t lane_next_seq(const struct lane *);  /* what a push would get */

/* Nothing up to that sequence will be stored from now on. False, and nothing changes, when
 * something above was. */
bool lane_raise_last(struct lane *, uint64_t seq);

/* Taking. Taking. A lease is opened on one lane for one holder, filled, and closed; an empty one is
 * gone then. lane_candidate is what would be given next into that lease (NULL: to anybody). In
 * STRICT order a lease may hold a run of entries, but nothing is given behind another's lease. */
struct lane_lease *lane_lease_open(struct lane *, struct lane_holder *, uint64_t number);
bool lane_candidate(struct lane *, const struct lane_lease *, struct lane_entry *);
/* the candidate; false: no memory */
bool lane_lease_add(struct lane_lease *, uint64_t seq, int64_t until);
void lane_lease_close(struct lane_lease *);
bool lane_takeable(struct lane *);

/* Leases. lane_put_back works on an entry in any state: it waits from then on, or is delayed
 * until due (0: not). An entry that was leased keeps its place, its revoked mark is the caller's
 * to look at before. False for want of memory, never for a leased entry. */
bool lane_put_back(struct lane *, uint64_t seq, bool attempt, int64_t due);
void lane_extend(struct lane *, uint64_t seq, int64_t until); /* a leased one */
void lane_mark_revoked(struct lane *, uint64_t seq);          /* a leased one */
struct lane_lease *lane_lease_find(struct lane *, uint64_t number);
/* its first entry with a sequence above; 0: none */
uint64_t lane_lease_next(struct lane_lease *, uint64_t after);
/* NULL: it lost its lane, and is to be forgotten */
struct lane *lane_lease_lane(const struct lane_lease *);
void lane_lease_forget(struct lane_lease *);

/* All leases end, silently: entries wait, no attempt is counted, however many they are at once. The
 * leases lose their lane, but stay on their holders' lists until they are forgotten or swept.
 * lane_sweep sweeps up to so many; true when there are more. */
void lane_end_leases(struct lane *);
bool lane_sweep(struct lane_env *, uint64_t leases);

/* Time. */
/* what is due waits; true: some of very many are left */
bool lane_due(struct lane *, int64_t now);
/* an entry whose lease is over by then; 0: none */
uint64_t lane_overdue(const struct lane *, int64_t now);
int64_t lane_wake(const struct lane *); /* when the next of these happens by itself; LANE_NEVER */

/* Expiry: an entry whose time has come and that is not leased, 0: none. What is leased is looked
 * at when it is given back. lane_expiry: when to ask next. */
uint64_t lane_expired(struct lane *, int64_t now);
int64_t lane_expiry(const struct lane *);

/* Keyed 64-bit hash (SipHash-1-3) of the environment, for other tables over data from the wire. */
uint64_t lane_hash(const uint8_t key[16], const void *p, size_t n);

/* The same of an id. The last ones are kept: several tables are asked for one id in a row. */
uint64_t lane_id_hash(struct lane_env *, const uint8_t id[LANE_ID_LEN]);

/* Ids of these hashes are about to be asked for, stored or removed: what that needs is fetched
 * side by side. Of a long lane each is several waits for memory otherwise, one after the other. */
void lane_ahead(const struct lane *, const uint64_t *hash, size_t n);

/* Moves its pieces: `move` gives a new address and has freed the old one, or NULL when the piece
 * shall stay. Goes on from *cursor (0 at first) until `stop` says so; false: all are done. */
struct lane_defrag {
    void *(*move)(void *arg, void *piece);
    bool (*stop)(void *arg);
    void *arg;
};

bool lane_defrag(struct lane *, const struct lane_defrag *, uint64_t *cursor);

/* An entry does not expire any more. */
void lane_keep(struct lane *, uint64_t seq);

/* NULL, or which invariant is broken. O(length); for tests. */
const char *lane_check(const struct lane *);

#endif
