/* classify - what a scan concludes from what it knows of one mail. Pure: no mailbox, no state.
 *
 * A mail that is there has flags. Whose they are:
 *
 *     the mailbox is as it was           a client's, since they were seen last
 *     its index was rebuilt              damage: what is more is a user's, less is not (F30)
 *     the state is older than it         the log tells who did what since then (F36)
 *
 * A message whose mail is not there:
 *
 *     this program was about to move it  it is bound again by its GUID
 *     a client asked for it, which was
 *     shown \Deleted that another one
 *     had cleared under its former UID   placed again
 *     a client asked for it              a removal
 *     the index is another one           damage: placed again, nothing is published (F1)
 *     it is quarantined                  it stays so
 *     the log has a gap, or a sync of a
 *     Maildir noticed it                 vanished: the brake decides
 *     otherwise                          damage
 */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_CLASSIFY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_CLASSIFY_H

#include "dovecot-plugin/worker/logs/verdict.h"

#include <stdbool.h>

/* What clients said of a mail under the UID that it had before (struct late_change). */
enum late_word { LATE_NOTHING, LATE_FLAGS, LATE_EXPUNGE };

struct present_facts {
    enum log_verdict verdict;
    /* the mailbox was never looked at, and its log is there from its first record on */
    bool log_is_complete;
    bool rewound, adopted, restored; /* as in struct box */
    bool nameless;                   /* some of its keywords lost their names */
    enum late_word late;
};

enum flags_case {
    FLAGS_OF_CLIENTS, /* what differs from what was seen last, a client did */
    FLAGS_SAID_LATE,  /* and so for what was said of its former UID */
    FLAGS_REWOUND,    /* the log since the older state says who did what */
    FLAGS_DAMAGED     /* lost with the index, or with their names */
};
enum flags_case classify_flags(const struct present_facts *);
/* Of a mail that was just bound to a message which peers sent. Nobody knows which of its flags were
 * published, so that those which the message lacks are set. */
bool classify_adds_flags(const struct present_facts *);

struct missing_facts {
    enum log_verdict verdict;
    bool moving;      /* this program was about to give it another UID */
    bool taken;       /* struct late_change */
    bool requested;   /* a client asked for its expunge, or this program */
    bool quarantined; /* already */
    bool maildir;     /* where other programs may remove mail */
    bool touched;     /* the log has its expunge, which nobody asked for */
};

enum missing_case {
    MISSING_MOVED,
    MISSING_RESCUED,
    MISSING_REMOVED,
    MISSING_QUARANTINED,
    MISSING_VANISHED,
    MISSING_DAMAGED
};
enum missing_case classify_missing(const struct missing_facts *);

#endif
