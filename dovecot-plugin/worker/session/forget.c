/* forget - a mailbox that is no more: out of the table, with all its rows but the one that says up
 * to where clients know its modseqs. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

void box_forget(struct session *s, struct box *x)
{
    struct orset_key k = rows_folder_key(x->folder);
    (void)modseq_floor_keep(s, x);
    (void)rows_del(s, 'b', k.b, k.n);
    (void)rows_del(s, ROW_SAVING, k.b, k.n);
    (void)rows_del(s, ROW_WRITE_INTENT, k.b, k.n);
    (void)rows_del(s, ROW_MOVED, k.b, k.n);
    (void)rows_del(s, ROW_MODSEQ_REPAIR, k.b, k.n);
    (void)rows_del(s, ROW_RENUMBER, k.b, k.n);
    (void)rows_del(s, ROW_LOOKED, k.b, k.n);
    box_drop(s, x);
}
