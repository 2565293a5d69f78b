/* selector - which entries a command names: UPTO, RANGES, SEQS, IDS, or PACKED: ids in one
 * string. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_SELECTOR_H
#define DOVELANE_REDIS_MODULE_COMMANDS_SELECTOR_H

#include "redis-module/server/args.h"

struct selector {
    enum { BY_RANGES, BY_SEQS, BY_IDS } by;
    RedisModuleString **arg;
    const char *packed; /* BY_IDS: all of them, 16 bytes each; then arg is NULL */
    uint64_t n;         /* of ranges, sequences or ids */
    uint64_t upto;      /* BY_RANGES without arg: everything up to it */
};

bool args_selector(struct args *, struct selector *);
bool args_ids(struct args *, struct selector *); /* what follows IDS: <n> <id> ... */

/* Called for each entry named. Called for each entry named. The entry may be removed or changed by
 * it, others not. absent: id is what was named by id but does not exist (NULL for a sequence).
 * Either may be NULL. */
struct selector_calls {
    void (*entry)(void *arg, const struct lane_entry *);
    void (*absent)(void *arg, const uint8_t *id);
    void *arg;
    /* not NULL: instead of entry, for ranges of a lane */
    void (*range)(void *arg, uint64_t from, uint64_t to);
    /* the next ids, then NULL, before they are called for */
    void (*ahead)(void *arg, const uint8_t *id);
};

/* Over the entries of a lane (NULL: all are absent). */
void selector_each(const struct selector *, struct lane *, const struct selector_calls *);

/* Over those under one lease only; what is not is absent. */
void selector_each_leased(const struct selector *, struct lane *, uint64_t lease,
                          const struct selector_calls *);

#endif
