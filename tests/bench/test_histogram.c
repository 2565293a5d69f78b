/* A quantile is never off by more than a bucket's half width, and never above the largest value. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/histogram.h"

static struct histogram h, single;

static void must(int holds, const char *what, uint64_t value)
{
    if (holds)
        return;
    fprintf(stderr, "test_histogram: %s at %llu\n", what, (unsigned long long)value);
    exit(1);
}

int main(void)
{
    unsigned last = 0;
    for (uint64_t value = 0; value < UINT64_MAX / 9; value += 1 + value / 50) {
        unsigned bucket = histogram_bucket(value);
        uint64_t middle = histogram_value(bucket);
        uint64_t error = middle > value ? middle - value : value - middle;
        must(bucket >= last && bucket < HISTOGRAM_BUCKETS, "buckets are in order", value);
        must(error * 64 <= value, "the middle is within 1.6 %", value);
        last = bucket;
    }
    must(histogram_bucket(UINT64_MAX) == HISTOGRAM_BUCKETS - 1,
         "the largest value has the last bucket", UINT64_MAX);
    for (uint64_t value = 1; value <= 100000; value++)
        histogram_add(&h, value * 1000);
    for (unsigned percent = 1; percent <= 100; percent++) {
        double exact = percent * 1e6, found = (double)histogram_quantile(&h, percent / 100.0);
        must(found > exact * 0.984 && found < exact * 1.016, "a quantile is within 1.6 %", percent);
    }
    histogram_add(&single, 1000003);
    must(histogram_quantile(&single, 0.5) <= 1000003, "no quantile is above the largest value",
         1000003);
    must(histogram_quantile(&single, 0.999) == histogram_quantile(&single, 0.01),
         "one value is all quantiles", 1);
    return 0;
}
