/* state - what the parts of the state.db target share. */
#ifndef DOVELANE_TESTS_FUZZ_STATE_STATE_H
#define DOVELANE_TESTS_FUZZ_STATE_STATE_H

#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/match_mails.h"
#include "tests/support/memstore/memstore.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/state/shown.h"
#include "dovecot-plugin/orset/state/mailbox_tree.h"
#include "dovecot-plugin/orset/ops/uid.h"

#include "dovecot-plugin/store/state_sqlite.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The input, a byte for each choice; zeros at its end. */
struct choices {
    const uint8_t *at, *end;
};

unsigned below(struct choices *, unsigned n);
void require(bool ok, const char *what);
extern const struct orset_alloc HEAP;

/* base.c: the bytes of a true state file, with rows in every table. */
const uint8_t *base_file(size_t *len);
/* damage.c: writes the base file to path and changes it. */
void damage(const char *path, struct choices *);
/* use.c: asks and changes whatever a caller can, as long as the state goes on. Whether a call
 * failed by what is stored. */
bool use(struct orset *, struct choices *);

#endif
