/* index_log_replay - the logs that lie beside an index which was rebuilt. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_INDEX_LOG_REPLAY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_INDEX_LOG_REPLAY_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/logs/log.h"

#include <seq-range-array.h>

struct cursor;
struct session;

ARRAY_DEFINE_TYPE(backup_path, char *);
/* What the logs beside the index say behind the cursor. */
struct index_log_replay {
    ARRAY_TYPE(seq_range) requested;      /* expunges that clients asked for */
    ARRAY_TYPE(flag_change) flag_changes; /* changes of flags, in order */
    bool goes_on;                         /* the log that is there now goes on from them */
};
/* Adds to it (cursor NULL: nothing), and the paths of all of them to read. */
void index_log_replay_read(struct session *, struct mailbox *, const struct cursor *,
                           const struct log_scan *, struct index_log_replay *said,
                           ARRAY_TYPE(backup_path) * read);
void index_log_replay_pass(ARRAY_TYPE(backup_path) * from, ARRAY_TYPE(backup_path) * to);
/* The files, when what they say is committed. */
void index_log_replay_remove(ARRAY_TYPE(backup_path) *);
/* Ends the array. */
void index_log_replay_forget(ARRAY_TYPE(backup_path) *);

#endif
