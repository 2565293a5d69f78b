/* emit - an op of this replica: written, put into the state as a peer's would be, and kept for the
 * peers. */
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"

#include <string.h>

void orset_op_begin(struct orset *os, enum op_kind kind)
{
    os->op.len = 0;
    orset_buf_u8(&os->op, (uint8_t)kind);
}

void orset_op_presence(struct orset *os, const struct folder *f)
{
    orset_buf_num(&os->op, f->npresence);
    for (unsigned i = 0; i < f->npresence; i++)
        orset_dot_write(&os->op, f->presence[i]);
}

int orset_emit(struct orset *os, uint32_t uid)
{
    struct op_run x = {
        .by = os->self, .first = os->origin[os->self].counter + 1, .local = true, .uid = uid};
    struct orset_key k = {0};
    if (os->op.failed)
        return orset_fail(os, ORSET_E_MEMORY, "no memory for an op; roll back and try again");
    uint64_t chain = os->origin[os->self].chain;
    int r = orset_apply_op(os, &x, os->op.data, os->op.len);
    if (r < 0)
        return r;
    orset_key_num(&k, x.first);
    os->row.len = 0;
    orset_buf_u64(&os->row, chain);
    orset_buf_put(&os->row, os->op.data, os->op.len);
    return orset_row_put(os, ORSET_T_OUT, &k, &os->row);
}

int orset_emit_remove(struct orset *os, const struct folder *f, const struct orset_dot *dot,
                      unsigned n)
{
    orset_op_begin(os, OP_REMOVE);
    orset_folder_id_write(&os->op, f);
    orset_buf_num(&os->op, n);
    for (unsigned i = 0; i < n; i++)
        orset_dot_write(&os->op, dot[i]);
    return orset_emit(os, 0);
}

/* The dots of the message in m[0] whose sites saved these bytes are removed: they stand for
 * another mail, or for the one that the others stand for. The others stay. */
int orset_drop_bytes(struct orset *os, const uint8_t sha256[32])
{
    struct orset_dot dots[ORSET_SAME_MESSAGE_MAX];
    struct folder *f = orset_folder_at(os, os->m[0].p.folder);
    int n = orset_group_load(os, &os->m[0]), gone = 0;
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        if (orset_message_load(os, f->index, os->group[i], o) <= 0)
            return orset_storage_fail(os, "a message vanished");
        if (memcmp(o->p.facts.sha256, sha256, 32) == 0)
            dots[gone++] = os->group[i];
    }
    return n < 0 ? n : gone == 0 || gone == n ? 0 : orset_emit_remove(os, f, dots, (unsigned)gone);
}
