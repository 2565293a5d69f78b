/* bytes - buffers that grow, readers that never read beyond, and the two forms of numbers. */
#include "dovecot-plugin/orset/base/bytes.h"

#include <string.h>

void orset_buf_free(struct orset_buf *b)
{
    if (b->data)
        b->alloc->resize(b->alloc->ctx, b->data, 0);
    b->data = NULL;
    b->len = b->room = 0;
}

void orset_buf_put(struct orset_buf *b, const void *bytes, size_t n)
{
    if (b->failed || n == 0)
        return;
    if (b->len + n > b->room) {
        size_t room = b->room ? b->room : 256;
        while (room < b->len + n)
            room *= 2;
        uint8_t *p = b->alloc->resize(b->alloc->ctx, b->data, room);
        if (!p) {
            b->failed = true;
            return;
        }
        b->data = p;
        b->room = room;
    }
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
}

void orset_buf_u8(struct orset_buf *b, uint8_t v)
{
    orset_buf_put(b, &v, 1);
}

void orset_buf_u64(struct orset_buf *b, uint64_t v)
{
    uint8_t x[8];
    for (int i = 0; i < 8; i++)
        x[i] = (uint8_t)(v >> 8 * i);
    orset_buf_put(b, x, 8);
}

void orset_buf_num(struct orset_buf *b, uint64_t v)
{
    uint8_t x[10];
    size_t n = 0;
    while (v >= 128) {
        x[n++] = (uint8_t)(v | 128);
        v >>= 7;
    }
    x[n++] = (uint8_t)v;
    orset_buf_put(b, x, n);
}

void orset_buf_text(struct orset_buf *b, const void *bytes, size_t n)
{
    orset_buf_num(b, n);
    orset_buf_put(b, bytes, n);
}

const uint8_t *orset_read_bytes(struct orset_reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

uint8_t orset_read_u8(struct orset_reader *r)
{
    const uint8_t *p = orset_read_bytes(r, 1);
    return p ? *p : 0;
}

uint64_t orset_read_u64(struct orset_reader *r)
{
    const uint8_t *p = orset_read_bytes(r, 8);
    uint64_t v = 0;
    for (int i = 7; p && i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

uint64_t orset_read_num(struct orset_reader *r, uint64_t most)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = orset_read_u8(r);
        if (r->bad)
            return 0;
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            /* One form per number, so that equal values have equal bytes and equal hashes. */
            if (v > most || (b == 0 && shift > 0))
                break;
            return v;
        }
    }
    r->bad = true;
    return 0;
}

const uint8_t *orset_read_text(struct orset_reader *r, size_t most, size_t *n)
{
    *n = (size_t)orset_read_num(r, most);
    const uint8_t *p = orset_read_bytes(r, *n);
    if (!p)
        *n = 0;
    return p;
}

void orset_key_put(struct orset_key *k, const void *bytes, size_t n)
{
    if (k->n + n > sizeof k->b) /* every name is bounded before it comes here */
        n = sizeof k->b - k->n;
    if (n)
        memcpy(k->b + k->n, bytes, n);
    k->n += n;
}

void orset_key_num(struct orset_key *k, uint64_t v)
{
    uint8_t x[9];
    size_t n = 0;
    if (v <= 240) {
        x[0] = (uint8_t)v;
    } else {
        while (n < 8 && v >> 8 * n)
            n++;
        x[0] = (uint8_t)(240 + n);
        for (size_t i = 0; i < n; i++)
            x[1 + i] = (uint8_t)(v >> 8 * (n - 1 - i));
    }
    orset_key_put(k, x, n + 1);
}

uint64_t orset_key_read(struct orset_reader *r, uint64_t most)
{
    uint8_t first = orset_read_u8(r);
    int n = first - 240;
    uint64_t v = first;
    if (n > 0) {
        const uint8_t *p = n <= 8 ? orset_read_bytes(r, (size_t)n) : NULL;
        v = 0;
        for (int i = 0; p && i < n; i++)
            v = v << 8 | p[i];
        r->bad |= !p || v <= 240 || v >> 8 * (n - 1) == 0;
    }
    r->bad |= v > most;
    return r->bad ? 0 : v;
}

#define ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = ROTL(v[1], 13) ^ v[0];
    v[3] = ROTL(v[3], 16) ^ v[2];
    v[0] = ROTL(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = ROTL(v[1], 17) ^ v[2];
    v[3] = ROTL(v[3], 21) ^ v[0];
    v[2] = ROTL(v[2], 32);
}

static uint64_t word(const uint8_t *p, size_t n)
{
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)p[i] << 8 * i;
    return w;
}

static void sip_begin(uint64_t v[4])
{
    const uint64_t k0 = 0x446f76656c616e65, k1 = 0x6d61696c626f7865; /* "Dovelane", "mailboxe" */
    v[0] = k0 ^ 0x736f6d6570736575;
    v[1] = k1 ^ 0x646f72616e646f6d ^ 0xee;
    v[2] = k0 ^ 0x6c7967656e657261;
    v[3] = k1 ^ 0x7465646279746573;
}

static void sip_word(uint64_t v[4], uint64_t w)
{
    v[3] ^= w;
    sip_round(v);
    sip_round(v);
    v[0] ^= w;
}

static struct orset_sum sip_end(uint64_t v[4], uint64_t last)
{
    struct orset_sum s;
    sip_word(v, last);
    v[2] ^= 0xee;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    s.lo = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    s.hi = v[0] ^ v[1] ^ v[2] ^ v[3];
    return s;
}

struct orset_sum orset_hash(const void *bytes, size_t n)
{
    uint64_t v[4];
    const uint8_t *p = bytes;
    size_t left = n;
    sip_begin(v);
    for (; left >= 8; p += 8, left -= 8)
        sip_word(v, word(p, 8));
    return sip_end(v, word(p, left) | (uint64_t)n << 56);
}

struct orset_sum orset_hash_words(const uint64_t *words, size_t n)
{
    uint64_t v[4];
    sip_begin(v);
    for (size_t i = 0; i < n; i++)
        sip_word(v, words[i]);
    return sip_end(v, (uint64_t)(8 * n) << 56);
}

void orset_sum_add(struct orset_sum *a, struct orset_sum b)
{
    a->lo += b.lo;
    a->hi += b.hi;
}

void orset_sum_sub(struct orset_sum *a, struct orset_sum b)
{
    a->lo -= b.lo;
    a->hi -= b.hi;
}
