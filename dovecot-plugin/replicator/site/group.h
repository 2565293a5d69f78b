/* group - the replicas, as dovelane.conf has them, and the lanes between them. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_GROUP_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_GROUP_H

#include "lib/config/config.h"
#include "dovecot-plugin/protocol/frame.h"

enum { LANE_LIVE, LANE_BULK, LANES };

struct peer {
    uint64_t site;
    const char *name;        /* of the replica */
    struct config_link link; /* to its Redis */
    const char *node;        /* what that one calls itself */
    char *out[LANES];        /* lanes from here to it, on the own node */
    char *in[LANES];         /* lanes from it to here, on its node */
    bool on_demand;          /* its role: it may have only headers of large mails */
    bool removed;            /* for ever: nothing is kept for it, nothing taken from it */
};

struct group {
    uint64_t self;
    const char *name, *node;
    bool backup;             /* its role: clients use other sites */
    bool on_demand;          /* its role: large mails' texts are at other sites */
    struct config_link link; /* to the own Redis */
    uint8_t digest[16];
    char *made_of; /* what the digest is of, for the log: "ids 1, 2; namespaces inbox" */
    size_t nnamespaces;
    struct text ns[FRAME_NAMESPACES_MAX];
    size_t npeers; /* the others, ascending by site */
    struct peer peer[FRAME_SITES_MAX];
};

void group_init(struct group *, const struct config *, size_t self);
void group_free(struct group *);

/* Index of the peer with this site number, or -1. */
int group_peer(const struct group *, uint64_t site);

/* The group's digest as hex digits, for the log. */
#define DIGEST_HEX 33
void group_hex(const uint8_t digest[16], char hex[DIGEST_HEX]);

#endif
