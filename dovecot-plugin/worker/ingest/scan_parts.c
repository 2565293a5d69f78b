/* scan_parts - what the files of a scan share: a change, committed in parts; the UIDs that the
 * state has bound; and a mail's GUID. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <guid.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#define COMMIT_EVERY 500 /* changes; a part's cursor stays, so that a crash compares again */

struct bound {
    ARRAY_TYPE(seq_range) * uids;
};

static int collect_bound(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct bound *b = arg;
    (void)own;
    if (m->uid != 0)
        seq_range_array_add(b->uids, m->uid);
    return 0;
}

int scan_bound_uids(struct session *s, uint32_t home, ARRAY_TYPE(seq_range) * uids)
{
    struct bound b = {uids};
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.home == home && f.messages > 0 &&
            orset_each_message(s->os, i, collect_bound, &b) < 0)
            return session_core_failed(s, "bound messages");
    }
    return 0;
}

int ingest_send(struct session *s, struct ingest *in)
{
    i_assert(in->send != NULL && !orset_in_transaction(s->os));
    int r = in->send(s);
    batch_bodies_clear(s->batch_bodies);
    return r;
}

int scan_changed(struct mailbox_scan *l, int r)
{
    if (r < 0)
        return session_core_failed(l->s, l->x->vname);
    if (orset_left_out(l->s->os) > l->s->left_out) {
        l->s->left_out = orset_left_out(l->s->os);
        session_note(
            l->s, NOTE_WARNING,
            "%s: a keyword of UID %u is not replicated: %d flags of this site's are on it already",
            l->x->vname, l->mail->uid, ORSET_MAKE_MARKS_MAX);
    }
    bool full = l->in->send != NULL && batch_bodies_is_full(l->s->batch_bodies);
    if (!full && (r == ORSET_KNOWN || ++l->in->pending < COMMIT_EVERY))
        return 0;
    l->in->pending = 0;
    crash_at("ingest-part");
    if (session_commit(l->s) < 0 || (l->in->send != NULL && ingest_send(l->s, l->in) < 0))
        return -1;
    return session_begin(l->s);
}

/* A Maildir's GUIDs are in its dovecot-uidlist. While that is locked a scan that asks which mail
 * has which UID would take known mails for lost and for new ones; any other look learns nothing
 * wrong, and comes back to the one mail. */
void scan_unreadable(struct mailbox_scan *l)
{
    if ((l->log.verdict == LOG_SCAN_BROKEN || l->x->rewound || l->x->adopted != 0) &&
        session_box_is_locked(l->s, l->box))
        l->locked = TRUE;
}

bool scan_guid(struct mailbox_scan *l, guid_128_t guid)
{
    const char *text;
    if (mail_get_special(l->mail, MAIL_FETCH_GUID, &text) < 0) {
        scan_unreadable(l);
        return FALSE;
    }
    mail_generate_guid_128_hash(text, guid);
    return TRUE;
}

const struct late_change *scan_late(struct mailbox_scan *l, uint32_t uid)
{
    const struct late_change *late;
    array_foreach (&l->log.late, late) {
        if (late->uid == uid)
            return late;
    }
    return NULL;
}
