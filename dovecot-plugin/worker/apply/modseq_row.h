/* modseq_row - what modseq_repair.c remembers of a mailbox: row ROW_MODSEQ_REPAIR. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_ROW_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_ROW_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

#include <seq-range-array.h>

struct session;

/* Mails that this site raised, and another one is to: to what, first and last. */
struct raise_owed {
    uint64_t site;
    uint64_t lo, value;
    ARRAY_TYPE(seq_range) uids;
};

struct modseq_row {
    /* Mails that peers changed. Where they were changed, their modseqs are lo to hi; lo 0: nobody
     * said so. */
    ARRAY_TYPE(seq_range) changed;
    uint64_t lo, hi;
    uint64_t before; /* HIGHESTMODSEQ before they were written here; 0: nothing was written */
    bool conflict;   /* it was lo or more */
    /* mails that peers raised, and to what: the least and the most */
    ARRAY_TYPE(seq_range) raised;
    uint64_t raise_lo, raise;
    unsigned nowing; /* sites that have not answered */
    struct raise_owed owing[FRAME_SITES_MAX];
    time_t told_at; /* last; 0: not yet */
    unsigned tells; /* how often again */
    unsigned gap;   /* above what is needed, since raising was too late before */
};

/* In data stack memory; empty when there is none. -1: it cannot be read. */
int modseq_row_get(struct session *, uint32_t folder, struct modseq_row *);
/* In a transaction. One in which nothing is left goes. */
int modseq_row_put(struct session *, uint32_t folder, struct modseq_row *);
/* Calls fn for each folder that has one. */
int modseq_rows(struct session *, int (*fn)(struct session *, uint32_t folder));

#endif
