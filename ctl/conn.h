/* conn - a synchronous connection to a node's Redis, over the same paths as the programs'
 * (lib/redis/path.h: TLS, the user of node_user_file). A command of an admin waits for one answer
 * at a time. A node that does not answer in time is given up for the rest of the command, which
 * says so. */
#ifndef DOVELANE_CTL_CONN_H
#define DOVELANE_CTL_CONN_H

#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

#include "lib/config/config.h"

struct conn {
    const char *name, *address; /* the config's; address: the one in use, or the active one */
    struct link *link;          /* NULL: not connected */
    char trouble[1200];         /* why not */
    /* active, standby: why not over that one; "" when it was not tried, or answered */
    char path_trouble[2][400];
    long long used, most; /* bytes of memory, most = 0: no bound; from the first answer */
};

/* Connects (again), over its active address or else its standby, and looks whether the server is
 * the node that it should be. */
bool conn_open(struct conn *, const struct config *, size_t node);

/* The same for the node of a replica, as the admin's command. */
bool conn_open_replica(struct conn *, const struct config *, size_t replica);

/* Whether the node answers at one address (0 active, 1 standby), without using it; path_trouble
 * says why not. CONN_WRONG: a server does, but it is another node's, or refuses us. */
enum conn_found { CONN_RIGHT, CONN_SILENT, CONN_WRONG };
enum conn_found conn_try(struct conn *, const struct config *, size_t node, size_t which);

bool conn_up(const struct conn *);

/* When the certificate that it showed ends, or the one that we show (own), in seconds since
 * 1970; 0: there is none. */
int64_t conn_until(const struct conn *, bool own);
void conn_close(struct conn *);

/* NULL when the node did not answer (it is closed then) or answered with an error (trouble says
 * which; the connection stays). The caller frees the reply. */
redisReply *conn_call(struct conn *, const char *format, ...);
redisReply *conn_call_words(struct conn *, int n, const char **word, const size_t *len);

/* Whether it is a list of (at least) such elements, a letter each: s text, i number, l list,
 * ? anything. What a node answers is no better than the node. */
bool conn_shaped(const redisReply *, const char *shape);

/* A field of a flat list of names and values, NULL when there is none. */
const redisReply *conn_field(const redisReply *list, const char *name);
long long conn_number(const redisReply *list, const char *name); /* -1: none */
const char *conn_text(const redisReply *list, const char *name); /* "": none */

#endif
