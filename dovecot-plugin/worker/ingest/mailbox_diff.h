/* mailbox_diff - what one scan of all mailboxes finds, for mailbox_diff.c, mailbox_find.c and
 * copies.c. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_MAILBOX_DIFF_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_MAILBOX_DIFF_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/ingest/scan.h"

#include <array.h>
#include <guid.h>

struct box;
struct ingest;
struct session;

struct found_mailbox {
    const char *vname;
    guid_128_t guid;
    uint32_t uid_validity;
    bool unreadable; /* there, but what it is cannot be known now: nothing is concluded */
    bool lasting;    /* and no lock or deletion that ends is why */
    bool copy;       /* of a mailbox that is there, too, file by file: it has that one's GUID */
    struct box *x;
    bool unused; /* it never had a mail, as far as was looked */
};

struct tree {
    struct session *s;
    struct ingest *in;
    ARRAY(struct found_mailbox) found;
    struct journal *journal;
    bool copies; /* some have a GUID that another one has */
};

/* By the errno of a stat(). Another error does not tell whether the mailbox is there: its directory
 * may not be entered, its disk fails. */
static inline bool is_not_there(int error)
{
    return error == ENOENT || error == ENOTDIR;
}

/* --- mailbox_find.c ------------------------------------------------------------------------- */

/* -1: one could not be found out, and nothing is concluded. */
int mailboxes_find(struct tree *);
/* Those that are known and were not listed, but are there. */
void mailboxes_find_unlisted(struct tree *);

/* --- copies.c ------------------------------------------------------------------------------- */

/* Marks those that have the GUID of another one. True when there are any. */
bool copies_mark(struct tree *);
/* Gives each of them a GUID of its own. Under the lists' lock, so that none is about to be
 * renamed. */
void copies_part(struct tree *);

#endif
