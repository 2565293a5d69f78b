/* lane_scan - goes once through the lanes of a server, and through the ids in those that are
 * wanted (LANE.LIST, LANE.IDS). */
#ifndef DOVELANE_RELAY_REPAIR_LANE_SCAN_H
#define DOVELANE_RELAY_REPAIR_LANE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/mail/entryid.h"
#include "lib/mail/lanename.h"
#include "lib/redis/wire.h"

struct lane_scan;

struct scanned_entry {
    unsigned char id[ENTRYID_LEN];
    uint64_t sequence;
    uint32_t revision, age; /* age: milliseconds that it has been on that server */
};

struct lane_scan_calls {
    /* A lane of ours that holds something. NULL: its ids are not wanted; else it is given to
     * `ids`. */
    void *(*lane)(const char *name, size_t len, const struct lanename *, void *arg);
    /* Some entries of it, in the order of their sequences; further ones follow in further calls. */
    void (*ids)(void *lane, const struct scanned_entry *, size_t n, void *arg);
    /* All was listed; or why not: a text that is the caller's for this call. The scan is freed
     * afterwards. */
    void (*done)(const char *trouble, void *arg);
};

/* NULL when the connection is not up. */
struct lane_scan *lane_scan_open(struct wire *, const struct lane_scan_calls *, void *arg);

/* Ends it before its time; nothing is called any more. */
void lane_scan_close(struct lane_scan *);

#endif
