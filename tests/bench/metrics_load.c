/* metrics_load - counts deferrals by next hop, as a relay does, for its instructions.
 *
 *   metrics_load NEXTHOPS COUNTS
 *
 * Each count looks its series up: NEXTHOPS take turns, and so do nine reasons. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/metrics.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long nexthops = atol(argv[1]), counts = atol(argv[2]);
    if (nexthops < 1)
        return 2;
    char(*name)[32] = calloc((size_t)nexthops, sizeof *name);
    for (long i = 0; name && i < nexthops; i++)
        snprintf(name[i], sizeof name[i], "smtp:[hop-%06ld.example]:25", i % 1000000);
    for (long i = 0; name && i < counts; i++) {
        const char reason[] = {'4', '.', (char)('1' + i % 9), '.', '1', '\0'};
        metric_series_add(metric_series(METRIC_deferrals, name[i % nexthops], reason), 1);
    }
    free(name);
    return 0;
}
