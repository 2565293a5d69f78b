/* modseq_floor - row ROW_MODSEQ_FLOOR: one number a folder. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

/* Clients may have been told more since the mailbox was looked at last, by less than this. */
#define UNSEEN 65536
#define HEARD_MOST (1ULL << 32)

int modseq_floor_get(struct session *s, uint32_t folder, uint64_t *floor_r)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *value;
    size_t len;
    *floor_r = 0;
    int r = rows_get(s, ROW_MODSEQ_FLOOR, k.b, k.n, &value, &len);
    if (r <= 0)
        return r;
    struct orset_reader in = orset_reader_of(value, len);
    *floor_r = orset_read_num(&in, ORSET_MODSEQ_MAX);
    return in.bad ? rows_corrupt(s, "the row of a modseq") : 0;
}

static int raise(struct session *s, uint32_t folder, uint64_t had, uint64_t to)
{
    struct orset_key k = rows_folder_key(folder);
    struct orset_buf b = {.alloc = session_alloc()};
    if (to <= had || to > ORSET_MODSEQ_MAX)
        return 0;
    orset_buf_num(&b, to);
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_MODSEQ_FLOOR, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

int modseq_floor_keep(struct session *s, const struct box *x)
{
    uint64_t had;
    if (x->at.indexid == 0 || x->at.modseq <= 1)
        return 0; /* nobody looked at it since, or it never changed */
    if (modseq_floor_get(s, x->folder, &had) < 0)
        return -1;
    return raise(s, x->folder, had, x->at.modseq + UNSEEN);
}

int modseq_floor_heard(struct session *s, uint32_t folder, uint64_t modseq)
{
    uint64_t had;
    if (modseq_floor_get(s, folder, &had) < 0)
        return -1;
    return had == 0 || modseq > had + HEARD_MOST ? 0 : raise(s, folder, had, modseq + 1);
}
