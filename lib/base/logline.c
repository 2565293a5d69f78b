#include "lib/base/logline.h"

#include <string.h>

#include "lib/base/assert.h"
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

void logline_mark(struct logline *l, enum log_field field, size_t from)
{
    ASSERT(l->marks.n < LOG_MARKS_MAX);
    l->marks.mark[l->marks.n++] =
        (struct log_mark){(uint16_t)from, (uint16_t)(l->len - from), (uint8_t)field};
}

void logline_field(struct logline *l, enum log_field field, const char *s, size_t most)
{
    size_t from = l->len;
    logline_add(l, s, most);
    logline_mark(l, field, from);
}

void logline_field_number(struct logline *l, enum log_field field, uint64_t n)
{
    size_t from = l->len;
    logline_number(l, n);
    logline_mark(l, field, from);
}

#define ID_MOST 256

void logline_begin(struct logline *l, enum log_event event, const char *queue_id)
{
    l->len = 0;
    l->marks.n = 0;
    l->marks.event = event;
    logline_field(l, LOG_FIELD_queue_id, queue_id, ID_MOST);
}

static void say(struct logline *l, enum log_level level)
{
    l->text[l->len] = '\0';
    log_marked(level, l->text, &l->marks);
}

void logline_say(struct logline *l)
{
    say(l, LOG_LEVEL_INFO);
}

void logline_warn(struct logline *l)
{
    say(l, LOG_LEVEL_WARNING);
}
