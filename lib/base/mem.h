/* mem - allocation that never returns NULL (a mail program that cannot allocate ends; its peers
 * still hold the mail), and a growing byte buffer. */
#ifndef DOVELANE_LIB_BASE_MEM_H
#define DOVELANE_LIB_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>

void *mem_alloc(size_t n);
void *mem_zero(size_t n);
void *mem_grow(void *p, size_t n);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void *mem_dup(const void *p, size_t n);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A byte buffer. data is NULL while empty; there is always a NUL behind the len bytes otherwise.
 * {0} is an empty one. */
struct buf {
    char *data;
    size_t len, size;
};

void buf_add(struct buf *, const void *p, size_t n);
void buf_adds(struct buf *, const char *s);
void buf_addc(struct buf *, char c);
void buf_printf(struct buf *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_reserve(struct buf *, size_t more);
void buf_consume(struct buf *, size_t n); /* drops n bytes at the front */
void buf_free(struct buf *);              /* and is empty again */

#endif
