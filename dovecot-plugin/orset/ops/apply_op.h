/* apply_op - an op into the state. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_APPLY_OP_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_APPLY_OP_H

#include "dovecot-plugin/orset/base/handle.h"

enum op_kind {
    OP_ADD = 1,
    OP_REMOVE,
    OP_FLAGS,
    OP_FOLDER, /* create */
    OP_NAME,
    OP_DELETE,
    OP_SUBSCRIBE,
    OP_ATTRIBUTE,
    OP_UID_VALIDITY,
    OP_KEEPER,
    OP_UIDS
};

struct op_run {
    struct orset *os;
    uint16_t by;          /* origin of the op, as index here */
    uint64_t first, next; /* numbers */
    const uint16_t *map;  /* sender's origin indices to ours; NULL: they are ours */
    const uint64_t *seen; /* the sender's vector by its indices; NULL: own op */
    uint16_t nmap;
    bool dry;      /* parse and check only */
    bool local;    /* the mailbox has it already */
    uint32_t uid;  /* local add: its UID */
    uint64_t most; /* the sender's own entry in its vector, 0: not bounded */
    /* Counted by the dry run: dots named that are not covered; keywords and folders that are new
     * here. */
    uint64_t named, keywords, folders;
    unsigned marks; /* flags set on the target in flight */
    /* the dry run found a bound exceeded: the error, if the op is new; its text is os's */
    int beyond;
    struct orset_reader in;
};

/* Checks the op, puts it into the state, raises the vector. 0, ORSET_KNOWN or an error. */
int orset_apply_op(struct orset *, struct op_run *, const uint8_t *op, size_t len);
/* an origin's running hash, with this op */
uint64_t orset_chain_next(uint64_t chain, const uint8_t *op, size_t len);

#endif
