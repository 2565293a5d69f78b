/* bytes - numbers and texts to bytes and back, with every bound checked.
 *
 * Numbers are LEB128 in values and on the wire. In keys they have a form that sorts: 0 to 240 as
 * one byte, else 240 + n and n bytes, big-endian, the shortest n. Internal to the core. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_BYTES_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dovecot-plugin/orset/store.h"

/* A growing buffer. After failed is set nothing is written any more and the contents mean
 * nothing. */
struct orset_buf {
    const struct orset_alloc *alloc;
    uint8_t *data;
    size_t len, room;
    bool failed;
};

void orset_buf_free(struct orset_buf *);
void orset_buf_put(struct orset_buf *, const void *bytes, size_t n);
void orset_buf_u8(struct orset_buf *, uint8_t);
void orset_buf_u64(struct orset_buf *, uint64_t); /* 8 bytes, little-endian */
void orset_buf_num(struct orset_buf *, uint64_t);
void orset_buf_text(struct orset_buf *, const void *bytes, size_t n); /* length, then bytes */

/* Reads what is there. The first thing that does not fit sets bad; all later reads give 0. */
struct orset_reader {
    const uint8_t *at, *end;
    bool bad;
};

/* n bytes; NULL only where n is 0, as an empty buffer has it. */
static inline struct orset_reader orset_reader_of(const uint8_t *bytes, size_t n)
{
    return (struct orset_reader){bytes, n ? bytes + n : bytes, false};
}

uint8_t orset_read_u8(struct orset_reader *);
uint64_t orset_read_u64(struct orset_reader *);
uint64_t orset_read_num(struct orset_reader *, uint64_t most);
const uint8_t *orset_read_bytes(struct orset_reader *, size_t n);
/* never NULL unless bad */
const uint8_t *orset_read_text(struct orset_reader *, size_t most, size_t *n);

#define ORSET_KEY_MAX 1400

struct orset_key {
    size_t n;
    uint8_t b[ORSET_KEY_MAX];
};

void orset_key_num(struct orset_key *, uint64_t);
void orset_key_put(struct orset_key *, const void *bytes, size_t n);
/* One form per number: another one is bad, or a row would not be found again under what was read
 * from its key. */
uint64_t orset_key_read(struct orset_reader *, uint64_t most);

/* SipHash-2-4 with 128 bits of output under a fixed key. (Aumasson, Bernstein: "SipHash: a fast
 * short-input PRF", 2012, and its 128-bit variant.) It is equal on every replica, spread well, and
 * not a secret. */
struct orset_sum {
    uint64_t lo, hi;
};

struct orset_sum orset_hash(const void *bytes, size_t n);
/* The same over n numbers as if each were written as 8 bytes, little-endian. */
struct orset_sum orset_hash_words(const uint64_t *words, size_t n);

/* Digests add up, so that an element can be taken out again and no order counts. */
void orset_sum_add(struct orset_sum *, struct orset_sum);
void orset_sum_sub(struct orset_sum *, struct orset_sum);

#endif
