/* ask - a question to the replicator, over its socket, that this process waits for. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_ASK_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_ASK_H

#include "dovecot-plugin/compat.h"

/* Whom is asked, and until when. fd is -1 before the first question. */
struct ask {
    const char *path, *why; /* the second: the reply to a question that was not answered with + */
    int64_t end;            /* as ask_now() */
    int fd;
};

int64_t ask_now(void);                          /* milliseconds */
const char *ask_path(const struct mail_user *); /* data stack */
/* 1: yes; 0: no, why says why not (data stack); -1: the time is over. A replicator that is killed
 * meanwhile is started again, and asked again. One is asked also when the time was over before: it
 * counts the reply as late. */
int ask(struct ask *, const char *line, size_t size);
void ask_end(struct ask *);

#endif
