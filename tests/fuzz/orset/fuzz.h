/* fuzz - what the fuzzer's entry, its seeds and the driver without libFuzzer share. */
#ifndef DOVELANE_TESTS_FUZZ_ORSET_FUZZ_H
#define DOVELANE_TESTS_FUZZ_ORSET_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "tests/support/memstore/memstore.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/ops/uid.h"

extern const struct orset_alloc HEAP;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void require(bool ok, const char *what);
struct orset *open_site(struct orset_memstore *, uint64_t site);
/* A folder, mails, flags, a subscription and an attribute of its own. */
void populate(struct orset *);

/* Calls fn with real messages of two sites: what to begin from. */
typedef void fuzz_seed_fn(void *arg, const char *name, unsigned kind, const struct orset_buf *);
void fuzz_seeds(fuzz_seed_fn *, void *arg);

#endif
