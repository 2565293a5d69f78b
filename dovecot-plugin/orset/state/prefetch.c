/* prefetch - tells the store which rows come next, so that it can fetch them side by side: the
 * UIDs' rows, and when they say which messages these are, the messages'. A hint: what cannot be
 * read is left to the calls that follow. */
#include "dovecot-plugin/orset/state/prefetch.h"
#include "dovecot-plugin/orset/base/rows.h"

#include <string.h>

/* Longest key here: folder, origin and counter as numbers. */
#define KEY_MAX 27

struct expected {
    size_t n;
    struct orset_ref ref[ORSET_PREFETCH];
    uint8_t key[ORSET_PREFETCH][KEY_MAX];
};

static void add(struct expected *e, const struct orset_key *k)
{
    memcpy(e->key[e->n], k->b, k->n);
    e->ref[e->n] = (struct orset_ref){e->key[e->n], k->n};
    e->n++;
}

static void add_message(struct expected *e, struct place p)
{
    struct orset_key k;
    k.n = 0;
    orset_key_num(&k, p.folder);
    orset_key_dot(&k, p.dot);
    add(e, &k);
}

static void add_uid(struct expected *e, uint32_t folder, uint32_t uid)
{
    struct orset_key k;
    k.n = 0;
    orset_key_num(&k, folder);
    orset_key_num(&k, uid);
    add(e, &k);
}

void orset_prefetch_messages(struct orset *os, const struct place *at, size_t n)
{
    struct expected e;
    if (!os->store.expect)
        return;
    for (size_t i = 0; i < n;) {
        for (e.n = 0; e.n < ORSET_PREFETCH && i < n; i++)
            add_message(&e, at[i]);
        os->store.expect(os->store.ctx, ORSET_T_MESSAGE, e.ref, e.n);
    }
}

static bool read_place(struct orset *os, const struct orset_ref *uid, struct place *p)
{
    const uint8_t *v;
    size_t len;
    if (os->store.get(os->store.ctx, ORSET_T_UID, uid->key, uid->len, &v, &len) <= 0)
        return false;
    struct orset_reader r = orset_reader_of(v, len);
    p->folder = (uint32_t)orset_read_num(&r, ORSET_FOLDERS_MAX);
    p->dot = orset_row_read_dot(os, &r);
    return !r.bad;
}

void orset_prefetch(struct orset *os, uint32_t folder, const uint32_t *uid, size_t n)
{
    struct expected e;
    struct place at[ORSET_PREFETCH];
    if (!os->store.expect)
        return;
    for (size_t i = 0; i < n;) {
        size_t found = 0;
        for (e.n = 0; e.n < ORSET_PREFETCH && i < n; i++)
            add_uid(&e, folder, uid[i]);
        os->store.expect(os->store.ctx, ORSET_T_UID, e.ref, e.n);
        for (size_t j = 0; j < e.n; j++)
            found += read_place(os, &e.ref[j], &at[found]);
        orset_prefetch_messages(os, at, found);
    }
}
