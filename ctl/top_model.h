/* top_model - what `dovelane top` knows: the last word of each server, and what follows from two
 * words in a row. It asks nobody and draws nothing (top_reader.c, top_screen.c).
 *
 * Times are seconds of one monotonic clock; ages are what a server said, and grow by themselves. */
#ifndef DOVELANE_CTL_TOP_MODEL_H
#define DOVELANE_CTL_TOP_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cluster/liveness.h"
#include "lib/config/config.h"

#define TOP_FRESH 3. /* seconds for which a server's word counts */

struct top;

/* What a server says of itself. */
struct top_server {
    long long entries, bytes, used, most; /* most = 0: no bound */
};

/* What it says of a lane. age: of its oldest entry, in seconds; negative: not known. next: its next
 * sequence, which counts what was ever stored. It is negative when not known. */
struct top_lane {
    const char *name;
    long long length, bytes, next;
    double age;
};

/* One for each node of the configuration, and then for each replica whose server is no node. */
struct top *top_new(const struct config *);
void top_free(struct top *);

size_t top_servers(const struct top *);
/* The link to it, with texts of the configuration. */
struct config_link top_server_link(const struct top *, size_t server);

/* ---- words ---- */

/* why: not reached any more, or not yet; NULL: reached. */
void top_reached(struct top *, size_t server, const char *why);
void top_said(struct top *, size_t server, const struct top_server *, double now);
/* For how many sets of owners it is whole. */
void top_whole(struct top *, size_t server, size_t sets);
/* All beats that lie in that server (liveness_update()). */
void top_beats(struct top *, size_t server, const struct liveness_news *, size_t n, double now);
/* All lanes: begin, each, end. What does not come again is gone. */
void top_lanes_begin(struct top *, size_t server);
void top_lane(struct top *, size_t server, const struct top_lane *);
void top_lanes_end(struct top *, size_t server, double now);
/* More of a lane that it listed: age and next. */
void top_lane_detail(struct top *, size_t server, const struct top_lane *, double now);
/* Next hops that its relay cannot reach: begin, each. */
void top_away_begin(struct top *, size_t server);
void top_away(struct top *, size_t server, const char *destination, const char *why);

/* ---- what follows ---- */

enum top_sort { TOP_BY_DEPTH, TOP_BY_AGE, TOP_BY_RATE, TOP_BY_NAME };

/* One lane, whichever servers have it: what the one with most of it says. */
struct top_lane_view {
    const char *name;
    char *destination; /* "" when it is not named by our rule */
    char *class;       /* of its mail; NULL: none */
    long long length, bytes;
    double age;       /* negative: not known */
    double in, out;   /* per second; negative: not known */
    size_t copies;    /* servers that have it */
    bool of_replicas; /* from, to: replicas; bulk: large parcels */
    char *from, *to;
    bool bulk;
};

struct top_lanes_view {
    size_t n;
    struct top_lane_view *v;
};

/* Sorted; of mail, or of replicas. To be freed by top_lanes_free. */
struct top_lanes_view top_lanes(const struct top *, bool of_replicas, enum top_sort, double now);
void top_lanes_free(struct top_lanes_view *);

struct top_server_view {
    const char *name, *address;
    bool node;       /* of the configuration's nodes */
    bool fresh;      /* it answered within TOP_FRESH */
    const char *why; /* "" or why it cannot be reached */
    double silent;   /* seconds since its last answer; negative: never */
    struct top_server said;
    size_t whole, sets; /* of owners: it holds all of; a node belongs to */
    bool has_beat;
    double beat_age, delivered; /* per second; negative: not known */
    enum node_state state;
    unsigned long long done, in_flight;
};

struct top_server_view top_server(const struct top *, size_t server, double now);

/* Next hops: those in away, and those of lanes. To be freed by top_hops_free. */
struct top_hop_view {
    char *destination;
    long long length, bytes;
    double age, in, out;
    const char *error, *from; /* the node that says it; "" */
};
struct top_hops_view {
    size_t n;
    struct top_hop_view *v;
};
struct top_hops_view top_hops(const struct top *, enum top_sort, double now);
void top_hops_free(struct top_hops_view *);

#endif
