/* intent - journal of folder deletions and of subscriptions, so that what is gone is known to be
 * wanted gone (F10).
 *
 * File <control root>/dovelane/intents. It has a line before each deletion, and one after it that
 * takes that back when it failed. It also has a line before each SUBSCRIBE and UNSUBSCRIBE.
 * "Deleted" is only ever concluded from a line that was written before the deletion began, and was
 * not taken back. A folder that is missing without one is damage and comes back from the peers. So
 * is a subscription.
 *
 * While what a line says is under way its process holds a shared flock() on the journal. The reader
 * takes the journal away only when it gets an exclusive one at once. Else it would find the folder
 * still there, drop the intent as void, and then find the folder gone. A killed process's lock ends
 * with it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_INTENT_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_INTENT_H

#include <stdbool.h>
#include <stdint.h>

struct mail_user;
struct mailbox;

struct intent {
    struct mailbox *box;
    /* 32 hex digits, or NULL for a name without mailbox (\NoSelect); the caller's */
    const char *guid;
    const char *path; /* of the journal, on the data stack */
    int fd;           /* -1: it could not be written */
};

/* Before the deletion of box. The control root is the INBOX namespace's for private mailboxes,
 * else that of the mailbox's own namespace. A failure is logged; the deletion may go on: then
 * the folder comes back, which loses nothing. */
void intent_begin(struct intent *intent_r, struct mailbox *box, const char *guid);

/* After it; done: the folder is gone, else the intent is taken back. uid_next, uid_validity: what
 * these were; 0: not known. By them a folder that lives on by another site's mails gives no UID
 * twice. Nor does another one of its name and UIDVALIDITY. */
void intent_end(struct intent *intent, bool done, uint32_t uid_next, uint32_t uid_validity);

/* Before box's name is subscribed or unsubscribed, and after it, whatever came of it. The
 * control root is that of the namespace which keeps the subscription. A failure is logged: then
 * the change is undone. */
void intent_subscription_begin(struct intent *intent_r, struct mailbox *box, bool set);
void intent_subscription_end(struct intent *intent);

/* A gateway's delivery to the user, of which this is the GUID, came to its end and saved nothing.
 * It is noted in another file beside the journal, which the replicator reads only when a relay asks
 * for such a mail. A failure is logged; then the mail is delivered once more. */
void intent_note_discarded(struct mail_user *user, const char *guid);

#endif
