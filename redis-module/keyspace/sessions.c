/* sessions - a table of sessions, and of each one its last replies.
 *
 *    by name (hash chains)              by last use (list): longest unused --> ... --> just used
 *
 *    session --> ring of replies, slot = txn mod its size; grows to 1,024
 *                 | 4097: run 65541 x 10 | 4098: run -1 x 1 | ...
 *
 * The sequences of one PUSH mostly follow each other, so a reply is kept as runs (first, count)
 * of rising sequences or equal words. */
#include "redis-module/keyspace/sessions.h"

#include <string.h>

#define REMEMBERED 1024u
#define UNUSED_MS (10 * 60 * 1000)
/* bytes of all replies: above it the longest unused session is forgotten, at last the oldest
 * replies of the only one */
#define REPLIES_MAX (64u << 20)

struct run {
    int64_t first;
    uint64_t n;
};

struct reply {
    uint64_t acked, nanswers, nruns;
    struct run run[];
};

struct session {
    struct session *chain, *prev, *next;
    uint64_t expected, kept; /* txn: the next one; the first whose reply may be there */
    int64_t used;
    struct reply **reply; /* ring */
    uint32_t room;        /* of the ring: a power of two */
    uint8_t name_len;
    char name[SESSION_NAME_MAX];
};

static struct {
    struct session **bucket;
    size_t n, room, bytes;
    struct session *oldest, *newest;
} sessions;

/* ---- The table ---- */

static struct session **find(const char *name, size_t len)
{
    struct session **at =
        &sessions.bucket[lane_hash(server.env.key, name, len) & (sessions.room - 1)];
    while (*at && ((*at)->name_len != len || memcmp((*at)->name, name, len) != 0))
        at = &(*at)->chain;
    return at;
}

static void unlink_use(struct session *s)
{
    *(s->prev ? &s->prev->next : &sessions.oldest) = s->next;
    *(s->next ? &s->next->prev : &sessions.newest) = s->prev;
}

static void link_newest(struct session *s)
{
    s->prev = sessions.newest;
    s->next = NULL;
    *(s->prev ? &s->prev->next : &sessions.oldest) = s;
    sessions.newest = s;
}

static void forget(struct reply *r)
{
    if (!r)
        return;
    RedisModule_Assert(sessions.bytes >= sizeof *r + r->nruns * sizeof *r->run);
    sessions.bytes -= sizeof *r + r->nruns * sizeof *r->run;
    RedisModule_Free(r);
}

static void drop(struct session *s)
{
    struct session **at = find(s->name, s->name_len);
    RedisModule_Assert(*at == s && sessions.n);
    *at = s->chain;
    unlink_use(s);
    sessions.n--;
    for (uint32_t i = 0; i < s->room; i++)
        forget(s->reply[i]);
    RedisModule_Free(s->reply);
    RedisModule_Free(s);
}

void sessions_trim(int64_t now)
{
    while (sessions.oldest &&
           (sessions.n > (uint64_t)server.max_sessions || now - sessions.oldest->used > UNUSED_MS))
        drop(sessions.oldest);
}

static void grow(void)
{
    struct session **old = sessions.bucket;
    size_t room = sessions.room ? 2 * sessions.room : 64;
    sessions.bucket = must_alloc(room * sizeof *sessions.bucket);
    memset(sessions.bucket, 0, room * sizeof *sessions.bucket);
    sessions.room = room;
    for (struct session *s = sessions.oldest; s; s = s->next) {
        s->chain = NULL;
        *find(s->name, s->name_len) = s;
    }
    if (old)
        RedisModule_Free(old);
}

static struct session *get(const char *name, size_t len, int64_t now)
{
    if (sessions.n >= sessions.room)
        grow();
    struct session *s = *find(name, len);
    if (s) {
        unlink_use(s);
    } else {
        s = must_alloc(sizeof *s);
        *s = (struct session){.expected = 1, .kept = 1, .name_len = (uint8_t)len};
        memcpy(s->name, name, len);
        *find(name, len) = s;
        sessions.n++;
    }
    s->used = now;
    link_newest(s);
    sessions_trim(now);
    return s;
}

uint64_t sessions_count(void)
{
    return sessions.n;
}

/* ---- Numbers and replies ---- */

enum session_state session_look(const char *name, size_t len, uint64_t txn,
                                struct session **session_r, uint64_t *number_r)
{
    struct session *s = get(name, len, now_ms());
    *session_r = s;
    uint64_t oldest = s->expected > REMEMBERED ? s->expected - REMEMBERED : 1;
    if (oldest < s->kept)
        oldest = s->kept;
    *number_r = txn >= s->expected ? s->expected : oldest;
    if (txn == s->expected)
        return SESSION_NEXT;
    if (txn > s->expected)
        return SESSION_AHEAD;
    return txn >= oldest ? SESSION_AGAIN : SESSION_OLD;
}

static bool continues(const struct run *run, int64_t answer)
{
    return answer < 0 ? run->first == answer
                      : run->first > 0 && run->first + (int64_t)run->n == answer;
}

static struct reply *pack(const int64_t *answer, size_t n, uint64_t acked)
{
    size_t nruns = 0;
    struct run last = {0};
    for (size_t i = 0; i < n; i++) {
        if (nruns && continues(&last, answer[i])) {
            last.n++;
        } else {
            last = (struct run){answer[i], 1};
            nruns++;
        }
    }
    struct reply *r = must_alloc(sizeof *r + nruns * sizeof *r->run);
    sessions.bytes += sizeof *r + nruns * sizeof *r->run;
    *r = (struct reply){.acked = acked, .nanswers = n};
    for (size_t i = 0; i < n; i++) {
        if (r->nruns && continues(&r->run[r->nruns - 1], answer[i]))
            r->run[r->nruns - 1].n++;
        else
            r->run[r->nruns++] = (struct run){answer[i], 1};
    }
    return r;
}

/* s is the one used last, so it is the only one when it is the oldest. */
static void make_room(struct session *s)
{
    while (sessions.bytes > REPLIES_MAX && sessions.oldest != s)
        drop(sessions.oldest);
    if (s->kept + s->room < s->expected)
        s->kept = s->expected - s->room;
    for (; sessions.bytes > REPLIES_MAX && s->kept < s->expected; s->kept++) {
        struct reply **slot = &s->reply[s->kept & (s->room - 1)];
        forget(*slot);
        *slot = NULL;
    }
}

void session_remember(struct session *s, const int64_t *answer, size_t n, uint64_t acked)
{
    /* The ring is as large as the session is old, up to its end, so that a short session costs
     * little. */
    if (s->room < REMEMBERED && s->expected > s->room) {
        uint32_t room = s->room ? 4 * s->room : 16;
        struct reply **ring = must_alloc(room * sizeof *ring);
        memset(ring, 0, room * sizeof *ring);
        for (uint64_t txn = 1; txn < s->expected; txn++)
            ring[txn & (room - 1)] = s->reply[txn & (s->room - 1)];
        if (s->reply)
            RedisModule_Free(s->reply);
        s->reply = ring;
        s->room = room;
    }
    struct reply **slot = &s->reply[s->expected & (s->room - 1)];
    forget(*slot);
    *slot = pack(answer, n, acked);
    s->expected++;
    make_room(s);
}

uint64_t session_again(const struct session *s, uint64_t txn, void (*begin)(void *, size_t n),
                       void (*answer)(void *, int64_t), void *arg)
{
    const struct reply *r = s->reply[txn & (s->room - 1)];
    RedisModule_Assert(r && txn < s->expected); /* session_look said SESSION_AGAIN */
    begin(arg, r->nanswers);
    for (uint64_t i = 0; i < r->nruns; i++)
        for (uint64_t k = 0; k < r->run[i].n; k++)
            answer(arg, r->run[i].first < 0 ? r->run[i].first : r->run[i].first + (int64_t)k);
    return r->acked;
}
