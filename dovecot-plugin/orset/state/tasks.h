/* tasks - rows that say what a mailbox still lacks of the state. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_TASKS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_TASKS_H

#include "dovecot-plugin/orset/base/handle.h"

/* task rows of this kind: UID is not the agreed one; for the keeper's round */
#define ORSET_TASK_MISMATCH 20

/* A row by its kind, mailbox and the rest of its key; the value: 1, 0, error. */
int orset_task_row(struct orset *, int kind, uint32_t home, const void *rest, size_t rest_len,
                   struct orset_reader *);
int orset_task_put(struct orset *, int kind, uint32_t home, const void *rest, size_t rest_len,
                   const struct orset_buf *);
int orset_task_del(struct orset *, int kind, uint32_t home, const void *rest, size_t rest_len);
/* The same by UID. value NULL: del */
int orset_task_uid_row(struct orset *, int kind, uint32_t home, uint32_t uid,
                       struct orset_reader *);
int orset_task_uid(struct orset *, int kind, uint32_t home, uint32_t uid,
                   const struct orset_buf *value);

int orset_task_place(struct orset *, struct folder *, struct orset_dot, bool wanted);
/* 1: a message of it has no UID here. ORSET_NO_FOLDER: of any */
int orset_task_any_place(struct orset *, uint32_t folder);
int orset_task_renumber(struct orset *, uint32_t home, uint32_t uid, uint32_t to);
/* 1 when flags differ there */
int orset_task_seen(struct orset *, uint32_t home, uint32_t uid, struct orset_flags *);
/* The wanted flags went from before to now; seen is what the mailbox has, NULL: as recorded. */
int orset_task_flags(struct orset *, uint32_t home, uint32_t uid, const struct orset_flags *before,
                     const struct orset_flags *now, const struct orset_flags *seen);
/* 1 and the SHA-256 of what the mailbox has under a UID that waits for its ORSET_TASK_BODY; 0:
 * it waits for none. */
int orset_task_bytes(struct orset *, uint32_t home, uint32_t uid, uint8_t sha256_r[32]);
/* The wanted bytes went from SHA-256 before to now; seen as above. */
int orset_task_body(struct orset *, uint32_t home, uint32_t uid, const uint8_t before[32],
                    const uint8_t now[32], const uint8_t *seen);

#endif
