/* receipt - how much is accepted for a next hop: accept_entries, accept_age and over of its shape
 * (lib/shape/shape.h, docs/receipt.md). The milter and the proxy ask at the end of each message
 * that is about to go to lanes.
 *
 * A limit whose rule names a class counts that class's entries; one whose rule names none counts
 * all entries of the next hop. Once over a limit, mail is accepted again below 90 % of it. When no
 * node says how much waits, no limit holds: mail is never refused because of our own trouble. */
#ifndef DOVELANE_LIB_INGRESS_RECEIPT_H
#define DOVELANE_LIB_INGRESS_RECEIPT_H

#include <stdbool.h>
#include <stddef.h>

#include <ev.h>

#include "lib/config/config.h"
#include "lib/ingress/mail_entries.h"
#include "lib/redis/wire.h"

/* ---- for divert_switch.c, whose thread and connections are used ---- */

void receipt_open(const struct config *, struct ev_loop *);
/* Lines as shapes_new reads them: of the file, and of `dovelane shape`. NULL: as before. The file's
 * are those of the config first. */
void receipt_rules_set(const char *file, const char *said);
void receipt_node(size_t node, struct wire *);
void receipt_look(void);
/* Nothing is limited, or it is known how much waits. From any thread. */
bool receipt_ready(void);

/* ---- for a mail: the thread of the store ---- */

/* In the order of their weight: of a mail with several next hops the heaviest counts. */
enum receipt {
    RECEIPT_OPEN,  /* the mail goes to lanes; what it adds is counted until mail_entries_free */
    RECEIPT_QUEUE, /* to Postfix's own queue */
    RECEIPT_DEFER, /* RECEIPT_REPLY is the answer */
};

#define RECEIPT_REASON "over-limit" /* in the log, behind "reason=" */
/* No name of ours: the client may be anybody. */
#define RECEIPT_REPLY "451 4.3.1 Too much mail waits for a recipient's host, try again later"

/* detail: what is over which limit, for the log; "" with RECEIPT_OPEN. */
enum receipt receipt_judge(struct mail_entries *, char *detail, size_t size);

/* For mail_entries.c. */
void receipt_over(struct mail_entries *);

#endif
