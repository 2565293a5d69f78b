/* fuzz - what the targets that need Dovecot's library share. */
#ifndef DOVELANE_TESTS_FUZZ_DOVECOT_FUZZ_H
#define DOVELANE_TESTS_FUZZ_DOVECOT_FUZZ_H

#include "dovecot-plugin/compat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

static inline size_t sum(const void *p, size_t n)
{
    const uint8_t *b = p;
    size_t s = 0;
    for (size_t i = 0; i < n; i++)
        s += b[i];
    return s;
}

static inline void begin_library(void)
{
    static bool begun;
    if (!begun)
        lib_init();
    begun = TRUE;
}

#endif
