/* binding - the UID that a message has in the mailbox. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_BINDING_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_BINDING_H

#include "dovecot-plugin/orset/base/handle.h"

int orset_bind(struct orset *, struct folder *home, struct message *, uint32_t uid);
int orset_unbind(struct orset *, struct folder *home, struct message *, bool gone);
int orset_note_mismatch(struct orset *, struct folder *home, const struct message *, uint32_t uid);

int orset_uid_row_put(struct orset *, uint32_t home, uint32_t uid, uint32_t folder,
                      struct orset_dot);
/* The row of m's UID names m, if it named the dot that m had. */
int orset_uid_row_redot(struct orset *, const struct folder *home, const struct message *m,
                        struct orset_dot old);

/* orset_done_place, for a mail with these bytes (NULL: those of the dot). */
int orset_placed(struct orset *, uint32_t folder, struct orset_dot, uint32_t uid,
                 const struct orset_flags *seen, const uint8_t *seen_body);
/* What a mailbox still lacks of a mail goes with it from uid to new_uid. new_body: the hash of the
 * bytes that the mailbox has there; NULL: as before. */
int orset_rebind(struct orset *, struct folder *home, uint32_t uid, uint32_t new_uid,
                 const uint8_t *new_body);

#endif
