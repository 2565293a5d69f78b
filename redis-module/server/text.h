/* text - bytes that somebody said, kept. */
#ifndef DOVELANE_REDIS_MODULE_SERVER_TEXT_H
#define DOVELANE_REDIS_MODULE_SERVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *p; /* NULL: nothing was said yet */
    size_t len;
};

/* A copy takes the place of what was there. */
void text_set(struct text *, const char *p, size_t len);
void text_free(struct text *);

bool text_is(const struct text *, const char *p, size_t len);

#endif
