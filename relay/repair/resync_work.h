/* resync_work - what the files of the comparison share: sets of owners, lists, servers, and the
 * round. Belongs to resync*.c alone. */
#ifndef DOVELANE_RELAY_REPAIR_RESYNC_WORK_H
#define DOVELANE_RELAY_REPAIR_RESYNC_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/assert.h"
#include "relay/cluster/takeover_rules.h"
#include "lib/mail/entryid.h"
#include "lib/mail/lanename.h"
#include "lib/base/mem.h"
#include "relay/relay.h"
#include "relay/repair/resync.h"

#define OTHERS (LANENAME_OWNERS_MAX - 1)
#define TOKEN 33
#define BUCKETS 4096

enum phase {
    IDLE,
    DISCOVER,
    ASK,
    LIST_HERE,
    LIST_THERE,
    ASK_AGAIN,
    FETCH,
    ASK_LAST,
    REVISE,
    DROP,
    END
};
enum mode { RETURN, PERIODIC, JOIN };

struct set {
    struct set *next;
    char *name;
    size_t n;
    int other[OTHERS];
    enum reach reach[OTHERS];
    bool configured, seen, lanes_here;
    bool whole, checked;
    bool ever;  /* we have seen it whole here */
    bool stale; /* others hold entries of it that we cannot just take: a return does */
    /* this round */
    bool active, failed, young, unite;
    /* an admin calls it dead and it does not answer: a union is one of the others */
    bool without[OTHERS];
    int witness; /* node; -1: none */
    char token[TOKEN];
    size_t fetched, bytes, dropped, revised, held;
};

struct own_entry {
    unsigned char id[ENTRYID_LEN];
    uint32_t revision;
    bool old, matched;
};

/* A lane of the own server, as LIST_HERE saw it. */
struct own_lane {
    struct own_lane *next;
    char *name;
    size_t len;
    struct set *set;
    struct own_entry *entry;
    uint32_t *slot; /* open addressing over entries: index + 1 */
    size_t n, size, nslots;
};

/* A lane of another server. */
struct other_lane {
    struct other_lane *next;
    size_t site;
    char *name;
    size_t len;
    struct set *set;
    struct own_lane *here; /* NULL: we have no such lane */
    struct missing_entry *wanted;
    size_t n, size;
    uint32_t place;
    struct buf newer_there, newer_here; /* ids */
    /* an ordered lane, and we are not whole: what is here must come to stand in the other's
     * order */
    bool ordered;
    const struct own_entry *last; /* the latest one that stands so */
    struct buf behind;            /* ids of those that do not: they go to the end, in this order */
};

struct site {
    struct resync *w;
    size_t index;
    struct node *node;
    size_t nsaid;
    char **said; /* set, token, set, token ... */
    bool listed, failed;
};

struct resync {
    struct relay *relay;
    size_t nsites, self;
    /* per node of the config, room for CONFIG_NODES_MAX; [self] is the own server */
    struct site *site;
    struct set *sets;
    struct role_set *view;
    size_t nview;

    enum phase phase;
    enum mode mode;
    bool abandoned, closing;
    bool renamed;  /* nodes came: the sets of owners are not those of the config yet */
    bool compared; /* a round of this return came to its end */
    unsigned turn; /* role_turn() of the last look */
    size_t open;   /* what this phase waits for */
    char token[TOKEN];
    double began, not_before, again, periodic_at;
    int64_t min_age;
    struct own_lane *bucket[BUCKETS];
    struct other_lane *there, *fetching;
    struct backfill *backfill;
};

/* One of the answers that this phase waits for has come. */
static inline void resync_answered(struct resync *w)
{
    ASSERT(w->open && w->phase != IDLE);
    w->open--;
}

/* resync.c */
void resync_advance(struct resync *); /* after each answer */
void resync_fail_set(struct set *, const char *why);
void resync_site_failed(struct resync *, size_t site, const char *why);

/* resync_sets.c */
/* NULL when this node is not one of its owners */
struct set *resync_set_of_lane(struct resync *, const struct lanename *);
/* its list is compared with in this round */
bool resync_uses(const struct set *, size_t site);
void resync_configure_sets(struct resync *);
/* owners that were in nobody's table may be in the config now */
void resync_find_owners(struct resync *);
void resync_forget_sets(struct resync *);
void resync_free_set(struct set *);
void resync_update_sets(struct resync *); /* from what the servers said last */
/* the token under which it is whole, or NULL */
const char *resync_said(const struct site *, const char *set);
void resync_read_said(struct site *, const redisReply *);
void resync_forget_said(struct site *);
void resync_ask_since(struct resync *); /* of the own server (whole_sets.h) */

/* resync_lists.c */
void resync_list_here(struct resync *);
void resync_list_there(struct resync *);
void resync_free_lists(struct resync *);

/* resync_mend.c */
void resync_fetch_next(struct resync *); /* w->fetching, and those behind it */
void resync_revise(struct resync *);
void resync_reorder(struct resync *);
void resync_drop(struct resync *);

#endif
