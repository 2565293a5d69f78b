/* verdict - what becomes of a mail when the store has said what it has to say (docs/design.md,
 * "Mail in" 5). The milter and the proxy ask here, and do it each in its own way. Pure. */
#ifndef DOVELANE_LIB_INGRESS_VERDICT_H
#define DOVELANE_LIB_INGRESS_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

enum verdict {
    VERDICT_LANES,    /* all is stored by all its owners, or was delivered: it is ours */
    VERDICT_QUEUE,    /* nothing of it is in a lane: Postfix keeps it */
    VERDICT_SPLIT,    /* Postfix keeps what is in no lane */
    VERDICT_REVOKE,   /* what is stored is taken back, then it is asked again */
    VERDICT_TEMPFAIL, /* nothing of it is anywhere: the client tries again */
};

struct verdict_facts {
    size_t entries;   /* of the mail, one for each next hop */
    size_t done;      /* held by all their owners, or delivered */
    size_t delivered; /* of done: a retry of the client's would deliver them a second time */
    bool tempfail;    /* on_store_failure */
    bool revoked;     /* was tried: what is done by now is delivered */
    bool queued;      /* some recipients are in Postfix's queue already, for good */
};

enum verdict verdict_of(const struct verdict_facts *);

#endif
