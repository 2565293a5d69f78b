/* histogram - durations in buckets whose width grows with the value: 64 to each power of two, so
 * that any value is known to 1.6 % and recording is one addition. Zero-initialized is empty. */
#ifndef DOVELANE_TESTS_BENCH_HISTOGRAM_H
#define DOVELANE_TESTS_BENCH_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

#define HISTOGRAM_BITS 6
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t most;
    uint32_t buckets[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value)
{
    if (value < (1u << HISTOGRAM_BITS))
        return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_BITS;
    return ((shift + 1) << HISTOGRAM_BITS) + (unsigned)((value >> shift) - (1u << HISTOGRAM_BITS));
}

/* The middle of a bucket. */
static inline uint64_t histogram_value(unsigned bucket)
{
    if (bucket < (1u << HISTOGRAM_BITS))
        return bucket;
    unsigned shift = (bucket >> HISTOGRAM_BITS) - 1;
    uint64_t least = (uint64_t)((bucket & ((1u << HISTOGRAM_BITS) - 1)) + (1u << HISTOGRAM_BITS))
                     << shift;
    return least + (((uint64_t)1 << shift) >> 1);
}

static inline void histogram_add(struct histogram *h, uint64_t value)
{
    h->count++;
    h->sum += value;
    if (value > h->most)
        h->most = value;
    h->buckets[histogram_bucket(value)]++;
}

/* The value that the share (0 to 1) of all values does not exceed; 0 when empty. */
static inline uint64_t histogram_quantile(const struct histogram *h, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)h->count + 0.999999), seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= wanted && seen > 0) {
            uint64_t value = histogram_value(i);
            return value < h->most ? value : h->most;
        }
    }
    return h->most;
}

/* A JSON object of milliseconds; the values recorded are nanoseconds. */
static inline void histogram_print(FILE *out, const struct histogram *h)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    fprintf(out, "{\"count\": %llu", (unsigned long long)h->count);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        fprintf(out, ", \"%s\": %.4f", quantiles[i].name,
                (double)histogram_quantile(h, quantiles[i].share) / 1e6);
    fprintf(out, ", \"max\": %.4f, \"mean\": %.4f}", (double)h->most / 1e6,
            h->count ? (double)h->sum / (double)h->count / 1e6 : 0.0);
}

#endif
