/* exchange_internal - what answer.c, exchange.c and merge.c share: the messages of an
 * exchange.
 *
 *     question = version, kind, vector, body     answer = version, kind, vector, body
 *     HELLO    -                                 sum of the named, n AHEAD rows, n { folder, sum, messages }
 *     RANGES   folder, depth, split, n { prefix }  the question's body, folder head, n << split { 8 bytes of sum }
 *     MESSAGES folder, depth, n { prefix }       folder, depth, k, k { prefix }, folder head, n { message }
 *     NAMED    cursor                            n { row }, cursor or end
 *
 * A message's place is a hash of its dot; a range is all places that begin with the depth bits
 * of prefix. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_EXCHANGE_EXCHANGE_INTERNAL_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_EXCHANGE_EXCHANGE_INTERNAL_H

#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/metadata.h"

enum { X_HELLO = 1, X_RANGES, X_MESSAGES, X_NAMED };

#define X_DEPTH_MAX 24
#define X_DIGESTS_MAX 65536 /* in one answer */
#define X_PREFIXES_MAX 65536
#define X_BYTES (1024 * 1024)                    /* after which an answer stops taking more */
#define X_SUBSCRIPTIONS ORSET_SUBSCRIPTION_BYTES /* all of them go in one answer */

struct prefixes {
    unsigned depth;
    size_t n;
    uint32_t *v; /* rising */
};

struct orset_exchange {
    struct peer base; /* the hello's vector, (e) */
    bool helloed;
    uint64_t site;
    struct orset_dot *killed; /* remembered removes of the giver at the hello */
    size_t nkilled;
    /* flags that the giver remembered at the hello, of messages it did not have */
    struct orset_dot *orphan;
    size_t norphans;
    struct watch watch; /* what comes into the state meanwhile */
    bool named;         /* subscriptions and attributes are still to be merged */
    uint8_t cursor[ORSET_KEY_MAX];
    size_t cursor_len;
    uint32_t *work; /* folders that differ */
    uint64_t *their_messages;
    size_t nwork, at;
    bool in_folder;    /* p is of work[at] */
    unsigned bits;     /* depth at which ranges hold about one message */
    struct prefixes p; /* ranges that differ */
};

/* --- ranges.c */
uint32_t orset_place(const struct orset *, struct orset_dot);   /* the high 24 bits of the hash */
size_t orset_range_at(const struct prefixes *, uint32_t place); /* index of its range, p->n: none */
int orset_prefixes_read(struct orset *, struct orset_reader *, unsigned depth, struct prefixes *);
void orset_prefixes_free(struct orset *, struct prefixes *);

struct scan {
    struct orset *os;
    const struct prefixes *p;
    unsigned split;
    uint64_t *sums;
    size_t k;   /* ranges to give */
    uint64_t n; /* messages given */
    struct orset_buf *out;
};

/* The row's message, in m[0]; the index of its range. */
int orset_scan_row(struct scan *, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen,
                   size_t *range, uint32_t *place);
/* All messages of the folder. */
int orset_scan(struct orset *, uint32_t folder, orset_row_fn *, struct scan *);
/* 8 bytes of sum for each of n << split ranges below p. */
int orset_range_sums(struct orset *, uint32_t folder, const struct prefixes *p, unsigned split,
                     uint64_t *sums);

/* --- merge.c */
bool orset_gone(const struct orset_exchange *, const struct peer *now,
                struct orset_dot); /* removed at the giver */
/* The same for a flag on a message that the giver does not have: remembered there, it is not
 * gone. */
bool orset_orphan_gone(const struct orset_exchange *, struct orset_dot flag);
int orset_wanted(struct orset *, struct orset_dot); /* 1: the dot is new here and wanted */
int orset_remember(struct orset *, struct orset_dot, uint16_t by);
int orset_read_stamp(struct orset *, struct orset_reader *, struct stamp *);
int orset_merge_hello_rows(struct orset *, struct orset_exchange *, struct op_run *);
int orset_merge_head(struct orset *, struct orset_exchange *, struct peer *, struct op_run *,
                     struct folder **f);
int orset_merge_messages(struct orset *, struct orset_exchange *, struct peer *, struct op_run *,
                         struct folder *, const struct prefixes *);
int orset_merge_absent(struct orset *, struct orset_exchange *, struct peer *, struct folder *);

/* --- merge_metadata.c, answer_metadata.c */
int orset_merge_named(struct orset *, struct orset_exchange *, struct peer *, struct op_run *,
                      bool *end);
int orset_write_named(struct orset *, struct orset_reader *question, struct orset_buf *);

/* --- exchange.c */
int orset_raise(struct orset *, struct orset_exchange *);

#endif
