/* side - one site of a meeting: its state, and the mailboxes as they would be. */
#ifndef DOVELANE_DOVECOT_PLUGIN_COMPARE_SIDE_H
#define DOVELANE_DOVECOT_PLUGIN_COMPARE_SIDE_H

#include "dovecot-plugin/compare/survey.h"
#include "dovecot-plugin/orset/orset.h"

#include <stdbool.h>

struct state_sqlite;

/* By rising UID: what gets another one goes to the end. */
struct side_mail {
    uint32_t uid;
    bool own;         /* it was in this mailbox before */
    bool moved, gone; /* it has another UID than before; it has this one no more */
};

struct side_mailbox {
    const struct survey_folder *was; /* NULL: this site did not have it */
    struct side_mail *mail;
    size_t n, room;
    uint64_t joined; /* mails that were bound to another site's message */
    uint64_t other_bytes;
};

struct side {
    struct state_sqlite *db;
    struct orset *os;
    struct side_mailbox *mailbox; /* by the folder's index */
    size_t n;
    uint64_t sent; /* ops that the other side has */
    uint64_t refused;
    const char *failed; /* what went wrong beside the core */
};

extern const struct orset_alloc side_alloc;

/* A new state in the directory. 0, -1 */
int side_open(struct side *, uint64_t site, const char *directory);
void side_close(struct side *);
/* NULL: no memory. Good until the next call. */
struct side_mailbox *side_mailbox(struct side *, uint32_t folder);
/* The first scan of a mailbox. 0, or the core's error. */
int side_ingest(struct side *, const struct survey_folder *, int64_t now);
/* Does what the mailboxes lack. 1: something was done; 0; or the core's error. */
int side_work(struct side *);

#endif
