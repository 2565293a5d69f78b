/* namehash - FNV-1a, for the tables of lanes and destinations. Their names come from nodes that
 * we trust; a chain that gets long costs time, nothing else. */
#ifndef DOVELANE_RELAY_TABLES_NAMEHASH_H
#define DOVELANE_RELAY_TABLES_NAMEHASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t namehash(const char *name, size_t len)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h ^ h >> 15;
}

#endif
