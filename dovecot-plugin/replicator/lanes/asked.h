/* asked - takes relays' questions, whether deliveries are safe, from the lane on the own node. Puts
 * the answers into the lanes of the relays that asked (lib/mail/disk_question.h).
 *
 * Nothing is kept here. A relay asks again until it is answered, so what is lost on the way, or
 * with this process, costs that time. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_ASKED_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_ASKED_H

#include "lib/mail/disk_question.h"
#include "dovecot-plugin/replicator/replicator.h"

struct asked_calls {
    /* It was taken, and is leased until asked_let_go(). */
    void (*came)(struct replicator *, const struct disk_question *);
};

struct asked *asked_open(struct replicator *, const struct asked_calls *);
void asked_stop(struct asked *); /* takes no more */
void asked_close(struct asked *);
/* The own node may be used: nobody else runs under this name. */
void asked_go(struct asked *);

/* Removes the question from its lane; the relay asks again. */
void asked_let_go(struct asked *, const struct disk_question *);
/* The answer into the lane of who asked, and the question goes when it is stored there. */
void asked_answer(struct asked *, const struct disk_question *, uint64_t epoch, bool safe);

#endif
