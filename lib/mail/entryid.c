#include "lib/mail/entryid.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "lib/base/log.h"

/* Random bytes are fetched in blocks per thread: one system call for 51 ids. */
static void random_bytes(unsigned char *out, size_t n)
{
    static _Thread_local unsigned char pool[512];
    static _Thread_local size_t left;
    if (left < n) {
        if (getrandom(pool, sizeof pool, 0) != (ssize_t)sizeof pool)
            log_fatal("getrandom failed");
        left = sizeof pool;
    }
    left -= n;
    memcpy(out, pool + left, n);
}

void entryid_make(unsigned char id[ENTRYID_LEN])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    for (int i = 0; i < 6; i++)
        id[i] = (unsigned char)(ms >> (40 - 8 * i));
    random_bytes(id + 6, ENTRYID_LEN - 6);
}

void entryid_hex(const unsigned char id[ENTRYID_LEN], char hex[ENTRYID_HEX])
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < ENTRYID_LEN; i++) {
        hex[2 * i] = digit[id[i] >> 4];
        hex[2 * i + 1] = digit[id[i] & 15];
    }
    hex[2 * ENTRYID_LEN] = '\0';
}

/* The id's random part, spread again for each n by the finalizer of MurmurHash3 (public domain
 * constants). */
double entryid_fraction(const unsigned char id[ENTRYID_LEN], uint32_t n)
{
    uint64_t x;
    memcpy(&x, id + 8, 8);
    x += (uint64_t)n * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    x ^= x >> 33;
    return (double)(x >> 11) / (double)(1ull << 53);
}
