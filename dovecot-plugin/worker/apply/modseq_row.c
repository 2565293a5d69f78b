/* modseq_row - reads and writes the row of mails whose modseqs are to be raised. What is not
 * understood, as of an older version, is an empty row. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/modseq_row.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#define ROW_VERSION 2
#define RANGES_MOST 10000 /* of one set; one that has more is made the range of all */

static void put_set(struct orset_buf *b, ARRAY_TYPE(seq_range) * uids)
{
    const struct seq_range *range;
    unsigned n;
    range = array_get(uids, &n);
    if (n > RANGES_MOST) {
        struct seq_range all = {range[0].seq1, range[n - 1].seq2};
        array_clear(uids);
        seq_range_array_add_range(uids, all.seq1, all.seq2);
    }
    orset_buf_num(b, array_count(uids));
    array_foreach (uids, range) {
        orset_buf_num(b, range->seq1);
        orset_buf_num(b, range->seq2);
    }
}

static void read_set(struct orset_reader *in, ARRAY_TYPE(seq_range) * uids)
{
    for (uint64_t n = orset_read_num(in, RANGES_MOST); n > 0 && !in->bad; n--) {
        uint32_t from = (uint32_t)orset_read_num(in, UINT32_MAX),
                 to = (uint32_t)orset_read_num(in, UINT32_MAX);
        in->bad = in->bad || from == 0 || from > to;
        if (!in->bad)
            seq_range_array_add_range(uids, from, to);
    }
}

static void read_row(struct orset_reader *in, struct modseq_row *row)
{
    read_set(in, &row->changed);
    row->lo = orset_read_num(in, UINT64_MAX);
    row->hi = orset_read_num(in, UINT64_MAX);
    row->before = orset_read_num(in, UINT64_MAX);
    row->conflict = orset_read_u8(in) != 0;
    read_set(in, &row->raised);
    row->raise_lo = orset_read_num(in, UINT64_MAX);
    row->raise = orset_read_num(in, UINT64_MAX);
    row->nowing = (unsigned)orset_read_num(in, FRAME_SITES_MAX);
    for (unsigned i = 0; i < row->nowing && !in->bad; i++) {
        struct raise_owed *o = &row->owing[i];
        o->site = orset_read_num(in, UINT64_MAX);
        o->lo = orset_read_num(in, UINT64_MAX);
        o->value = orset_read_num(in, UINT64_MAX);
        t_array_init(&o->uids, 8);
        read_set(in, &o->uids);
    }
    row->told_at = (time_t)orset_read_num(in, INT64_MAX);
    row->tells = (unsigned)orset_read_num(in, 30);
    row->gap = (unsigned)orset_read_num(in, UINT32_MAX);
    in->bad = in->bad || in->at != in->end;
}

int modseq_row_get(struct session *s, uint32_t folder, struct modseq_row *row)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *value;
    size_t len;
    i_zero(row);
    t_array_init(&row->changed, 8);
    t_array_init(&row->raised, 8);
    int r = rows_get(s, ROW_MODSEQ_REPAIR, k.b, k.n, &value, &len);
    if (r <= 0)
        return r;
    struct orset_reader in = orset_reader_of(value, len);
    if (orset_read_u8(&in) != ROW_VERSION)
        return 0;
    read_row(&in, row);
    return in.bad ? rows_corrupt(s, "the row of modseqs to be raised") : 0;
}

static bool is_empty(const struct modseq_row *row)
{
    return array_is_empty(&row->changed) && array_is_empty(&row->raised) && row->nowing == 0;
}

int modseq_row_put(struct session *s, uint32_t folder, struct modseq_row *row)
{
    struct orset_key k = rows_folder_key(folder);
    struct orset_buf b = {.alloc = session_alloc()};
    if (is_empty(row))
        return rows_del(s, ROW_MODSEQ_REPAIR, k.b, k.n);
    orset_buf_u8(&b, ROW_VERSION);
    put_set(&b, &row->changed);
    orset_buf_num(&b, row->lo);
    orset_buf_num(&b, row->hi);
    orset_buf_num(&b, row->before);
    orset_buf_u8(&b, row->conflict);
    put_set(&b, &row->raised);
    orset_buf_num(&b, row->raise_lo);
    orset_buf_num(&b, row->raise);
    orset_buf_num(&b, row->nowing);
    for (unsigned i = 0; i < row->nowing; i++) {
        orset_buf_num(&b, row->owing[i].site);
        orset_buf_num(&b, row->owing[i].lo);
        orset_buf_num(&b, row->owing[i].value);
        put_set(&b, &row->owing[i].uids);
    }
    orset_buf_num(&b, (uint64_t)row->told_at);
    orset_buf_num(&b, row->tells);
    orset_buf_num(&b, row->gap);
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_MODSEQ_REPAIR, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

ARRAY_DEFINE_TYPE(folder, uint32_t);

static int collect_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
                       size_t len)
{
    ARRAY_TYPE(folder) *list = arg;
    struct orset_reader k = {key + 1, key + key_len, false};
    uint32_t folder = (uint32_t)orset_key_read(&k, UINT32_MAX);
    (void)value;
    (void)len;
    array_push_back(list, &folder);
    return 0;
}

int modseq_rows(struct session *s, int (*fn)(struct session *, uint32_t folder))
{
    ARRAY_TYPE(folder) list;
    const uint32_t *folder;
    int r;
    i_array_init(&list, 8);
    r = rows_each(s, ROW_MODSEQ_REPAIR, collect_row, &list);
    array_foreach (&list, folder) {
        if (r < 0)
            break;
        T_BEGIN
        {
            r = fn(s, *folder);
        }
        T_END;
    }
    array_free(&list);
    return r;
}
