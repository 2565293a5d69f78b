/* uidnext - raises a mailbox's UIDNEXT behind the UIDs that other sites gave to mails which were
 * removed before they came here, and behind those that this site gave before an old backup took
 * the mailbox's place. Else the next mail here would have the UID of one of them, and a client
 * that knows it would take the one for the other until the next UID round.
 *
 * Only when all mails are placed: UIDNEXT would pass the UIDs of those that are not. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/apply/uidnext.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <mail-index-modseq.h>
#include <mail-storage-private.h>

#define AGAIN 5000 /* milliseconds, when the mailbox could not be written */

uint32_t uidnext_given(struct session *s, uint32_t home, uint64_t *site_r)
{
    uint32_t most = 1;
    *site_r = 0;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.home == home && f.uid_given > most) {
            most = f.uid_given;
            *site_r = f.given_site;
        }
    }
    return most;
}

bool uidnext_waits(struct session *s, uint32_t home)
{
    if (is_joining(s) || orset_uid_mismatches(s->os, home) != 0)
        return TRUE;
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].exchange != NULL || s->peer[i].behind)
            return TRUE;
    return FALSE;
}

static bool may_write(struct session *s, const struct box *x, const struct orset_folder *f)
{
    return x != NULL && !x->gone && x->vname != NULL && x->adopted == 0 && x->now.scanned &&
           x->at.uid_validity == f->uid_validity && !uidnext_waits(s, f->index);
}

static int raise(struct session *s, struct box *x, const struct orset_folder *f, uint32_t to)
{
    struct mailbox_update update;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    i_zero(&update);
    update.min_next_uid = to;
    uint32_t had = to;
    uint64_t highest = 1;
    bool done = session_open_mailbox(s, x, box) == 0;
    if (done) {
        had = mail_index_get_header(box->view)->next_uid;
        highest = mail_index_modseq_get_highest(box->view);
        done = mailbox_update(box, &update) == 0;
    }
    if (!done && !session_box_is_locked(s, box))
        session_note(s, NOTE_WARNING, "%s: UIDNEXT cannot be raised to %u: %s", x->vname, to,
                     mailbox_get_last_internal_error(box, NULL));
    mailbox_free(&box);
    if (!done) {
        session_want_tick(s, AGAIN);
        return 0;
    }
    x->now.behind = FALSE;
    session_explain(s, "%s: UIDNEXT becomes %u: the UIDs before it were given", x->vname, to);
    if (session_begin(s) < 0)
        return -1;
    if (orset_local_uid_next(s->os, f->index, to) < 0) {
        session_core_failed(s, "UIDNEXT");
        session_rollback(s);
        return -1;
    }
    if (modseq_repair_given(s, x->folder, had, to - 1, highest) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

int uidnext_apply(struct session *s)
{
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f, home;
        if (orset_folder_get(s->os, i, &f) < 0 || orset_folder_get(s->os, f.home, &home) < 0 ||
            !home.live)
            continue;
        struct box *x = box_by_folder(s, f.home);
        bool behind = x != NULL && x->now.behind && f.home == i;
        uint32_t to = behind ? I_MAX(f.uid_given, home.uid_next) : f.uid_given;
        if ((behind || to > home.uid_next) && may_write(s, x, &home) && raise(s, x, &home, to) < 0)
            return -1;
    }
    return 0;
}
