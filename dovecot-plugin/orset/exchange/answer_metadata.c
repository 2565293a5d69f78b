/* answer_metadata - subscriptions and attributes of an answer. */
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/metadata.h"

#include <string.h>

struct named_rows {
    struct orset *os;
    struct orset_buf *b;
    uint64_t n;
    bool corrupt;
    const uint8_t *skip; /* the cursor's own row */
    size_t skip_len;
    struct orset_key last;
};

static int subscription_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v,
                            size_t vlen)
{
    struct named_rows *w = arg;
    struct orset_reader r = orset_reader_of(v, vlen);
    uint64_t n = 0;
    for (; !r.bad && r.at < r.end; n++)
        orset_row_read_dot(w->os, &r);
    if (r.bad || n > ORSET_SUBSCRIPTION_DOTS || !orset_name_valid(key, len)) {
        w->corrupt = true;
        return orset_corrupt(w->os, "a subscription's row");
    }
    orset_buf_text(w->b, key, len);
    orset_buf_num(w->b, n);
    orset_buf_put(w->b, v, vlen);
    w->n++;
    return w->b->failed || w->b->len > X_SUBSCRIPTIONS ? -1 : 0;
}

/* A row of ORSET_T_ATTRIBUTE: folder + 1 (0: the server), key -> clock, site, epoch, set, value. */
static int attribute_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct named_rows *w = arg;
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    if (len == w->skip_len && memcmp(key, w->skip, len) == 0)
        return 0;
    if (w->n > 0 && w->b->len + len + vlen > X_BYTES)
        return 1;
    uint64_t folder = orset_key_read(&k, w->os->nfolders),
             clock = orset_read_num(&r, ORSET_CLOCK_MAX);
    uint64_t site = orset_read_u64(&r), epoch = orset_read_u64(&r);
    uint8_t set = orset_read_u8(&r);
    if (k.bad || k.at == k.end || r.bad || set > 1 || r.end - r.at > ORSET_ATTRIBUTE_MAX) {
        w->corrupt = true;
        return orset_corrupt(w->os, "an attribute's row");
    }
    orset_buf_u8(w->b, folder == 0);
    if (folder)
        orset_folder_id_write(w->b, orset_folder_at(w->os, (uint32_t)folder - 1));
    orset_buf_text(w->b, k.at, (size_t)(k.end - k.at));
    orset_buf_num(w->b, clock);
    orset_buf_u64(w->b, site);
    orset_buf_u64(w->b, epoch);
    orset_buf_u8(w->b, set);
    if (set)
        orset_buf_text(w->b, r.at, (size_t)(r.end - r.at));
    w->last.n = 0;
    orset_key_put(&w->last, key, len);
    w->n++;
    return w->b->failed ? -1 : 0;
}

int orset_write_named(struct orset *os, struct orset_reader *q, struct orset_buf *b)
{
    size_t len;
    const uint8_t *cursor = orset_read_text(q, ORSET_KEY_MAX - 8, &len);
    struct orset_buf rows = {.alloc = &os->alloc};
    struct named_rows w = {.os = os, .b = &rows};
    const struct orset_store *s = &os->store;
    if (q->bad || q->at != q->end)
        return orset_fail(os, ORSET_E_MALFORMED, "a question that cannot be read");
    int r = len == 0 ? s->each(s->ctx, ORSET_T_SUBSCRIPTION, "", 0, 0, subscription_row, &w) : 0;
    if (len == 0 && r >= 0)
        orset_buf_num(b, w.n);
    orset_buf_put(b, rows.data, rows.len);
    rows.len = 0;
    w.n = 0;
    w.skip = cursor;
    w.skip_len = len;
    if (r >= 0)
        r = s->each(s->ctx, ORSET_T_ATTRIBUTE, cursor, len, 0, attribute_row, &w);
    orset_buf_num(b, w.n);
    orset_buf_put(b, rows.data, rows.len);
    orset_buf_text(b, w.last.b, r > 0 ? w.last.n : 0);
    bool failed = rows.failed;
    orset_buf_free(&rows);
    if (w.corrupt)
        return ORSET_E_STORAGE;
    if (r < 0)
        return failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for an answer")
                      : orset_fail(os, ORSET_E_LIMIT,
                                   "more subscriptions than an exchange carries (%d bytes)",
                                   X_SUBSCRIPTIONS);
    return 0;
}
