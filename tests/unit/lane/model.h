/* model - a lane as anybody would write it first: an array in order, searched from its
 * beginning. The core must say the same. */
#ifndef DOVELANE_TESTS_UNIT_LANE_MODEL_H
#define DOVELANE_TESTS_UNIT_LANE_MODEL_H

#include "redis-module/core/lane.h"

#define MODEL_DATA 24

struct model_entry {
    uint64_t seq, lease;
    uint8_t id[LANE_ID_LEN];
    bool has_id, revoked;
    char meta[MODEL_DATA], body[MODEL_DATA];
    uint32_t meta_len, body_len, revision, attempts;
    int64_t born, until, expires;
    enum lane_state state;
};

struct model {
    struct model_entry *entry;
    size_t n, room;
    struct lane_settings settings;
};

void model_add(struct model *, const struct model_entry *);
void model_remove(struct model *, size_t i);
size_t model_find(const struct model *, uint64_t seq); /* n: not there */
size_t model_find_id(const struct model *, const uint8_t *id);
bool model_fits(const struct model *, uint64_t entries, uint64_t bytes);

/* What TAKE would give next into that lease (0: to anybody); n: nothing. */
size_t model_candidate(const struct model *, uint64_t lease);

/* NULL, or how they differ. */
const char *model_differs(const struct model *, struct lane *);

#endif
