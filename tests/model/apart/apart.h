/* apart - a group of nodes in many regions, in simulated time: what its parts share.
 *
 * The rules are the project's own: who is alive (lib/cluster/liveness.c), who takes over
 * (relay/cluster/takeover_rules.c), which nodes own a mail (lib/cluster/placement.c, nearness.c).
 * Network, clock, mail and next hops are simulated, in steps of STEP. Mail comes in batches: what
 * one gateway gets in one step. One world for the whole program. */
#ifndef DOVELANE_TESTS_MODEL_APART_APART_H
#define DOVELANE_TESTS_MODEL_APART_APART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cluster/liveness.h"
#include "lib/cluster/placement.h"
#include "relay/cluster/takeover_rules.h"

#define STEP 0.05 /* seconds */
#define NODES_MOST 128
#define REGIONS 12
#define COPIES 2

struct plan {
    size_t nodes, regions;
    bool spread;        /* copies in as many regions as there can be */
    size_t least;       /* and in no fewer */
    bool near;          /* prefer = near */
    bool outside;       /* one gateway that reaches all nodes, and is lost with none */
    double offered;     /* mails a second, of all gateways together */
    double size;        /* bytes of a mail */
    double in_lane;     /* seconds that a mail waits in its lane */
    double capacity;    /* mails a second that one node delivers */
    double seconds;     /* from the time that all nodes are alive */
    double lose_at;     /* the first region is lost for ever; 0: never */
    double cut_at, cut; /* it is cut off, and for so long */
};

struct figures {
    double offered, stored, queued, lost, twice; /* mails; queued: in Postfix's queue instead */
    double delivered;
    double latency50, latency99; /* seconds from a mail to its 250 */
    double balance;              /* most copies of others on one node, against the mean */
    double bytes;                /* between nodes, of a mail */
    double beat_bytes;           /* of a node, a second, both ways */
    double recovery;             /* seconds until the last mail of a dead node's was delivered */
    double found_dead;           /* seconds until the first node took a lost one over */
};

/* ---- apart_world.c: nodes, distances, beats, roles ---- */

struct copy; /* apart_mail.c */

struct node {
    size_t region;
    bool up;
    struct liveness *heard;
    struct role *role;
    double next_beat;
    uint64_t counter;
    bool called_dead[NODES_MOST], busy[NODES_MOST];
    /* its server's latest beat of each node, as a number of that node's beats; 0: none */
    uint64_t latest[NODES_MOST];
    struct copy *copies;
    size_t ncopies, room;
    double tokens;         /* mails that it may deliver in this step */
    double held_of_others; /* mails that it was given as another's copy */
};

struct world {
    struct plan plan;
    struct figures figures;
    double now;
    bool parted; /* the first region is */
    struct node node[NODES_MOST];
    struct liveness *outside; /* what the gateway outside hears */
    double outside_listens;   /* when, next */
};
extern struct world w;

void world_begin(const struct plan *);
void world_end(void);
void world_step(void);  /* beats and roles */
bool world_alive(void); /* all nodes are, and hear each other so */
double world_rtt(size_t from, size_t to);
int world_distance(size_t from, size_t to); /* class of nearness */
bool world_reaches(size_t from, size_t to);
bool world_in_first_region(size_t node);

/* ---- apart_mail.c ---- */

void mail_begin(void);
void mail_end(void);
void mail_step(void); /* places, delivers, acknowledges */
void mail_lose(size_t node);
double mail_waiting(void); /* mails in lanes */

#endif
