/* guids - a Maildir's mails get back the GUIDs that stood only in a dovecot-uidlist that is lost.
 *
 * A Maildir keeps a GUID that is not the file's base name as the field G of the mail's line in
 * dovecot-uidlist (every mail that was placed or copied). Without that file Dovecot takes the
 * base name. The state knows such a mail by its UID or its bytes, and what it had; it is written
 * back under the uidlist's lock, so that all sites show one GUID again and no UID changes. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/ingest/guids.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <maildir-storage.h>
#include <maildir-uidlist.h>

/* False: somebody else wrote to the list, or it cannot be written. */
static bool written(struct maildir_uidlist *list, const struct known_guid *g)
{
    const char *now = maildir_uidlist_lookup_ext(list, g->uid, MAILDIR_UIDLIST_REC_EXT_GUID);
    return now != NULL && strcmp(now, g->guid) == 0;
}

int guids_restore(struct session *s, struct mailbox *box, const ARRAY_TYPE(known_guid) * guids)
{
    struct maildir_uidlist *list = ((struct maildir_mailbox *)box)->uidlist; /* its first member */
    const struct known_guid *g;
    unsigned left = 0;
    if (maildir_uidlist_lock(list) <= 0) {
        session_note(s, NOTE_WARNING,
                     "%s: its dovecot-uidlist is locked: the GUIDs of %u mails wait",
                     mailbox_get_vname(box), array_count(guids));
        return -1;
    }
    array_foreach (guids, g)
        maildir_uidlist_set_ext(list, g->uid, MAILDIR_UIDLIST_REC_EXT_GUID, g->guid);
    bool failed = maildir_uidlist_update(list) < 0;
    maildir_uidlist_unlock(list);
    array_foreach (guids, g)
        left += !written(list, g);
    if (failed || left > 0) {
        session_note(s, NOTE_WARNING, "%s: the GUIDs of %u mails cannot be written back and wait",
                     mailbox_get_vname(box), failed ? array_count(guids) : left);
        return -1;
    }
    session_note(s, NOTE_INFO,
                 "%s: %u mails have the GUIDs again that their dovecot-uidlist had lost",
                 mailbox_get_vname(box), array_count(guids));
    return 0;
}
