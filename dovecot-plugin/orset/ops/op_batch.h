/* op_batch - ops on the wire: what a replica sends to a peer's lane, and what the peer does with
 * it.
 *
 * A batch is a range of one origin's ops without a gap, with the sender's whole vector. The
 * vector is the only confirmation (F16): what it says of this replica's own numbers need not be
 * sent again. Grammar: docs/replication-protocol.md. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_OP_BATCH_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_OP_BATCH_H

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"

struct orset_modseq {
    uint32_t folder;
    /* HIGHESTMODSEQ of the sender's mailbox (F33). Of two for one folder: the lowest one that a
     * change in the batch has, and that */
    uint64_t highest;
};

#define ORSET_MODSEQS_MAX 1000

/* Appends to batch this replica's ops from number from on, as many as fit into most bytes (one
 * always does). Sets *next_r to the number behind the last one taken. from is a peer's confirmed
 * number + 1, or next_r of the batch before. ORSET_KNOWN: there is none (the batch still carries
 * the vector: a hello). ORSET_E_GAP: rows from there on are gone (orset_drop_out): the peer must
 * exchange. */
int orset_batch_make(struct orset *, uint64_t from, size_t most, const struct orset_modseq *,
                     size_t nmodseq, struct orset_buf *batch, uint64_t *next_r);
/* The same, and only ops whose number is below behind (the first one is taken whatever its
 * number). */
int orset_batch_below(struct orset *, uint64_t from, uint64_t behind, size_t most,
                      const struct orset_modseq *, size_t nmodseq, struct orset_buf *batch,
                      uint64_t *next_r);

struct orset_batch_result {
    uint16_t origin;       /* the sender, as index here */
    uint64_t first;        /* number of the batch's first op */
    unsigned ops, applied; /* in the batch; new ones now in the state */
    /* the sender has this replica's numbers up to here (in its present epoch) */
    uint64_t confirmed;
    /* the sender has what this replica has not, of any origin: exchange if it lasts (F19) */
    bool behind;
    bool ahead;   /* and the reverse */
    uint64_t had; /* the sender's numbers that were here before the batch */
    /* Of other origins the sender has more than this replica, up to these numbers. No more than
     * ORSET_LACKS_MAX are named. */
    struct orset_dot lacks[ORSET_LACKS_MAX];
    unsigned nlacks;
    /* The sender gives itself fewer numbers than are in this state. Either it is an old copy and
     * will say so, or another peer named numbers that it never gave (F43). Alarm; send it this
     * replica's vector, it will draw a new epoch. */
    bool lost;
};

/* Puts the batch's ops into the state; site: whose lane it came by (in a peer's lane only that
 * peer's ops count, F43). Call between begin and commit. On ORSET_E_GAP, _KIND, _EXCHANGE,
 * _MALFORMED, _FORGED and _FORKED the ops before the bad one are in the state and may be committed
 * (r->applied). The stream of this origin then stops until the reason is gone. ORSET_E_ROLLED_BACK
 * and ORSET_E_FORKED are found before anything changes where the vectors show it. */
int orset_batch_apply(struct orset *, uint64_t site, const uint8_t *batch, size_t len,
                      struct orset_batch_result *r);

/* Own ops up to this number are confirmed by every peer: their rows go. */
int orset_drop_out(struct orset *, uint64_t upto);
/* How many own ops wait, and the lowest number among them (0: none). */
int orset_out(struct orset *, uint64_t *ops_r, uint64_t *lowest_r);

/* Calls fn for the messages that own ops above number confirmed changed. So each gets a new modseq
 * when a batch of a sender that has not seen those is applied (F33). A message may come more than
 * once. number: of the op. The message is good until fn calls the core. fn's return value ends it,
 * if it is not 0. */
typedef int orset_touched_fn(void *arg, uint64_t number, uint32_t folder,
                             const struct orset_message *);
int orset_touched_since(struct orset *, uint64_t confirmed, orset_touched_fn *, void *arg);

#endif
