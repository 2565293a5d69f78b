/* text - sets, compares and frees them. */
#include "redis-module/server/text.h"

#include <string.h>

#include "redis-module/server/server.h"

void text_set(struct text *t, const char *p, size_t len)
{
    char *copy = must_alloc(len + 1);
    memcpy(copy, p, len);
    RedisModule_Free(t->p);
    *t = (struct text){copy, len};
}

void text_free(struct text *t)
{
    RedisModule_Free(t->p);
    *t = (struct text){0};
}

bool text_is(const struct text *t, const char *p, size_t len)
{
    return t->len == len && memcmp(t->p, p, len) == 0;
}
