/* reader - hiredis' reader of answers, with a bound on what one of them takes in memory.
 *
 * hiredis allocates a list when it has read its head, and frees it by looking at each element. A
 * head of 12 bytes may name 2^31 of them. And an element of four bytes takes 64 and more. So
 * elements count, too, and when they are announced. */
#ifndef DOVELANE_LIB_REDIS_READER_H
#define DOVELANE_LIB_REDIS_READER_H

#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

struct reader;

/* most: bytes of one answer, and of what came with it. */
struct reader *reader_open(size_t most);
void reader_close(struct reader *); /* NULL is allowed */

/* What came. false: see reader_error(). */
bool reader_feed(struct reader *, const char *data, size_t n);
/* The next whole answer, which is the caller's; NULL: none is whole yet. false: as above. */
bool reader_next(struct reader *, redisReply **reply_r);
const char *reader_error(const struct reader *);

#endif
