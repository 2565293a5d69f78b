/* quarantine - UIDs whose mails went without a client's word, above the brake: an admin says
 * whether they are removed, or damage (F1). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

int quarantine_end(struct session *s, struct box *x, int (*fn)(struct orset *, uint32_t, uint32_t))
{
    struct seq_range_iter iter;
    uint32_t uid;
    int n = 0;
    seq_range_array_iter_init(&iter, &x->quarantine);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++) {
        int r = fn(s->os, x->folder, uid);
        if (r < 0)
            return session_core_failed(s, x->vname);
        n += r == ORSET_OK;
    }
    array_clear(&x->quarantine);
    return n;
}

/* Those whose mails are there again, under an index that was not looked at yet. */
static void let_go_present(struct box *x, struct mailbox *box)
{
    ARRAY_TYPE(seq_range) present;
    struct seq_range_iter iter;
    uint32_t uid, seq1, seq2;
    t_array_init(&present, 4);
    seq_range_array_iter_init(&iter, &x->quarantine);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++) {
        mailbox_get_seq_range(box, uid, uid, &seq1, &seq2);
        if (seq1 != 0)
            seq_range_array_add(&present, uid);
    }
    seq_range_array_remove_seq_range(&x->quarantine, &present);
}

int quarantine_decide(struct session *s, struct box *x, bool accept)
{
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    int r = session_open_mailbox(s, x, box) < 0
                ? session_fail(s, "%s: %s", x->vname, mailbox_get_last_internal_error(box, NULL))
                : session_begin(s);
    if (r == 0) {
        let_go_present(x, box);
        r = quarantine_end(s, x, accept ? orset_local_expunge : orset_local_missing);
        x->brake_used = 0;
        if (r < 0 || rows_put_box(s, x) < 0) {
            session_rollback(s);
            r = -1;
        } else if (session_commit(s) < 0) {
            r = -1;
        }
    }
    mailbox_free(&box);
    return r;
}
