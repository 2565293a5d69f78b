/* link - the connection with main. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LINK_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LINK_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

struct link;

struct link_events {
    void (*asked)(void *owner, const struct frame *); /* main's question, or its word */
    void (*ended)(void *owner);                       /* the connection: it is to be destroyed */
};
struct link *link_create(int fd, const struct link_events *, void *owner);
void link_destroy(struct link **);
/* After so many seconds without a frame a question will never be answered; 0: not told. */
void link_set_patience(struct link *, unsigned secs);
/* Without a user there is nothing that takes long. */
void link_set_user_open(struct link *, bool);
void link_put_off_end(struct link *); /* as a frame does */
void link_break(struct link *);       /* it ends behind what is asked now */
/* A frame to main. -1: the connection is gone. */
int link_send(struct link *, const struct frame *);
/* Sends RESERVE and waits. 0, -1: not written, do not commit. new_epoch_r may be NULL. */
int link_reserve(struct link *, enum frame_reserve, uint64_t epoch, uint64_t counter,
                 bool *new_epoch_r);
/* A row of an admin's answer. */
void link_reply(struct link *, const char *fmt, ...) ATTR_FORMAT(2, 3);

#endif
