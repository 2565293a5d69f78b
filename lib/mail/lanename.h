/* lanename - a lane's name says who owns it (docs/design.md, "Mail in" 1):
 *
 *   dovelane:<transport>:<next hop>|<owner>><owner>...[|<origin>.<generation>][|+<class>]
 *
 * An origin makes it an ordered lane: of one origin's mail to one destination, what has a
 * lower generation goes first (docs/takeover/order.md, "Order"). The class says how its mail shares the
 * next hop with other mail (docs/classes.md); an ordered lane has none, but its name may. Bytes
 * outside [!-~] and '%', '|', '>' inside a part are percent-encoded. */
#ifndef DOVELANE_LIB_MAIL_LANENAME_H
#define DOVELANE_LIB_MAIL_LANENAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANENAME_PREFIX "dovelane:"
#define LANENAME_REPLICA \
    LANENAME_PREFIX      \
    "replica:" /* between Dovecot replicas, which may use a node's server: no mail of ours */
#define LANENAME_OWNERS_MAX 8
#define LANENAME_CLASS_MAX 15 /* bytes of a class's name */

struct lanename {
    char *destination; /* "lmtp:[10.0.0.5]:24", decoded */
    size_t nowners;
    char *owner[LANENAME_OWNERS_MAX];
    char *origin;        /* "mx1" for ordered lanes, else NULL */
    uint64_t generation; /* of that origin, from 1; 0: not an ordered lane */
    char *class;         /* "bulk"; NULL: none */
};

/* A malloc'd name; with origin NULL, or generation 0, of a lane that is not ordered. class: NULL,
 * or one that lanename_class_ok. */
char *lanename_make(const char *destination, const char *const *owner, size_t nowners,
                    const char *origin, uint64_t generation, const char *class);

/* Whether a class may have that name: 1 to LANENAME_CLASS_MAX of a-z 0-9 -. */
bool lanename_class_ok(const char *class);

/* Whether both are ordered lanes of one origin and destination. */
bool lanename_same_series(const struct lanename *, const struct lanename *);

bool lanename_of_replicas(const char *name);

/* Returns false when it is not the name of a lane of ours; nothing is left to free then. */
bool lanename_parse(const char *name, size_t len, struct lanename *out);
void lanename_free(struct lanename *);

#endif
