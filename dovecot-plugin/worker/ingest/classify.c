/* classify - the table of cases, as one function. */
#include "dovecot-plugin/worker/ingest/classify.h"

/* The state is older than the mailbox, or was another folder's, and the log tells what happened
 * since. What an old backup put back is not judged by the log that came with it. */
static bool is_rewound(const struct present_facts *f)
{
    bool broken = f->verdict == LOG_SCAN_BROKEN;
    if (f->restored)
        return false;
    return (f->rewound && (!broken || f->log_is_complete)) || (f->adopted && !broken);
}

enum flags_case classify_flags(const struct present_facts *f)
{
    bool rewound = is_rewound(f);
    if (f->nameless || (f->verdict == LOG_SCAN_BROKEN && !rewound))
        return FLAGS_DAMAGED;
    if (f->late == LATE_FLAGS)
        return FLAGS_SAID_LATE;
    return rewound ? FLAGS_REWOUND : FLAGS_OF_CLIENTS;
}

bool classify_adds_flags(const struct present_facts *f)
{
    return f->verdict == LOG_SCAN_BROKEN && !f->restored && !is_rewound(f);
}

enum missing_case classify_missing(const struct missing_facts *f)
{
    if (f->moving)
        return MISSING_MOVED;
    if (f->taken && f->verdict != LOG_SCAN_BROKEN)
        return MISSING_RESCUED;
    if (f->requested)
        return MISSING_REMOVED;
    if (f->verdict == LOG_SCAN_BROKEN)
        return MISSING_DAMAGED;
    if (f->quarantined)
        return MISSING_QUARANTINED;
    if (f->verdict == LOG_SCAN_GAP || (f->maildir && f->touched))
        return MISSING_VANISHED;
    /* the log is whole and silent, or a dbox lost the file, which is nobody's to remove */
    return MISSING_DAMAGED;
}
