/* modseq_floor - row ROW_MODSEQ_FLOOR: two numbers a folder, the floor and what was written. */
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

struct floor {
    uint64_t modseq;
    uint64_t written; /* by this site itself; 0: nothing far, or a row of before, without it */
};

static int get(struct session *s, uint32_t folder, struct floor *f)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *value;
    size_t len;
    *f = (struct floor){0};
    int r = rows_get(s, ROW_MODSEQ_FLOOR, k.b, k.n, &value, &len);
    if (r <= 0)
        return r;
    struct orset_reader in = orset_reader_of(value, len);
    f->modseq = orset_read_num(&in, ORSET_MODSEQ_MAX);
    if (!in.bad && in.at != in.end)
        f->written = orset_read_num(&in, ORSET_MODSEQ_MAX);
    return in.bad ? rows_corrupt(s, "the row of a modseq") : 0;
}

int modseq_floor_get(struct session *s, uint32_t folder, uint64_t *floor_r)
{
    struct floor f;
    int r = get(s, folder, &f);
    *floor_r = f.modseq;
    return r;
}

static int put(struct session *s, uint32_t folder, const struct floor *f)
{
    struct orset_key k = rows_folder_key(folder);
    struct orset_buf b = {.alloc = session_alloc()};
    orset_buf_num(&b, f->modseq);
    orset_buf_num(&b, f->written);
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_MODSEQ_FLOOR, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

int modseq_floor_keep(struct session *s, const struct box *x)
{
    struct floor f;
    if (x->at.indexid == 0 || x->at.modseq <= 1)
        return 0; /* nobody looked at it since, or it never changed */
    if (get(s, x->folder, &f) < 0)
        return -1;
    uint64_t to = I_MAX(x->at.modseq, f.written) + UNSEEN;
    if (to <= f.modseq || to > ORSET_MODSEQ_MAX)
        return 0;
    f.modseq = to;
    return put(s, x->folder, &f);
}

int modseq_floor_written(struct session *s, const struct box *x, uint64_t modseq)
{
    struct floor f;
    if (modseq <= x->at.modseq + UNSEEN / 2)
        return 0;
    if (get(s, x->folder, &f) < 0)
        return -1;
    if (modseq <= f.written || modseq > ORSET_MODSEQ_MAX)
        return 0;
    f.written = modseq;
    return put(s, x->folder, &f);
}

int modseq_floor_heard(struct session *s, uint32_t folder, uint64_t modseq)
{
    struct floor f;
    if (get(s, folder, &f) < 0)
        return -1;
    if (f.modseq == 0 || modseq > f.modseq + HEARD_MOST || modseq + 1 <= f.modseq ||
        modseq + 1 > ORSET_MODSEQ_MAX)
        return 0;
    f.modseq = modseq + 1;
    return put(s, folder, &f);
}
