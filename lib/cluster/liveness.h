/* liveness - who is alive, as one listener hears it (docs/takeover/beats.md, "BEAT" and "Who is
 * dead"). Pure: it reads no clock and sends nothing.
 *
 * A listener looks at the beats that lie in each server. One that changed since the last look is
 * news; how old the server says that it is does not matter. Silence is timed by the listener's
 * own clock: seconds that never jump, given as `now` with each call. A clock that stands still in
 * a suspended host will do for one that calls liveness_begin() when it goes on. */
#ifndef DOVELANE_LIB_CLUSTER_LIVENESS_H
#define DOVELANE_LIB_CLUSTER_LIVENESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

/* What is known of a node: what it says of itself, or that nothing was heard since we forgot
 * (UNKNOWN), or that it is silent. */
enum node_state {
    STATE_UNKNOWN,
    STATE_SILENT,
    STATE_ALIVE,
    STATE_RETURNING,
    STATE_READY,
    STATE_LEAVING
};

/* "unknown", "silent", "alive", "returning", "ready", "leaving" */
const char *node_state_word(enum node_state);

#define BEAT_INCARNATION 33 /* with its NUL */
#define BEAT_RUN_ID 64
#define BEAT_CONFIG 20

/* Whether the text of a beat names that node, as heard or not: its sender has it among its
 * nodes. */
bool beat_names(const char *text, const char *node);

/* What a node says in a beat, beside its name, incarnation and counter. */
struct beat {
    enum node_state state;
    double leaving;           /* seconds that it will be away, with STATE_LEAVING */
    double since;             /* seconds that it has been in this state */
    char run_id[BEAT_RUN_ID]; /* of its Redis */
    char config[BEAT_CONFIG]; /* config_digest */
    /* mails that it is done with since its start, and that it has in flight */
    uint64_t done, in_flight;
    int memory; /* percent of its Redis's maxmemory that is used; 0: there is none, or unknown */
    /* it retains as much as replicated_memory allows, and lets go of nothing (docs/two-disks.md) */
    bool retains_most;
};

struct liveness;

struct liveness_times {
    double suspect_after, dead_after; /* seconds; liveness_suspect sets another one for a node */
    /* an absence that is announced for longer counts as this; 0: as nothing */
    double return_max;
};

/* One node in a server's answer. text need not end with a NUL. */
struct liveness_news {
    const char *name, *incarnation, *text;
    size_t name_len, incarnation_len, text_len;
    uint64_t counter;
    double age; /* seconds that it has lain there */
};

/* The names are copied. self: which of them the listener is, -1: none (a milter). */
struct liveness *liveness_open(const char *const *name, size_t n, int self, struct liveness_times,
                               double now);
void liveness_free(struct liveness *);

/* One more, behind the others. It is unknown first, like all in the beginning. */
void liveness_add(struct liveness *, const char *name, double now);

/* That node is suspected after so many seconds: it is far away. */
void liveness_suspect(struct liveness *, size_t node, double after);
double liveness_suspect_after(const struct liveness *, size_t node);
/* The longest of all nodes'. */
double liveness_suspect_most(const struct liveness *);

/* From now on nothing is known of anybody. */
void liveness_forget(struct liveness *, double now);

/* The listener stood still: as if it had begun to listen just now. */
void liveness_begin(struct liveness *, double now);

/* What a server (which is the node `server`) answered to a BEAT that was sent while
 * liveness_generation() was this. The first answer after forgetting only tells what is old. But an
 * announced absence counts from there, too; and so does, for a milter, which takes nothing over, a
 * beat that is younger than suspect_after. */
unsigned liveness_generation(const struct liveness *);
void liveness_update(struct liveness *, size_t server, unsigned generation,
                     const struct liveness_news *, size_t n, double now);

/* What the node said last, until it is silent for dead_after. By this it is decided who serves a
 * lane. */
enum node_state liveness_state(const struct liveness *, size_t node, double now);

/* The same until it is silent for suspect_after: by this mail is placed, and others are told
 * whom we hear. */
enum node_state liveness_state_for_placement(const struct liveness *, size_t node, double now);

/* Seconds since its last beat; negative: never heard. */
double liveness_silence(const struct liveness *, size_t node, double now);

/* What it said last of itself; NULL before its first beat. It says that it took us over; that it
 * hears us so. */
const struct beat *liveness_beat(const struct liveness *, size_t node);
bool liveness_has_taken_over(const struct liveness *, size_t node, size_t of);
enum node_state liveness_reported_state(const struct liveness *, size_t node, size_t of);

/* True if node's last beat mentions the other one in any state, also as silent: its relay knows
 * that there is such a node. */
bool liveness_knows(const struct liveness *, size_t node, size_t other);

/* A node that we hear alive hears this one alive. */
bool liveness_others_hear(const struct liveness *, size_t node, double now);

/* Seconds for which nobody at all was heard. */
double liveness_silence_of_all(const struct liveness *, double now);

/* docs/takeover/beats.md, "Who is dead", 2, 3 and 5. */
bool liveness_dead(const struct liveness *, size_t node, double now);

/* Another relay beats in our name. */
bool liveness_duplicate_name(const struct liveness *);
void liveness_own(struct liveness *, const char *incarnation);

/* The text of a beat. lists: whom we took over. */
void beat_encode(const struct beat *, const struct liveness *, const bool *lists, double now,
                 struct buf *out);

#endif
