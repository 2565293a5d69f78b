/* merge_metadata - subscriptions and attributes of a giver's answer into this state; the rules
 * stand in merge.c.
 */
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/metadata.h"

#include <string.h>

/* --- subscriptions and attributes
 * --------------------------------------------------------------------------------------- */

/* One name: theirs (n dots; 0: they do not have it). */
static int merge_subscription(struct orset *os, struct orset_exchange *x, struct peer *p,
                              const void *name, size_t len, const struct orset_dot *theirs,
                              unsigned n)
{
    struct orset_dot mine[ORSET_SUBSCRIPTION_DOTS], kill[ORSET_SUBSCRIPTION_DOTS];
    unsigned nkill = 0;
    int had = orset_subscription_dots(os, name, len, mine, ORSET_SUBSCRIPTION_DOTS), r = 0;
    if (had < 0)
        return had;
    for (int i = 0; r == 0 && i < had; i++) {
        bool there = false;
        for (unsigned j = 0; j < n; j++)
            there |= orset_same_dot(mine[i], theirs[j]);
        if (there || !orset_gone(x, p, mine[i]))
            continue;
        kill[nkill++] = mine[i];
        r = orset_remember(os, mine[i], p->sender);
    }
    /* What comes first, so that the name is not seen to go in between. */
    for (unsigned j = 0; r == 0 && j < n; j++) {
        bool here = false;
        for (int i = 0; i < had; i++)
            here |= orset_same_dot(mine[i], theirs[j]);
        int want = here ? 0 : orset_wanted(os, theirs[j]);
        r = want > 0 ? orset_subscription_apply(os, name, len, NULL, 0, theirs[j], false) : want;
    }
    if (r == 0 && nkill)
        r = orset_subscription_apply(os, name, len, kill, nkill, (struct orset_dot){0, 0}, false);
    return r;
}

struct names {
    struct orset *os;
    struct orset_buf list;
};

static int collect_name(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct names *n = arg;
    (void)v;
    (void)vlen;
    if (!orset_name_valid(key, len))
        return orset_corrupt(n->os, "a subscription's name");
    orset_buf_text(&n->list, key, len);
    return n->list.failed ? -1 : 0;
}

static int name_order(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
    int order = memcmp(a, b, alen < blen ? alen : blen);
    return order ? order : (alen > blen) - (alen < blen);
}

/* All subscriptions come in one answer (they are few and short), in the order of their names, as
 * the stores have them; so both lists are walked once. Names of ours that they do not list are
 * checked as absent. */
static int merge_subscriptions(struct orset *os, struct orset_exchange *x, struct peer *p,
                               struct op_run *in)
{
    struct names mine = {os, {.alloc = &os->alloc}};
    const struct orset_store *s = &os->store;
    int r = s->each(s->ctx, ORSET_T_SUBSCRIPTION, "", 0, 0, collect_name, &mine);
    if (r < 0 && mine.list.failed)
        r = orset_fail(os, ORSET_E_MEMORY, "no memory for subscriptions");
    else if (r < 0 && !os->broken)
        r = orset_storage_fail(os, "subscriptions");
    struct orset_reader m = orset_reader_of(mine.list.data, mine.list.len);
    uint64_t n = orset_read_num(&in->in, UINT32_MAX);
    const uint8_t *ours = NULL, *before = NULL;
    size_t our_len = 0, before_len = 0;
    for (uint64_t i = 0; r == 0 && i <= n; i++) {
        struct orset_dot dots[ORSET_SUBSCRIPTION_DOTS];
        const uint8_t *name = NULL;
        size_t len = 0;
        uint64_t k = 0;
        if (i < n) {
            name = orset_read_text(&in->in, ORSET_NAME_MAX, &len);
            k = orset_read_num(&in->in, ORSET_SUBSCRIPTION_DOTS);
            if (in->in.bad || !orset_name_valid(name, len) ||
                (before && name_order(before, before_len, name, len) >= 0))
                r = orset_fail(os, ORSET_E_MALFORMED, "a subscription that cannot be read");
            before = name;
            before_len = len;
        }
        for (uint64_t j = 0; r == 0 && j < k; j++)
            r = orset_read_dot(in, &dots[j]);
        /* Ours below theirs (after the last of theirs: all that are left) are not in their list. */
        while (r == 0 && (ours || m.at < m.end)) {
            if (!ours)
                ours = orset_read_text(&m, ORSET_NAME_MAX, &our_len);
            int order = name ? name_order(ours, our_len, name, len) : -1;
            if (order > 0)
                break;
            if (order < 0)
                r = merge_subscription(os, x, p, ours, our_len, NULL, 0);
            ours = NULL;
            if (order == 0)
                break;
        }
        if (r == 0 && name)
            r = merge_subscription(os, x, p, name, len, dots, (unsigned)k);
    }
    orset_buf_free(&mine.list);
    return r;
}

static int merge_attribute(struct orset *os, struct op_run *in)
{
    struct folder *f = NULL;
    struct stamp s;
    size_t key_len, len = 0;
    uint8_t server = orset_read_u8(&in->in);
    int r = server == 1 ? 0 : orset_read_folder_made(in, &f);
    if (r < 0)
        return r;
    const uint8_t *key = orset_read_text(&in->in, ORSET_ATTRIBUTE_KEY_MAX, &key_len), *value = NULL;
    if ((r = orset_read_stamp(os, &in->in, &s)) < 0)
        return r;
    uint8_t set = orset_read_u8(&in->in);
    if (set)
        value = orset_read_text(&in->in, ORSET_ATTRIBUTE_MAX, &len);
    if (in->in.bad || key_len == 0 || server > 1 || set > 1 || s.clock == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "an attribute that cannot be read");
    return orset_attribute_apply(os, f ? f->index : ORSET_NO_FOLDER, key, key_len, value, len, set,
                                 s, false);
}

/* answer = subscriptions (first page only: cursor empty), n attributes, cursor (empty: the end) */
int orset_merge_named(struct orset *os, struct orset_exchange *x, struct peer *p, struct op_run *in,
                      bool *end)
{
    int r = x->cursor_len == 0 ? merge_subscriptions(os, x, p, in) : 0;
    uint64_t n = r == 0 ? orset_read_num(&in->in, UINT32_MAX) : 0;
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = merge_attribute(os, in);
    if (r < 0)
        return r;
    size_t len;
    const uint8_t *cursor = orset_read_text(&in->in, ORSET_KEY_MAX - 8, &len);
    if (in->in.bad)
        return orset_fail(os, ORSET_E_MALFORMED, "an answer that cannot be read");
    *end = len == 0;
    memcpy(x->cursor, cursor, len);
    x->cursor_len = len;
    return 0;
}
