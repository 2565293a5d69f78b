/* queue - the mails in all lanes of all nodes that answer, as one list. A mail for one destination
 * is one item, however many nodes hold a copy of it. Nothing is leased for it. */
#ifndef DOVELANE_CTL_QUEUE_H
#define DOVELANE_CTL_QUEUE_H

#include <stdint.h>

#include "ctl/ctl.h"
#include "lib/mail/entryid.h"
#include "lib/mail/envelope.h"
#include "lib/mail/lanename.h"
#include "lib/base/mem.h"

enum copy_state { COPY_WAITING, COPY_DELAYED, COPY_LEASED };

struct copy {
    struct conn *conn;
    uint32_t revision;
    enum copy_state state;
};

struct item {
    char *lane; /* the key */
    size_t lane_len;
    struct lanename name; /* nowners = 0: not named by our rule */
    unsigned char id[ENTRYID_LEN];
    struct envelope envelope; /* of the copy with the highest revision */
    const char *wrong;        /* why it cannot be read, or NULL */
    uint32_t revision;
    long long age; /* milliseconds, of the copy that was stored first */
    char *away;    /* why its next hop cannot be reached, or NULL */
    size_t ncopies;
    struct copy copy[LANENAME_OWNERS_MAX];
};

struct queue {
    size_t n, size;
    struct item *item;
};

/* Reads everything, oldest arrival first. A node that fails meanwhile is closed, and status is
 * 1. */
void queue_load(struct ctl *, struct queue *);
void queue_free(struct queue *);
void item_free(struct item *); /* what is in it */

/* What queue_stream.c shares with that. An entry as LANE.READ and LANE.GET tell of it, and whether
 * it is one of ours. */
bool queue_well_formed(const redisReply *entry);
void queue_take_in(struct item *, struct conn *, const redisReply *entry);
void queue_start_item(struct item *, const char *lane, size_t len, const unsigned char *id);

/* Reads one item's copies again, for the present revisions and meta. False when no node that
 * answers holds it any more. */
bool queue_reload(struct ctl *, struct item *);

/* The body of an item from any copy, appended. False when there is none any more. */
bool queue_body(struct item *, struct buf *out);

/* Postfix's id, or the entry's own in hex where there is none. */
const char *item_queue_id(const struct item *, char hex[ENTRYID_HEX]);

/* "incoming", "active", "deferred" or "hold", as Postfix's queues are called; "retained": it is
 * delivered, and kept until enough sites have it on disk. */
const char *item_queue_name(const struct item *);

/* Not delivered, and not handed to Postfix. */
bool recipient_open(const struct recipient *);

/* Why it was not delivered yet, as Postfix words it (without the status code in front); "" when
 * nothing is known. */
const char *recipient_error(const struct item *, const struct recipient *);

#endif
