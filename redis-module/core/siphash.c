/* siphash - SipHash-1-3 (Aumasson and Bernstein, 2012): a keyed hash whose collisions cannot be
 * made without the key. Ids come from the wire, and with a fixed hash anybody could make every
 * look-up of a lane as slow as the lane is long. One round a word and three at the end are what
 * hash tables use (Rust's, Python's); who cannot see hashes, only how long a look-up takes,
 * gains nothing by the missing rounds. */
#include "redis-module/core/lane.h"

static uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t load64(const uint8_t *p)
{
    /* Written out, the compiler sees one load in it. */
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
           (uint64_t)p[7] << 56;
}

static void round_of(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

uint64_t lane_hash(const uint8_t key[16], const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t k0 = load64(key), k1 = load64(key + 8), last = (uint64_t)n << 56;
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
                     k1 ^ 0x7465646279746573u};
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t m = load64(p);
        v[3] ^= m;
        round_of(v);
        v[0] ^= m;
    }
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)p[i] << (8 * i);
    v[3] ^= last;
    round_of(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        round_of(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
