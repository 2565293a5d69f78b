/* config - dovelane.conf: one file for all programs and hosts, without secrets.
 *
 * Settings are declared once, in settings.def. Times are milliseconds, sizes are bytes. */
#ifndef DOVELANE_LIB_CONFIG_CONFIG_H
#define DOVELANE_LIB_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cluster/nearness.h"

struct config_list {
    size_t n;
    char **v;
};

struct config_node {
    char *name; /* [a-z0-9.-], unique, at most 64 */
#define NODE_TEXT(name, def, help) char *name;
#include "lib/config/settings.def"
    bool learned; /* it has no section: membership = learned */
    bool dropped; /* it is in dead because it was forgotten while it was in use */
};

#define CONFIG_NODES_MAX 256
#define CONFIG_REPLICAS_MAX 64

struct config_replica {
    char *name; /* as a node's */
#define REPLICA_TEXT(name, def, help) char *name;
#define REPLICA_INT(name, unit, least, most, help) int64_t name;
#include "lib/config/settings.def"
};

/* What is special about one next hop; "*" is for those without a section of their own. */
struct config_destination {
    char *name; /* as in divert: "lmtp:[10.0.0.5]:24" */
#define DESTINATION_WORD(name, def, words, help) int name;
#define DESTINATION_TEXT(name, def, help) char *name;
#define DESTINATION_LIST(name, words, help) struct config_list name;
#define DESTINATION_INT(name, unit, def, least, most, help) int64_t name;
#define DESTINATION_TIME(name, def, least, most, help) int64_t name;
#include "lib/config/settings.def"
};

/* A class of mail (docs/classes.md). */
#define CONFIG_CLASSES_MAX 8
struct config_class {
    char *name; /* lanename_class_ok, unique */
#define CLASS_LIST(name, help) struct config_list name;
#define CLASS_INT(name, unit, def, least, most, help) int64_t name;
#include "lib/config/settings.def"
};

struct config {
#define INT(name, unit, def, least, most, help) int64_t name;
#define TIME(name, def, least, most, help) int64_t name;
#define SIZE(name, def, least, most, help) int64_t name;
#define WORD(name, def, words, help) int name;
#define TEXT(name, def, help) char *name;
#define LIST(name, help) struct config_list name;
#include "lib/config/settings.def"
    /* the times that the file names, also where they equal their defaults */
    struct {
#define TIME(name, def, least, most, help) bool name;
#include "lib/config/settings.def"
    } says;
    size_t nnodes;
    struct config_node *node; /* in the file's order, then those that were learned, by name */
    /* nodes that were taken out, are not in the group now, and have no section */
    struct config_list forgotten;
    /* NULL, or what keeps a node that was heard of from being used, or the file of nodes from
     * being read */
    char *unlearned;
    bool unread; /* that */
    size_t nreplicas;
    struct config_replica *replica; /* the same */
    size_t ndestinations;
    struct config_destination *destination;
    struct config_destination other; /* "*", or the defaults */
    char *shapes;                    /* its sections `shape`: see config_shape_text */
    size_t nclasses;
    struct config_class *class; /* in the file's order */
};

enum { ON_STORE_FAILURE_QUEUE, ON_STORE_FAILURE_TEMPFAIL };
enum { LOG_PLACED_NO, LOG_PLACED_YES };
enum { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
enum { MILTER_ENGINE_OWN, MILTER_ENGINE_LIBMILTER };
enum { PLACEMENT_SPREAD, PLACEMENT_ORDERED };
enum { SPREAD_OVER_NODE, SPREAD_OVER_ZONE, SPREAD_OVER_SITE };
enum { PREFER_LISTED, PREFER_NEAR };
enum { TLS_NONE, TLS_MAY, TLS_ENCRYPT, TLS_VERIFY, TLS_POSTFIX };
enum { TRUST_NONE, TRUST_XFORWARD, TRUST_XCLIENT, TRUST_POSTFIX };
enum { TAKEOVER_MANUAL, TAKEOVER_AUTOMATIC };
enum { MEMBERSHIP_FILE, MEMBERSHIP_LEARNED };
enum { UNTIL_DELIVERED, UNTIL_REPLICATED };
enum { AWAY_KEEP, AWAY_LET_GO };
enum { WITHOUT_8BITMIME_CONVERT, WITHOUT_8BITMIME_SEND };

/* Reads and checks the file. Returns NULL and sets *error_r to a malloc'd text ("file:line:
 * what, and what would do") that the caller frees. The caller frees the result with config_free. */
struct config *config_read(const char *path, char **error_r);
void config_free(struct config *);

/* Index of the node or replica, or -1. */
int config_node_index(const struct config *, const char *name);
int config_replica_index(const struct config *, const char *name);
/* role = backup */
bool config_is_backup(const struct config_replica *);
/* role = on-demand */
bool config_is_on_demand(const struct config_replica *);
bool config_list_has(const struct config_list *, const char *text);

/* Whether mail of some destination is retained until it is replicated. */
bool config_any_replicated(const struct config *);
/* The replica whose Dovecot is there, by its lmtp; -1: no replica's. */
struct nexthop;
int config_replica_at(const struct config *, const struct nexthop *);

/* membership = learned: what this program's file of nodes (members.h) has beyond the sections.
 * In a config that is in use nodes are added behind the others, and those that are forgotten
 * keep their place and are in dead. False: nothing has changed. */
bool config_learn(struct config *);

/* For a program that goes on with its nodes' indexes. The nodes of `before` come first in config,
 * in their order, and new ones behind them. A forgotten one that was there stays, and is in
 * config->dead. False, and nothing is changed: another one is missing. */
bool config_keep_nodes(struct config *, const struct config *before);

/* How many sets of `copies` owners each node belongs to; 0 without nodes. */
size_t config_sets(const struct config *);

/* The section of a destination ("lmtp:[10.0.0.5]:24"), or the one for all others. The config's;
 * never NULL. */
const struct config_destination *config_destination(const struct config *, const char *name);
/* True when that setting of a section ("tls") is other than its default. False for "". */
bool config_destination_says(const struct config_destination *, const char *setting);

/* The sections `shape` as the lines that shapes_new (lib/shape/shape.h) reads; "" without.
 * malloc'd. */
char *config_shape_text(const struct config *);
/* The section of a class; NULL: there is none. The config's. */
const struct config_class *config_class(const struct config *, const char *name);

/* The choices of a class's `match`: each as lines for match_parse (lib/mail/match.h). NULL behind
 * the last one (from 0); malloc'd. */
char *config_class_choice(const struct config_class *, size_t n);

/* How the copies of a mail are placed. */
struct config_placement {
    int over;     /* SPREAD_OVER_NODE... */
    size_t least; /* different domains of that kind */
    bool near;    /* prefer = near */
    /* until = replicated, replicated_away = keep: not where as much is retained as may be */
    bool kept;
    /* Where its next hop is; "": that is not known. Of the destination's section. */
    const char *site, *zone;
};
/* What a destination's section and the general settings say together. */
struct config_placement config_placement(const struct config *, const struct config_destination *);
/* Makes it as strict as the other one is, too. */
void config_placement_meet(struct config_placement *, const struct config_placement *other);
/* The domain of a node: equal numbers for nodes that may be lost together. Nodes that say nothing
 * of theirs are all in one. */
size_t config_domain(const struct config *, size_t node, int over);
/* How far a node is from that place, by the labels: 0 in its zone, 1 in its site, 2 elsewhere or
 * not known. */
int config_labels_apart(const struct config *, size_t node, const char *site, const char *zone);
/* Whether any node has the labels of that destination's next hop, or it has none. */
bool config_hop_labels_fit(const struct config *, const struct config_destination *);
/* Its name for people: "mx1", "fra", "fra/rack-2", "?"; malloc'd. */
char *config_domain_name(const struct config *, size_t node, int over);

/* The times that follow the round-trip time to a node, where the file does not name them
 * (docs/placement.md, "Times of far nodes"). The setting is the least. */
enum config_far { FAR_PATH_TIMEOUT, FAR_SUSPECT_AFTER, FAR_STORE_DEADLINE };
struct far_time config_far_time(const struct config *, enum config_far);
/* Its setting's name. */
const char *config_far_name(enum config_far);
/* Copies that are older than `settle` are compared between nodes, and one that another owner lacks
 * is dropped. A promise given later than that would be worth nothing. So a mail's 250 comes within
 * this time of its begin (docs/takeover/times.md, "Times"). ms */
int64_t config_promise(const struct config *, size_t bytes);
/* Acks count within that time, which leaves some to revoke what failed. far: what the way to its
 * owners wants, of FAR_STORE_DEADLINE. Seconds. */
double config_acked(const struct config *, size_t bytes, double far);

/* Sixteen hex digits that are equal where the settings are equal that all hosts must share. These
 * are the nodes, what a 250 means, what is diverted and how it is delivered, and who is dead. What
 * may differ (sockets, ports, logs) is not in it. */
#define CONFIG_DIGEST 17
void config_digest(const struct config *, char out[CONFIG_DIGEST]);

/* How the Redis of a node or a replica is reached. The texts are the config's; NULL or "": not
 * set. */
struct config_link {
    const char *address, *standby; /* as in config_address, checked */
    bool tls;                      /* not over UNIX sockets */
    const char *tls_name, *ca_file, *cert_file, *key_file;
    const char *user_file; /* with its %p or %r */
    /* the replica whose node it is, for a user of each replica and node; NULL: one user for all */
    const char *at;
    struct far_time path_timeout; /* {0}: 0.4 s, however far it is */
};
struct config_link config_node_link(const struct config *, size_t node);
struct config_link config_replica_link(const struct config *, size_t replica);

/* A node that joins, and is not in the config. Fills in the link to its server, whose texts are the
 * member's and the config's. Or returns why it cannot be in the group, malloc'd. Or malloc'd, why
 * it cannot be one of the group. */
struct member;
char *config_newcomer(struct config *, const struct member *, struct config_link *);

/* The node is reached as the member says: redis, standby, tls and tls_name are the same. */
bool config_node_is(const struct config_node *, const struct member *);

/* Equal for links that are, to be freed. */
char *config_link_text(const struct config_link *);

/* Whether only this host can be at the other end: 127.0.0.0/8, ::1, localhost, a UNIX socket. */
bool config_loopback(const char *address);

/* Where a UNIX socket that Postfix calls name is for us (socket_at); NULL: not said. The
 * config's. */
const char *config_socket_at(const struct config *, const char *name);

/* A node's or next hop's address: "host:port", "[v6]:port" or "unix:/path". Points host and port
 * into buf (at least strlen + 1 bytes). Returns -1 when it is not one of these. For unix,
 * *port_r is NULL and *host_r the path. */
int config_address(const char *address, char *buf, size_t size, const char **host_r,
                   const char **port_r);

#endif
