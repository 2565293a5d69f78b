/* packed - reads one entry after the other, and checks the lengths. */
#include "redis-module/propagate/packed.h"

#include "redis-module/propagate/chunk.h"

#define HEAD 12
#define HAS_ID 0x80000000u

struct packed packed_next(const char **at)
{
    const char *p = *at;
    uint32_t key = get32(p);
    struct packed e = {.key = key & ~HAS_ID, .meta_len = get32(p + 4), .body_len = get32(p + 8)};
    p += HEAD;
    if (key & HAS_ID) {
        e.id = (const uint8_t *)p;
        p += ID_LEN;
    }
    e.meta = p;
    e.body = p + e.meta_len;
    *at = e.body + e.body_len;
    return e;
}

const char *packed_check(const char *data, size_t len, uint64_t nkeys, uint64_t *n_r)
{
    uint64_t n = 0;
    const char *wrong = NULL;
    for (size_t left = len; left && !wrong; n++) {
        const char *p = data + (len - left);
        if (left < HEAD) {
            wrong = "its head is cut off";
            break;
        }
        uint32_t key = get32(p), meta_len = get32(p + 4), body_len = get32(p + 8);
        uint64_t size = HEAD + (key & HAS_ID ? ID_LEN : 0) + (uint64_t)meta_len + body_len;
        key &= ~HAS_ID;
        if (nkeys && (key < 1 || key > nkeys))
            wrong = "it names a key that the command does not have";
        else if (meta_len > LANE_META_MAX)
            wrong = "its meta is above 1 MiB";
        else if (body_len > LANE_BODY_MAX)
            wrong = "its body is above 512 MiB";
        else if (size > left)
            wrong = "it is longer than what is left of the string";
        if (wrong)
            break;
        left -= (size_t)size;
    }
    *n_r = n;
    return wrong;
}
