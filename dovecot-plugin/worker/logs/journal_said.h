/* journal_said - what the lines of a journal say: which folders were deleted, which names
 * subscribed and unsubscribed. The file is its user's: any bytes. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_JOURNAL_SAID_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_JOURNAL_SAID_H

#include "dovecot-plugin/compat.h"

#include <array.h>
#include <guid.h>
#include <str.h>

/* Of one folder: deletions that began, without those that failed. */
struct deletion {
    guid_128_t guid;
    int times;
    const char
        /* what the last that began called it; NULL: a failure, or a name that only its owner
         * knows */
        *vname;
    uint32_t uid_next;     /* what its UIDNEXT was; 0: nobody says */
    uint32_t uid_validity; /* and its UIDVALIDITY; 0: not said: an older plugin wrote it */
    unsigned at;           /* which line it was */
};
ARRAY_DEFINE_TYPE(deletion, struct deletion);

struct journal_said {
    ARRAY_TYPE(deletion) deletions; /* by GUID */
    ARRAY_TYPE(const_string)
    subscribed; /* sorted: 'S' or 'U', the name; on the data stack, as all texts here */
};

void journal_said_init(struct journal_said *);
void journal_said_free(struct journal_said *);
/* In place of what was read before. */
void journal_said_parse(struct journal_said *, const void *text, size_t len);
/* The folder with that GUID was deleted: more of its deletions began than failed. NULL: it was
 * not. */
const struct deletion *journal_said_deleted(struct journal_said *, const guid_128_t guid);
/* Appends to kept the lines of those folders, and with names those of subscriptions. */
void journal_said_keep(const void *text, size_t len, const ARRAY_TYPE(guid_128_t) * folders,
                       bool names, string_t *bodies);
bool journal_said_subscription(struct journal_said *, const char *vname, bool on);

#endif
