/* unit - what the unit tests of the core share: replicas in memory and what happens to them. */
#ifndef DOVELANE_TESTS_UNIT_ORSET_UNIT_H
#define DOVELANE_TESTS_UNIT_ORSET_UNIT_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "tests/support/memstore/memstore.h"
#include "dovecot-plugin/orset/orset.h"

struct replica {
    struct orset_memstore *mem;
    struct orset *os;
};

extern long fail_after; /* allocations until one fails, -1: none */
extern const struct orset_alloc HEAP;

/* Site n has epoch 100 + n at first. */
void open_replica(struct replica *, uint64_t site);
/* Another handle on a copy of its state, as a backup has it. */
void open_copy(struct replica *copy, struct orset_memstore *of, uint64_t site);
void close_replica(struct replica *);
/* Ships from's ops from number first on. The result of orset_batch_apply. */
int send_to(struct replica *from, struct replica *to, uint64_t site, uint64_t first);
/* A mail with bytes body (0: as the GUID). */
struct orset_dot append(struct replica *, uint32_t folder, uint32_t uid, uint8_t guid,
                        uint8_t flags);
struct orset_facts facts_of(uint8_t guid, uint8_t body);
void expunge(struct replica *, uint32_t folder, uint32_t uid);
uint32_t create(struct replica *, const char *name, size_t len);
/* The mailbox does all that the state asks for. */
void follow(struct replica *);
/* to takes over what from has. The result of the step that ended it. */
int take_over(struct replica *to, uint64_t site, struct replica *from, uint64_t from_site);
/* How many messages of this GUID live in the folder. */
unsigned count(struct replica *, uint32_t folder, uint8_t guid);
void assert_equal(struct replica *, struct replica *);

TCase *bounds_cases(void);
TCase *exchange_cases(void);
TCase *epoch_cases(void);
TCase *join_cases(void);
TCase *left_cases(void);
TCase *hostile_cases(void);
TCase *meanwhile_cases(void);
TCase *uid_cases(void);

#endif
