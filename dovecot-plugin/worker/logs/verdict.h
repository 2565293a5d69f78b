/* verdict - how far a mailbox's log tells what happened since the cursor. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_VERDICT_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_VERDICT_H

enum log_verdict {
    LOG_SCAN_UNBROKEN, /* touched and removed say all that happened since the cursor */
    /* the same index, but the log does not reach back: whatever is missing was removed, by whom
     * is not known */
    LOG_SCAN_GAP,
    LOG_SCAN_BROKEN /* another index: what is missing is damage (F1) */
};

#endif
