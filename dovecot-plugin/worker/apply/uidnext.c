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

/* A mailbox whose UIDNEXT is to be raised, and to what. */
struct behind {
    struct box *x;
    struct orset_folder home;
    uint32_t to;
};

static bool find_behind(struct session *s, uint32_t folder, struct behind *b)
{
    struct orset_folder f;
    if (orset_folder_get(s->os, folder, &f) < 0 || orset_folder_get(s->os, f.home, &b->home) < 0 ||
        !b->home.live)
        return FALSE;
    b->x = box_by_folder(s, f.home);
    if (b->x == NULL || b->x->gone || b->x->vname == NULL)
        return FALSE;
    bool backup = b->x->now.behind && f.home == folder;
    b->to = backup ? I_MAX(f.uid_given, b->home.uid_next) : f.uid_given;
    return (backup || b->to > b->home.uid_next) && !uidnext_waits(s, f.home);
}

static bool is_looked_at(const struct box *x)
{
    return x->now.scanned && x->adopted == 0;
}

static int raise(struct session *s, const struct behind *b)
{
    struct box *x = b->x;
    uint32_t to = b->to, had = to;
    struct mailbox_update update;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    i_zero(&update);
    update.min_next_uid = to;
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
    if (orset_local_uid_next(s->os, b->home.index, to) < 0) {
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

int uidnext_apply(struct session *s, scan_fn *scan)
{
    struct behind b;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        if (!find_behind(s, i, &b))
            continue;
        /* A sweep, which mostly opens a user, passes over the mailboxes whose files are as they
         * were. */
        if (!is_looked_at(b.x)) {
            if (scan(s, b.x) < 0)
                return -1;
            if (!find_behind(s, i, &b))
                continue;
        }
        if (is_looked_at(b.x) && b.x->at.uid_validity == b.home.uid_validity && raise(s, &b) < 0)
            return -1;
    }
    return 0;
}
