#include "lib/base/logline.h"

#include <string.h>

#include "lib/base/number.h"

void logline_bytes(struct logline *l, const char *s, size_t n)
{
    size_t room = LOG_TEXT_MAX - l->len;
    if (n > room)
        n = room;
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

void logline_add(struct logline *l, const char *s, size_t most)
{
    if (s)
        logline_bytes(l, s, strnlen(s, most));
}

void logline_number(struct logline *l, uint64_t n)
{
    char text[NUMBER_TEXT];
    logline_bytes(l, text, number_text(text, n));
}

void logline_say(struct logline *l)
{
    l->text[l->len] = '\0';
    log_text(LOG_LEVEL_INFO, l->text);
}
