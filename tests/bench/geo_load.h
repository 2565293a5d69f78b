/* geo_load - what its parts share: gateways, their links, and the messages on their way. One of
 * each for the whole program. */
#ifndef DOVELANE_TESTS_BENCH_GEO_LOAD_H
#define DOVELANE_TESTS_BENCH_GEO_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ev.h>

#define NODES_MOST 128
#define COPIES_MOST 4

enum until {
    UNTIL_STORED,  /* a client goes on when all owners have its message */
    UNTIL_REMOVED, /* when all owners have it, and have removed it again */
    UNTIL_BOTH     /* the same, but the message is taken only when all owners have it */
};

struct geo_options {
    size_t nodes, clients, size, copies, least;
    const char *unix_path[NODES_MOST];
    int port[NODES_MOST];
    double rtt[NODES_MOST][NODES_MOST]; /* seconds */
    size_t domain[NODES_MOST];
    bool near;
    enum until until;
    double seconds, warm;
};
extern struct geo_options o;

/* A way of a gateway to an owner: requests go late by half the round trip, and so do answers. */
struct way {
    size_t node;
    struct wire *store, *relay; /* the milter's connection, and the relay's */
    struct delay_line *there, *back;
};

struct message {
    struct gateway *gateway;
    size_t client;
    double began;
    unsigned stores, acks; /* owners that did not answer yet */
    uint64_t serial;
};

struct gateway {
    size_t node, nways;
    struct way way[COPIES_MOST]; /* its own node first */
    char lane[256];
    struct message **fresh; /* gathered in this turn of the loop */
    size_t nfresh;
    size_t takeable;
    bool taking;
};
extern struct gateway *gateways;
extern struct ev_loop *loop;

__attribute__((format(printf, 1, 2), noreturn)) void geo_fail(const char *format, ...);

/* geo_owners.c: which nodes own the messages of a gateway, by the project's own rules. */
void geo_owners(size_t gateway, size_t owner[COPIES_MOST]);

/* geo_entries.c: stores what a gateway has gathered; takes and removes it. */
void geo_store(struct gateway *);

/* geo_load.c: the message is at all its owners; and gone from all of them. */
void geo_stored(struct message *);
void geo_removed(struct message *);
struct message *geo_message(uint64_t slot, uint64_t serial);
uint64_t geo_slot(const struct message *);

#endif
