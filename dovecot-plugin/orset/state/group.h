/* group - the message that several dots make (rule 4). A GUID is looked for by its first bytes: the
 * message says whether it is that one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_GROUP_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_GROUP_H

#include "dovecot-plugin/orset/base/handle.h"

/* in ORSET_T_GUID: the counter is a UID that is to be removed and can still be copied */
#define ORSET_DOOMED_ORIGIN 0xfffe

void orset_guid_key(struct orset_key *, const uint8_t guid[16], uint32_t folder);
/* How many live dots of (folder, GUID) there are; in os->copies until the next call that looks
 * for another one, or changes a message. Uses m[2]. */
int orset_copies(struct orset *, const uint8_t guid[16], uint32_t folder);
/* The same of one copy: from *first on in os->copies. */
int orset_copies_of(struct orset *, const uint8_t guid[16], uint32_t folder, uint32_t k,
                    const struct copy **first);
int orset_copy_put(struct orset *, const struct message *);
int orset_copy_del(struct orset *, const struct message *);
/* 1: a live dot, in some folder, may have it */
int orset_guid_lives(struct orset *, const uint8_t guid[16]);

/* count in os->group, itself included */
int orset_group_load(struct orset *, const struct message *);
int orset_group_union(struct orset *, const struct message *, struct orset_flags *);
/* 1: \Deleted is cleared so that it beats a setting; 0 */
int orset_group_rescued(struct orset *, const struct message *);
/* The dot whose facts are the message's: smallest (SHA-256, dot). Uses m[2]. body_r: its
 * SHA-256, may be NULL. */
int orset_group_speaker(struct orset *, const struct message *, struct orset_dot *,
                        uint8_t *body_r);
/* 1: a round settled it; 0: it is a claim. Uses m[2]. */
int orset_group_agreed(struct orset *, const struct message *, uint32_t *uid_r);

#endif
