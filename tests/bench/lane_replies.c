/* lane_replies - what comes back to lane_load: replies of Redis, of a lane in it, and of memcached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lane_link.h"
#include "tests/bench/lane_load.h"

static const char *line_end(const char *at, const char *end)
{
    const char *nl = memchr(at, '\n', (size_t)(end - at));
    return nl ? nl + 1 : NULL;
}

/* What is wanted of a reply, found while it is walked over. */
static struct {
    int64_t integers[3];
    unsigned nintegers;
    const char *first_bulk;
    size_t first_bulk_len;
    const char *last_id; /* of XRANGE: the last bulk at depth 3 */
    size_t last_id_len;
    uint64_t entries; /* arrays at depth 2 */
    uint64_t bulk_bytes;
} seen;

/* The end of the reply at `at`, NULL when it is not all there. Depth 1 is the reply itself. */
static const char *walk(const char *at, const char *end, unsigned depth)
{
    const char *next = line_end(at, end);
    if (!next)
        return NULL;
    switch (*at) {
    case '-': link_fail("error reply: %.*s", (int)(next - at - 2), at);
    /* fall through */
    case '+': return next;
    case ':':
        if (o.doing <= LANE_TAKE || o.doing == FILL_LANE) {
            if (depth == 1 && !seen.entries) { /* LANE.PUT: the sequence */
                sequence[stored % SPAN] = strtoull(at + 1, NULL, 10);
                seen.entries = 1;
            }
            if (depth == 2 && seen.nintegers < 3)
                seen.integers[seen.nintegers++] = strtoll(at + 1, NULL, 10);
            if (depth == 3) { /* LANE.PUSH: the sequences */
                sequence[(stored + seen.entries) % SPAN] = strtoull(at + 1, NULL, 10);
                seen.entries++;
            }
        } else if (depth == 2 && seen.nintegers < 3)
            seen.integers[seen.nintegers++] = strtoll(at + 1, NULL, 10);
        return next;
    case '$': {
        long len = strtol(at + 1, NULL, 10);
        if (len < 0)
            return next;
        if (end - next < len + 2)
            return NULL;
        if (!seen.first_bulk) {
            seen.first_bulk = next;
            seen.first_bulk_len = (size_t)len;
        }
        if (depth == 3 && o.doing == READ_STREAM) {
            seen.last_id = next;
            seen.last_id_len = (size_t)len;
        }
        if (depth <= 2 && (o.doing <= LANE_TAKE || o.doing == FILL_LANE) && packs() &&
            len == (long)((o.batch + (depth == 1)) * 8)) {
            /* LANE.MPUT: how many were removed stands before them */
            const char *answers = next + (depth == 1 ? 8 : 0);
            for (uint64_t i = 0; i < o.batch; i++) { /* packed LANE.PUSH: the sequences */
                int64_t answer;
                memcpy(&answer, answers + i * 8, 8);
                if (answer <= 0)
                    link_fail("not stored: %lld", (long long)answer);
                sequence[(stored + i) % SPAN] = (uint64_t)answer;
            }
            seen.entries = o.batch;
        }
        seen.bulk_bytes += (uint64_t)len;
        return next + len + 2;
    }
    case '*': {
        long n = strtol(at + 1, NULL, 10);
        if (depth == (o.doing == READ_STREAM ? 2 : 3) &&
            (o.doing == READ_STREAM || o.doing == READ_LANE))
            seen.entries++;
        for (long i = 0; i < n; i++) {
            next = walk(next, end, depth + 1);
            if (!next)
                return NULL;
        }
        return next;
    }
    default: break;
    }
    if (o.doing == MEMCACHED || o.doing == MEMCACHED_QUIET) {
        if (memcmp(at, "STORED", 6) && memcmp(at, "DELETED", 7) && memcmp(at, "MN", 2))
            link_fail("memcached says: %.*s", (int)(next - at - 2), at);
        return next;
    }
    link_fail("not a reply: %.20s", at);
    return NULL;
}

/* How many a packed LANE.READ has: its only string is walked. */
static uint64_t packed_entries(void)
{
    uint64_t n = 0;
    for (size_t at = 0; at < seen.first_bulk_len; n++) {
        uint32_t len[2];
        memcpy(len, seen.first_bulk + at + 40, sizeof len);
        at += 52 + (size_t)len[0] + len[1];
    }
    return n;
}

bool take_reply(void)
{
    const char *end, *from = link_came(&end);
    if (from == end)
        return false;
    struct request *r = &ring[ring_head % RING];
    memset(&seen, 0, sizeof seen);
    const char *after = walk(from, end, 1);
    if (!after)
        return false;
    link_take(after);
    if (ring_head == ring_tail)
        link_fail("a reply that nobody asked for");
    if (r->asked == STORE) {
        if ((o.doing == STREAM || o.doing == GROUP) && seen.first_bulk_len < 40)
            memcpy(stream_id[stored % SPAN], seen.first_bulk, seen.first_bulk_len),
                stream_id[stored % SPAN][seen.first_bulk_len] = 0;
        if ((o.doing <= LANE_TAKE || o.doing == FILL_LANE) && seen.entries != r->entries)
            link_fail("%llu of %u entries were stored", (unsigned long long)seen.entries,
                      r->entries);
        stored += r->entries;
    } else if (r->asked == BLOCK) {
        if (o.doing == READ_STREAM) {
            read_over = seen.entries == 0;
            if (!read_over)
                snprintf(next_stream, sizeof next_stream, "(%.*s", (int)seen.last_id_len,
                         seen.last_id);
        } else {
            next_from = (uint64_t)seen.integers[0];
            read_over = next_from == 0;
            if (o.doing == READ_IDS)
                seen.entries = seen.bulk_bytes / 32;
            if (o.doing == READ_LANE && packs())
                seen.entries = packed_entries();
        }
        read_entries += seen.entries;
    }
    if (--r->replies == 0) {
        if (r->asked == REMOVE)
            removed += r->entries;
        ring_head++;
    }
    return true;
}
