/* reader - counts what an answer takes, and refuses what is beyond. */
#include "lib/redis/reader.h"

#include <stdlib.h>

#include "lib/base/mem.h"

#define ELEMENT 72                /* bytes that one takes: a redisReply and the pointer to it */
#define UNUSED_MOST (1024 * 1024) /* bytes that hiredis keeps for what comes next */

#if HIREDIS_MAJOR >= 1
typedef size_t list_size;
#else
typedef int list_size;
#endif

struct reader {
    redisReader *redis;
    redisReplyObjectFunctions fn;
    void *(*array)(const redisReadTask *, list_size);
    size_t most, used; /* used: since the last whole answer */
    bool beyond;
};

/* NULL: that many are not allocated, and hiredis gives up. */
static void *array(const redisReadTask *task, list_size n)
{
    struct reader *r = task->privdata;
    size_t left = r->used < r->most ? r->most - r->used : 0;
    r->beyond = r->beyond || (size_t)n > left / ELEMENT;
    if (r->beyond)
        return NULL;
    r->used += (size_t)n * ELEMENT;
    return r->array(task, n);
}

struct reader *reader_open(size_t most)
{
    struct reader *r = mem_zero(sizeof *r);
    r->redis = redisReaderCreate();
    if (!r->redis)
        abort();
    r->redis->maxbuf = UNUSED_MOST;
    r->most = most;
    r->fn = *r->redis->fn;
    r->array = r->fn.createArray;
    r->fn.createArray = array;
    r->redis->fn = &r->fn;
    r->redis->privdata = r;
    return r;
}

void reader_close(struct reader *r)
{
    if (!r)
        return;
    redisReaderFree(r->redis);
    free(r);
}

bool reader_feed(struct reader *r, const char *data, size_t n)
{
    r->used += n;
    r->beyond = r->beyond || r->used > r->most;
    return !r->beyond && redisReaderFeed(r->redis, data, n) == REDIS_OK;
}

bool reader_next(struct reader *r, redisReply **reply_r)
{
    void *reply = NULL;
    bool good = redisReaderGetReply(r->redis, &reply) == REDIS_OK;
    *reply_r = good ? reply : NULL;
    if (*reply_r)
        r->used = 0;
    return good;
}

const char *reader_error(const struct reader *r)
{
    if (r->beyond)
        return "an answer that is too large";
    return r->redis->err ? r->redis->errstr : "out of memory for an answer";
}
