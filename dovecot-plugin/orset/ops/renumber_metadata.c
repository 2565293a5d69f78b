/* renumber_metadata - a new epoch's numbers and stamps in subscriptions and attributes
 * (renumber.c). */
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/renumber.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/metadata.h"

struct rows {
    struct orset *os;
    struct orset_buf list; /* keys, as texts */
};

static int collect_key(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct rows *w = arg;
    (void)v;
    (void)vlen;
    orset_buf_text(&w->list, key, len);
    return w->list.failed ? -1 : 0;
}

static int renumber_subscription(struct renumber *n, const struct orset_key *k)
{
    struct orset *os = n->os;
    struct orset_dot dots[ORSET_SUBSCRIPTION_DOTS];
    if (!orset_name_valid(k->b, k->n))
        return orset_corrupt(os, "a subscription's name");
    int had = orset_subscription_dots(os, k->b, k->n, dots, ORSET_SUBSCRIPTION_DOTS);
    os->row.len = 0;
    for (int i = 0; i < had; i++) {
        orset_renumber_dot(n, &dots[i]);
        orset_dot_write(&os->row, dots[i]);
        orset_sum_add(&os->named, orset_subscription_sum(os, k->b, k->n, dots[i]));
    }
    return had < 0 ? had : orset_row_put(os, ORSET_T_SUBSCRIPTION, k, &os->row);
}

static int renumber_attribute(struct renumber *n, const struct orset_key *k)
{
    struct orset *os = n->os;
    struct orset_reader r = orset_reader_of(k->b, k->n);
    struct attribute a;
    uint64_t folder = orset_key_read(&r, os->nfolders);
    int got = r.bad ? orset_corrupt(os, "an attribute's key") : orset_attribute_load(os, k, &a);
    if (got <= 0)
        return got;
    orset_restamp(n, &a.stamp);
    orset_sum_add(&os->named,
                  orset_attribute_sum(os, folder ? (uint32_t)folder - 1 : ORSET_NO_FOLDER, r.at,
                                      (size_t)(r.end - r.at), &a));
    return orset_attribute_store(os, k, &a);
}

/* All of both tables: a folder's new id changes the sum of each of its attributes. */
int orset_named_renumber(struct renumber *n)
{
    struct orset *os = n->os;
    os->named = (struct orset_sum){0, 0};
    os->meta_dirty = true;
    for (enum orset_table t = ORSET_T_SUBSCRIPTION; t <= ORSET_T_ATTRIBUTE; t++) {
        struct rows w = {os, {.alloc = &os->alloc}};
        int r = os->store.each(os->store.ctx, t, "", 0, 0, collect_key, &w);
        if (r < 0)
            r = w.list.failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a new epoch")
                              : orset_storage_fail(os, "subscriptions and attributes");
        struct orset_reader l = orset_reader_of(w.list.data, w.list.len);
        l.bad = w.list.len == 0;
        while (r >= 0 && !l.bad && l.at < l.end) {
            struct orset_key k = {0};
            size_t len;
            const uint8_t *key = orset_read_text(&l, ORSET_KEY_MAX, &len);
            orset_key_put(&k, key, len);
            r = t == ORSET_T_SUBSCRIPTION ? renumber_subscription(n, &k)
                                          : renumber_attribute(n, &k);
        }
        orset_buf_free(&w.list);
        if (r < 0)
            return r;
    }
    return 0;
}
