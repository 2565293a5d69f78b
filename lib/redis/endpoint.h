/* endpoint - what one Redis server is to us: its addresses, what TLS must show there, and as whom
 * we come.
 *
 *   endpoint_new(config_link) ── endpoint ── path_open(endpoint, 0 | 1)   path.h: one connection
 *
 * The user's file is read at each connection, and so are the files of TLS after a failed handshake.
 * A new password or certificate needs no restart. Not thread-safe. */
#ifndef DOVELANE_LIB_REDIS_ENDPOINT_H
#define DOVELANE_LIB_REDIS_ENDPOINT_H

#include "lib/base/tls.h"
#include "lib/cluster/nearness.h"
#include "lib/config/config.h"

struct endpoint;

struct endpoint_user {
    char name[256], password[512];
};

/* Which replica this is, %r in replica_user_file; %p in node_user_file is program_name(). Once, at
 * the start of main; the text must stay. Without it no link to a replica's node has a user of its
 * own. */
void endpoint_replica(const char *name);

/* Copies the link. Never NULL. */
struct endpoint *endpoint_new(const struct config_link *);
void endpoint_free(struct endpoint *);

size_t endpoint_addresses(const struct endpoint *);              /* 1, or 2 with a standby */
const char *endpoint_address(const struct endpoint *, size_t i); /* 0: the active one */
/* Seconds, for an address so far away. */
double endpoint_path_timeout(const struct endpoint *, const struct nearness *);

/* The TLS side of an address; NULL without *error_r when it is plain, with *error_r (malloc'd)
 * when a file cannot be used. The endpoint's. */
struct tls_peer *endpoint_tls(struct endpoint *, size_t i, char **error_r);
void endpoint_forget_tls(struct endpoint *, size_t i);

/* 1: the user is in *out. 0: there is none to be named. -1: *error_r (malloc'd) names the file
 * and what to do. */
int endpoint_user(const struct endpoint *, struct endpoint_user *out, char **error_r);
/* The file's name, "" when there is none. */
const char *endpoint_user_file(const struct endpoint *);

/* Reads such a file: one line, a name and a password, readable for nobody but its owner and
 * group. As endpoint_user. */
int endpoint_read_user(const char *file, struct endpoint_user *out, char **error_r);

/* The same for a file of replica_user_file. */
int endpoint_read_replica(const char *file, struct endpoint_user *out, char **error_r);

/* The same for metrics_user_file: the one who may ask, not whom we are. */
int endpoint_read_metrics_user(const char *file, struct endpoint_user *out, char **error_r);

/* What a replica's file says becomes its user at one node: NAME@NODE, whose password is made
 * from the file's. False: the name is too long. */
bool endpoint_user_at(struct endpoint_user *, const char *node);

/* node_user_file for a program, or replica_user_file for a replica, malloc'd. */
char *endpoint_file_of(const char *template, const char *program);
char *endpoint_file_of_replica(const char *template, const char *replica);

/* Opens all files that the links of a config to its nodes name, or to its replicas' nodes: NULL,
 * or what is wrong (malloc'd). */
char *endpoint_check(const struct config *);
char *endpoint_check_replicas(const struct config *);

#endif
