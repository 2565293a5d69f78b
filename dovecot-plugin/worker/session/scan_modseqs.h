/* scan_modseqs - which modseqs the changes have that a scan made ops of. In memory only, so that
 * nothing is said of older ones. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SCAN_MODSEQS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SCAN_MODSEQS_H

#include "dovecot-plugin/compat.h"

#include <array.h>

struct session;

struct scan_modseqs {
    uint64_t from, upto; /* own numbers that the scan gave; upto UINT64_MAX: it goes on */
    uint32_t folder;
    uint64_t lo, hi; /* of clients' changes; lo 0: unknown */
};
ARRAY_DEFINE_TYPE(scan_modseqs, struct scan_modseqs);

/* The ops from the next number on are of a scan of this mailbox. */
void scan_modseqs_begin(struct session *, uint32_t folder, uint64_t lo, uint64_t hi);
/* All ops of the scans that began are made, or were rolled back. */
void scan_modseqs_end(struct session *);
/* For a batch of these own numbers: fn is called for each folder with the highest modseq. Before
 * that it is called with the lowest, where that is known and the batch has all that the scan
 * said. */
typedef void scan_modseqs_fn(void *arg, uint32_t folder, uint64_t modseq);
void scan_modseqs_of(struct session *, uint64_t from, uint64_t upto, scan_modseqs_fn *fn,
                     void *arg);

#endif
