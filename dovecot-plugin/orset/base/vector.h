/* vector - the version vector on the wire, as batches and the exchange carry it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_VECTOR_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_VECTOR_H

#include "dovecot-plugin/orset/base/handle.h"

/* Who sent it, and what it has. */
struct peer {
    uint16_t n, sender, sender_at; /* sender: our index; sender_at: the sender's */
    uint16_t *map;                 /* the sender's origin indices to ours */
    uint64_t *seen, *chain;        /* its vector */
    bool covers;                   /* of an exchange: what it covers and has not was removed */
};

void orset_vector_write(const struct orset *, struct orset_buf *);
void orset_peer_free(struct orset *, struct peer *);
uint64_t orset_peer_has(const struct peer *, uint16_t origin); /* number in the sender's vector */

#endif
