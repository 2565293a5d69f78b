/* config - dovelane.conf: one file for all programs and hosts, without secrets.
 *
 * Settings are declared once, in settings.def. Times are milliseconds, sizes are bytes. */
#ifndef DOVELANE_CONFIG_H
#define DOVELANE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_list {
    size_t n;
    char **v;
};

struct config_node {
    char *name; /* [a-z0-9.-], unique, at most 64 */
#define NODE_TEXT(name, def, help) char *name;
#include "settings.def"
};

struct config {
#define INT(name, unit, def, least, most, help) int64_t name;
#define TIME(name, def, least, most, help) int64_t name;
#define SIZE(name, def, least, most, help) int64_t name;
#define WORD(name, def, words, help) int name;
#define TEXT(name, def, help) char *name;
#define LIST(name, help) struct config_list name;
#include "settings.def"
    size_t nnodes;
    struct config_node *node; /* in the file's order */
};

enum { ON_STORE_FAILURE_QUEUE, ON_STORE_FAILURE_TEMPFAIL };

/* Reads and checks the file. Returns NULL and sets *error_r to a malloc'd text ("file:line: what, and what would do") that the
 * caller frees. The caller frees the result with config_free. */
struct config *config_read(const char *path, char **error_r);
void config_free(struct config *);

/* Index of the node, or -1. */
int config_node_index(const struct config *, const char *name);
bool config_list_has(const struct config_list *, const char *text);

/* A node's or next hop's address: "host:port", "[v6]:port" or "unix:/path". Points host and port into buf (at least strlen + 1
 * bytes). Returns -1 when it is not one of these. For unix, *port_r is NULL and *host_r the path. */
int config_address(const char *address, char *buf, size_t size, const char **host_r, const char **port_r);

#endif
