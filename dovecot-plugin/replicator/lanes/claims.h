/* claims - one host runs under one replica's name: two under one would take from each other what
 * the other sites sent.
 *
 * Each replicator writes itself into a key of its own node and of each peer's, for CLAIM_LASTS,
 * again and again (lib/redis/control_keys.h). Where it finds another one, it takes and sends
 * nothing at any node, and leaves a mark there, by which that one hears of it. It goes on when the
 * other was not seen for CLAIM_AWAY. What came before on this machine and has ended is no other.
 *
 * A node that refuses the key (its ACL is of an older version, its memory is full) says nothing
 * against anybody. There the replicator works as if it were alone, and the log says so. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_CLAIMS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_CLAIMS_H

#include "dovecot-plugin/replicator/replicator.h"

struct node;

/* node: a peer's index, or CLAIM_OWN. */
#define CLAIM_OWN FRAME_SITES_MAX

struct claims_calls {
    /* That node has answered, and it may be used; or all may again. */
    void (*may)(struct replicator *, size_t node);
};

struct claims *claims_open(struct replicator *, uint64_t instance, const struct claims_calls *);
void claims_close(struct claims *);
/* Gives all up. */
void claims_stop(struct claims *);

/* The connection over which that node is asked came, or went (node NULL). */
void claims_node(struct claims *, size_t which, struct node *node);

/* Nobody else was found, and this node has been asked. */
bool claims_may(const struct claims *, size_t which);
bool claims_refused(const struct claims *);
/* What is to be told of another host; NULL: there is none. Good until the next call. */
const char *claims_trouble(struct claims *);

#endif
