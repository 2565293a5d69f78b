/* identity - whether the mail that a mailbox has under a UID is the one that the state means.
 *
 * A UID is a claim, not a proof. A mailbox may have been put back from a backup, and what was
 * delivered since then has the UID of a mail that the state knows. Whoever changes, copies or
 * removes a mail by its UID asks here first:
 *
 *     identity_head()   the mailbox is the one that was looked at last, or a later one: its index, its UIDNEXT, its log's file
 *     identity_of()     the mail's GUID is the message's; or, where a mail may have another GUID (a rebuild), its bytes are
 *
 * On a difference nothing is done, the row stays, and the whole mailbox is compared by GUID
 * (struct box, doubted). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/session.h"

#include <guid.h>
#include <mail-storage-private.h>

struct mail *mail_by_uid(struct mailbox_transaction_context *trans, uint32_t uid)
{
    struct mail *mail = mail_alloc(trans, 0, NULL);
    if (mail_set_uid(mail, uid))
        return mail;
    mail_free(&mail);
    return NULL;
}

#define HEAD_AGAIN 1000   /* milliseconds */
#define DOUBT_AGAIN 60000 /* milliseconds; a comparison that did not help is not repeated at once */

static void identity_doubt(struct session *s, struct box *x, uint32_t uid)
{
    uint64_t now = clock_msecs();
    if (now < x->now.doubt_again) {
        session_want_tick(s, DOUBT_AGAIN);
        return;
    }
    x->now.doubt_again = now + DOUBT_AGAIN;
    session_note(s, NOTE_WARNING,
                 "%s: UID %u is another mail than in the state, as after a restored backup: it is "
                 "left alone, and the whole mailbox is compared",
                 x->vname, uid);
    x->all = x->now.doubted = s->scan_again = TRUE;
    session_want_tick(s, 100);
}

bool identity_head(struct session *s, struct box *x, struct mailbox *box)
{
    if (log_is_known(box, &x->at))
        return TRUE;
    /* One that cannot be looked at, or changes all the time, is not looked at without end. */
    if (!session_retry(s, "head", x->vname, HEAD_AGAIN))
        return FALSE;
    session_note(s, NOTE_INFO,
                 "%s: it is not the mailbox that was looked at last: it is compared before "
                 "anything is done to it",
                 x->vname);
    x->all = s->scan_again = TRUE;
    session_want_tick(s, 100);
    return FALSE;
}

enum identity identity_of(struct session *s, struct mail *mail, const uint8_t guid[16],
                          const uint8_t *sha256)
{
    static const uint8_t any[16];
    uint8_t wanted[16], bytes[32];
    const char *text;
    guid_128_t there;
    uint64_t size;
    /* They may lie in what the core overwrites. */
    memcpy(wanted, guid, sizeof wanted);
    if (sha256 != NULL)
        memcpy(bytes, sha256, sizeof bytes);
    if (memcmp(wanted, any, sizeof any) == 0)
        return IDENTITY_SAME;
    mail_storage_clear_error(mail->box->storage); /* it may tell of another mail */
    if (mail_get_special(mail, MAIL_FETCH_GUID, &text) < 0)
        return mailbox_get_last_mail_error(mail->box) == MAIL_ERROR_EXPUNGED ? IDENTITY_GONE
                                                                             : IDENTITY_UNKNOWN;
    mail_generate_guid_128_hash(text, there);
    int r = orset_guid_is(s->os, wanted, there);
    if (r == 0 && sha256 != NULL)
        r = body_read(mail, bytes, 0, 0, t_buffer_create(16), &size);
    return r < 0 ? IDENTITY_UNKNOWN : r > 0 ? IDENTITY_SAME : IDENTITY_OTHER;
}

void identity_refuses(struct session *s, struct box *x, struct mail *mail, enum identity is)
{
    if (is == IDENTITY_OTHER)
        identity_doubt(s, x, mail->uid);
    else if (is == IDENTITY_UNKNOWN && !session_box_is_locked(s, mail->box))
        session_note(s, NOTE_WARNING,
                     "%s: UID %u: which mail it is cannot be read, so nothing is done to it: %s",
                     x->vname, mail->uid, mailbox_get_last_internal_error(mail->box, NULL));
}

bool identity_allows(struct session *s, struct box *x, struct mail *mail, const uint8_t guid[16],
                     const uint8_t *sha256)
{
    enum identity is = identity_of(s, mail, guid, sha256);
    identity_refuses(s, x, mail, is);
    return is == IDENTITY_SAME;
}
