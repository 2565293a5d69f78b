/* identity - whether the mail that a mailbox has under a UID is the one that the state means. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_IDENTITY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_IDENTITY_H

#include "dovecot-plugin/compat.h"

struct box;
struct session;

enum identity {
    IDENTITY_SAME,
    IDENTITY_OTHER,  /* another mail has the UID */
    IDENTITY_GONE,   /* the index has it, the storage does not */
    IDENTITY_UNKNOWN /* it cannot be read now; the mailbox's error says why */
};

/* The mail with that UID, or NULL. */
struct mail *mail_by_uid(struct mailbox_transaction_context *, uint32_t uid);
/* The mailbox that is open is the one that was looked at last. FALSE: it will be looked at
 * before anything is done to it. */
bool identity_head(struct session *, struct box *, struct mailbox *);
/* guid: of the state's message; zeros: not known, and any will do. sha256: of its bytes, which
 * prove it where the GUID differs. NULL: only the GUID proves it. */
enum identity identity_of(struct session *, struct mail *, const uint8_t guid[16],
                          const uint8_t *sha256);
/* The same. FALSE: nothing may be done to the mail; where it is another one, the mailbox will be
 * compared whole. */
bool identity_allows(struct session *, struct box *, struct mail *, const uint8_t guid[16],
                     const uint8_t *sha256);
/* What identity_allows() does where it is not the same. */
void identity_refuses(struct session *, struct box *, struct mail *, enum identity);

#endif
