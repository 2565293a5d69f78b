/* driver - what the lane's fuzzers have in common. With libFuzzer it is not linked; without,
 * driver.c calls. */
#ifndef DOVELANE_TESTS_FUZZ_LANE_DRIVER_H
#define DOVELANE_TESTS_FUZZ_LANE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Good inputs to begin with. */
void fuzz_seeds(void (*keep)(const uint8_t *data, size_t size));

#endif
