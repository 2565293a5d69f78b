#include "relay/cluster/config_ownership.h"

#include <string.h>

bool ownership_dead(const struct config *config, const char *node)
{
    return config_list_has(&config->dead, node) || config_node_index(config, node) < 0;
}

enum ownership ownership_judge(const struct config *config, const char *self,
                               const struct lanename *name, size_t *place_r)
{
    *place_r = 0;
    bool alive_before = false;
    for (size_t i = 0; i < name->nowners; i++) {
        if (!strcmp(name->owner[i], self)) {
            *place_r = i;
            return alive_before || ownership_dead(config, self) ? OWNERSHIP_LATER : OWNERSHIP_OURS;
        }
        if (!ownership_dead(config, name->owner[i]))
            alive_before = true;
    }
    return OWNERSHIP_NONE;
}
