/* scan_elsewhere - the own mailbox of a folder that is shown in another one's by now, since two sites
 * made folders of one name, or gave them one. Its mails wait to be placed in the other one, and no
 * UID of this one is bound to a message any more: a row says which mails are to leave it. What
 * clients did here since the last look is said of those; what they saved is new. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <seq-range-array.h>

int scan_leaves(struct mailbox_scan *l, uint32_t uid)
{
    guid_128_t guid;
    return scan_guid(l, guid) ? orset_leaves_moved(l->s->os, l->x->folder, uid, guid) : 0;
}

/* A client's last word on each flag of a mail, by the log. */
static int say_flags(struct mailbox_scan *l, uint32_t uid)
{
    struct orset_flags set = {0}, cut = {0};
    struct flag_change *const *wp;
    array_foreach (&l->log.flag_changes, wp) {
        const struct flag_change *w = *wp;
        if (w->own || w->uid1 > uid || w->uid2 < uid)
            continue;
        flags_without(&set, &w->cut);
        flags_without(&cut, &w->set);
        flags_unite(&set, &w->set);
        flags_unite(&cut, &w->cut);
    }
    if (set.system + cut.system + set.nkeywords + cut.nkeywords == 0)
        return 0;
    return scan_changed(l, orset_local_flags_moved(l->s->os, l->x->folder, uid, &set, &cut));
}

static int say_expunge(struct mailbox_scan *l, uint32_t uid)
{
    int r = orset_local_expunge_moved(l->s->os, l->x->folder, uid);
    if (r == ORSET_OK)
        session_explain(l->s,
                        "%s: UID %u: removed, as a client asked before its folder was another "
                        "site's, too",
                        l->x->vname, uid);
    return scan_changed(l, r);
}

/* Flags first: a mail that is removed has none. */
int scan_elsewhere(struct mailbox_scan *l)
{
    struct seq_range_iter iter;
    uint32_t uid;
    if (l->log.verdict == LOG_SCAN_BROKEN)
        return 0;
    seq_range_array_iter_init(&iter, &l->log.touched);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++)
        if (say_flags(l, uid) < 0)
            return -1;
    seq_range_array_iter_init(&iter, &l->log.by_clients);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++)
        if (say_expunge(l, uid) < 0)
            return -1;
    return 0;
}
