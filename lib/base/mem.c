#include "lib/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *p, size_t n)
{
    if (!p && n) {
        fprintf(stderr, "out of memory: %zu bytes\n", n);
        abort();
    }
    return p;
}

void *mem_alloc(size_t n)
{
    return or_die(malloc(n ? n : 1), n);
}

void *mem_zero(size_t n)
{
    return or_die(calloc(1, n ? n : 1), n);
}

void *mem_grow(void *p, size_t n)
{
    return or_die(realloc(p, n ? n : 1), n);
}

void *mem_dup(const void *p, size_t n)
{
    void *q = mem_alloc(n);
    if (n)
        memcpy(q, p, n);
    return q;
}

char *mem_strndup(const char *s, size_t n)
{
    char *t = mem_alloc(n + 1);
    if (n)
        memcpy(t, s, n);
    t[n] = '\0';
    return t;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_printf(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char *text = NULL;
    int n = vasprintf(&text, format, ap);
    va_end(ap);
    return n < 0 ? or_die(NULL, 1) : text;
}

void buf_reserve(struct buf *b, size_t more)
{
    if (b->len + more + 1 <= b->size)
        return;
    size_t size = b->size ? b->size : 128;
    while (size < b->len + more + 1)
        size *= 2;
    b->data = mem_grow(b->data, size);
    b->data[b->len] = '\0';
    b->size = size;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    buf_reserve(b, n);
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (n > 0) {
        buf_reserve(b, (size_t)n);
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
        if (b->data)
            b->data[0] = '\0';
        return;
    }
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
