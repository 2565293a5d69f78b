/* chunk - writes entries into a string, and reads them again. */
#include "redis-module/propagate/chunk.h"

#include <string.h>

#define HEAD 9
#define ENTRY_HEAD 57
#define FLAG_ID 1u
#define FLAG_EXPIRES 2u
#define AGE_MAX ((uint64_t)1 << 47)

int64_t delay_left(int64_t delay, int64_t wall)
{
    int64_t gone = wall_ms() - wall;
    /* A wall clock that went back says nothing about how long it was. */
    return gone <= 0 ? delay : gone >= delay ? 0 : delay - gone;
}

static char *more(struct chunk *c, size_t n)
{
    if (c->len + n > c->room) {
        size_t room = c->room ? c->room : 4096;
        while (room < c->len + n)
            room *= 2;
        c->data = must_grow(c->data, c->len, room);
        c->room = room;
    }
    c->len += n;
    return c->data + c->len - n;
}

void chunk_add(struct chunk *c, const struct lane_entry *e)
{
    if (c->len == 0) {
        char *head = more(c, HEAD);
        head[0] = CHUNK_VERSION;
        put64(head + 1, (uint64_t)wall_ms());
        c->now = now_ms();
    }
    char *p = more(c, ENTRY_HEAD + (e->expires ? 8 : 0) + (size_t)e->meta_len + e->body_len);
    int64_t delay = e->state == LANE_DELAYED ? e->until - c->now : 0;
    put64(p, e->seq);
    put64(p + 8, e->born < c->now ? (uint64_t)(c->now - e->born) : 0);
    put64(p + 16, delay > 0 ? (uint64_t)delay : 0);
    put32(p + 24, e->revision);
    put32(p + 28, e->attempts);
    put32(p + 32, e->meta_len);
    put32(p + 36, e->body_len);
    p[40] = (char)((e->id ? FLAG_ID : 0) | (e->expires ? FLAG_EXPIRES : 0));
    if (e->id)
        memcpy(p + 41, e->id, ID_LEN);
    else
        memset(p + 41, 0, ID_LEN);
    if (e->expires) {
        put64(p + ENTRY_HEAD, e->expires > c->now ? (uint64_t)(e->expires - c->now) : 0);
        p += 8;
    }
    memcpy(p + ENTRY_HEAD, e->meta, e->meta_len);
    memcpy(p + ENTRY_HEAD + e->meta_len, e->body, e->body_len);
    c->entries++;
}

void chunk_reset(struct chunk *c)
{
    c->len = 0;
    c->entries = 0;
}

void chunk_free(struct chunk *c)
{
    if (c->data)
        RedisModule_Free(c->data);
    *c = (struct chunk){0};
}

/* One entry at *p with `left` bytes behind it; moves *p and *left on. */
static const char *load_entry(struct lane *lane, const char **p, size_t *left, int64_t wall,
                              unsigned known)
{
    const char *head = *p, *life;
    if (*left < ENTRY_HEAD)
        return "an entry is cut off";
    uint64_t age = get64(head + 8), delay = get64(head + 16);
    uint32_t meta_len = get32(head + 32), body_len = get32(head + 36);
    unsigned flags = (unsigned char)head[40];
    size_t size = ENTRY_HEAD + (flags & FLAG_EXPIRES ? 8 : 0);
    if (flags & ~known)
        return "an entry has a flag that is not known here";
    if (*left < size || meta_len > LANE_META_MAX || body_len > LANE_BODY_MAX ||
        (uint64_t)meta_len + body_len > *left - size)
        return "an entry is longer than what holds it";
    life = flags & FLAG_EXPIRES ? head + ENTRY_HEAD : NULL;
    if (age > AGE_MAX || delay > TIME_MAX || (life && get64(life) > TIME_MAX))
        return "an entry has an age, delay or life that cannot be";
    int64_t now = now_ms(), rest = delay ? delay_left((int64_t)delay, wall) : 0;
    struct lane_new entry = {.seq = get64(head),
                             .id = flags & FLAG_ID ? (const uint8_t *)head + 41 : NULL,
                             .meta = head + size,
                             .meta_len = meta_len,
                             .body = head + size + meta_len,
                             .body_len = body_len,
                             .revision = get32(head + 24),
                             .attempts = get32(head + 28),
                             .born = now - (int64_t)age,
                             .due = rest ? now + rest : 0,
                             .expires = life ? now + delay_left((int64_t)get64(life), wall) : 0,
                             .unbounded = true};
    if (entry.seq == 0)
        return "an entry has no sequence";
    size += (size_t)meta_len + body_len;
    *p += size;
    *left -= size;
    switch (lane_push(lane, &entry, NULL)) {
    case LANE_OK: return NULL;
    case LANE_HELD: return "an id is there twice";
    case LANE_ORDER: return "sequences do not rise";
    default: return "no memory";
    }
}

const char *chunk_load(struct lane *lane, const char *data, size_t len, uint64_t *entries_r)
{
    uint64_t n = 0;
    if (len <= HEAD || data[0] < 1 || data[0] > CHUNK_VERSION)
        return "a chunk of a version that is not known here";
    unsigned known = data[0] == 1 ? FLAG_ID : FLAG_ID | FLAG_EXPIRES;
    int64_t wall = (int64_t)get64(data + 1);
    if (wall < 0)
        return "a chunk's time cannot be";
    const char *p = data + HEAD;
    size_t left = len - HEAD;
    while (left) {
        const char *wrong = load_entry(lane, &p, &left, wall, known);
        if (wrong)
            return wrong;
        n++;
    }
    *entries_r = n;
    return NULL;
}
