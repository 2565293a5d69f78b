/* facts - what a site says of itself to the others: the settings that must be alike, or nearly.
 *
 * `dovelane check replicas` writes those of its own site into each node that answers, and reads
 * there those of the others (lib/redis/control_keys.h). They are as old as that site's last
 * check. */
#ifndef DOVELANE_CTL_FACTS_H
#define DOVELANE_CTL_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/conn.h"

enum fact {
    FACT_TIME, /* seconds since 1970 */
    FACT_HOST,
    FACT_VERSION, /* of Dovelane */
    FACT_GROUP,   /* ids and namespaces: the same, or they do not listen to each other */
    FACT_SEPARATORS,
    FACT_PREFIXES,
    FACT_FORMATS, /* driver and layout of each namespace */
    FACT_ACL,     /* "yes": the workers load it */
    FACTS
};

struct facts {
    char text[FACTS][512];
};

/* Of a site; the newer one of *facts and what that node has. False: *facts stays. */
bool facts_read(struct conn *, const char *site, struct facts *);
/* False: the node does not take it (conn's trouble says why). */
bool facts_write(struct conn *, const char *site, const struct facts *);

int64_t facts_time(const struct facts *);

#endif
