/* give - bodies that peers want. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_GIVE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_GIVE_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

#include <buffer.h>

struct session;

/* What a peer asked for and did not get yet. */
struct pending_wants {
    uint64_t site;
    buffer_t *body; /* of its parcel */
    size_t done;    /* wants that were answered */
};

/* A peer's WANT. What is too much for one question is kept, and given at the next TICK. */
enum frame_result give_parcel(struct session *, uint64_t site, struct text body);
void give_rest(struct session *);
void give_free(struct session *);

#endif
