/* members - the nodes of a group that are in no file of this host. It has what nodes say of
 * themselves, and which nodes were taken out for good (docs/takeover/membership.md, "Membership").
 *
 * A table has one record per name. Each relay writes its own node's; `dovelane nodes --forget` and
 * `--join` write one in another's name. Of two records of one name the one of the higher epoch
 * counts. The epoch says how often the node was taken in again after it was taken out. Of one epoch
 * the higher serial counts. So tables can be united in any order. They are kept in every node's
 * Redis (CONTROL_NODES) and in a file of each program that uses them. As text, a line per record;
 * "/<epoch>" follows the serial, but for the first, 0:
 *
 *     <serial> node <name> <redis> <standby or -> <tls or -> <tls_name or -> [<site> <zone>]
 *     <serial> joining <name> <redis> <standby or -> <tls or -> <tls_name or -> [<site> <zone>]
 *     <serial> gone <name>
 *
 * Site and zone are left out when neither is set: older programs pass over a record that has them.
 * A node that is joining is not in the group until it says "node". So its record counts less than
 * any other record of its name and epoch, whatever the serials. */
#ifndef DOVELANE_LIB_CLUSTER_MEMBERS_H
#define DOVELANE_LIB_CLUSTER_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"

#define MEMBERS_MOST 256 /* records; what comes beyond is passed over */
/* bytes of a text that is read, and of a table: what would make it longer is not taken */
#define MEMBERS_TEXT_MOST 65536
#define MEMBERS_WORD_MOST 255 /* bytes of an address or a TLS name */
#define MEMBERS_SERIAL_MOST (1ull << 53)
#define MEMBERS_EPOCH_MOST 1000000ull

/* In the order of a record. */
/* clang-format off */
#define MEMBER_TEXTS \
    MEMBER_TEXT(redis) MEMBER_TEXT(standby) MEMBER_TEXT(tls) MEMBER_TEXT(tls_name) \
    MEMBER_TEXT(site) MEMBER_TEXT(zone)
/* clang-format on */

struct member {
    /* milliseconds since 1970 when it was said, or one more than the one before */
    unsigned long long serial;
    bool gone; /* taken out for good: the texts are "" */
    /* as in a node section of dovelane.conf; "": not set */
    char *name;
#define MEMBER_TEXT(text) char *text;
    MEMBER_TEXTS
#undef MEMBER_TEXT
    bool joining;             /* others are to reach it first; they know it by this alone */
    unsigned long long epoch; /* how often it was taken in again */
};

/* It was taken out, and is not in the group: gone, or joining again. */
bool member_out(const struct member *);

/* By name. {0} is an empty one. */
struct members {
    size_t n;
    struct member *v;
};

void members_free(struct members *);
const struct member *members_find(const struct members *, const char *name); /* NULL: none */

/* Takes a record over (copied) when it counts more than what is there, and is within the bounds.
 * True when it does, and the table has changed. */
bool members_say(struct members *, const struct member *);

/* The same for each record of a text. What is not understood is passed over. */
bool members_read(struct members *, const char *text);

void members_write(const struct members *, struct buf *out);

/* A serial that counts more than what is here of that name. */
unsigned long long members_serial(const struct members *, const char *name);

/* The file of a program ("dovelane-relay"), malloc'd. */
char *members_file(const char *state_directory, const char *program);

/* Unites the table with a file; a file that is missing has nothing in it. Returns -1 with errno
 * when the file cannot be read, or is longer than a text may be (EFBIG). Then it is not known who
 * was learned of and who was taken out, and the table is as it was. */
int members_load(struct members *, const char *file);

/* Unites the table with the file, and replaces that; it is on the disk then. Returns -1 with errno;
 * a file that cannot be read is not replaced. */
int members_save(struct members *, const char *file);

#endif
