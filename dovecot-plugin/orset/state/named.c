/* named - what hangs on a name: subscriptions (enable-wins dots per folder name) and attributes
 * (a Lamport register per folder or server and key: METADATA, ACL, Sieve scripts). */
#include "dovecot-plugin/orset/internal.h"

#include <string.h>

/* --- subscriptions
 * ---------------------------------------------------------------------------------------------- */

static void name_key(struct orset_key *k, const void *name, size_t len)
{
    k->n = 0;
    orset_key_put(k, name, len);
}

int orset_subscription_dots(struct orset *os, const void *name, size_t len, struct orset_dot *dots,
                            unsigned most)
{
    struct orset_key k;
    struct orset_reader r;
    unsigned n = 0;
    name_key(&k, name, len);
    int got = orset_row_get(os, ORSET_T_SUBSCRIPTION, &k, &r);
    if (got <= 0)
        return got;
    while (!r.bad && r.at < r.end && n < most)
        dots[n++] = orset_row_read_dot(os, &r);
    return r.bad || (r.at < r.end && n == ORSET_SUBSCRIPTION_DOTS)
               ? orset_corrupt(os, "a subscription's row")
               : (int)n;
}

/* As an exchange carries them: a few dots, one for each site at most, besides the name. */
#define SUBSCRIPTION_COSTS 16

static int count_subscription(void *arg, const uint8_t *key, size_t len, const uint8_t *v,
                              size_t vlen)
{
    (void)key, (void)v, (void)vlen;
    *(size_t *)arg += len + SUBSCRIPTION_COSTS;
    return 0;
}

int orset_subscriptions_with(struct orset *os, size_t name_len)
{
    if (os->subscriptions == 0) {
        size_t bytes = 1;
        if (os->store.each(os->store.ctx, ORSET_T_SUBSCRIPTION, "", 0, 0, count_subscription,
                           &bytes) < 0)
            return orset_storage_fail(os, "subscriptions");
        os->subscriptions = bytes;
    }
    return (int)(os->subscriptions - 1 + name_len + SUBSCRIPTION_COSTS);
}

static struct orset_sum subscription_sum(const struct orset *os, const void *name, size_t len,
                                         struct orset_dot d)
{
    uint64_t w[4] = {1, orset_hash(name, len).lo, os->origin[d.origin].hash, d.counter};
    return orset_hash_words(w, 4);
}

/* Takes the dots named away, puts the fresh one (counter 0: none; an origin's later dot replaces
 * its earlier one). */
int orset_subscription_exec(struct orset *os, const void *name, size_t len,
                            const struct orset_dot *kill, unsigned nkill, struct orset_dot add,
                            bool local)
{
    struct orset_dot dots[ORSET_SUBSCRIPTION_DOTS + 1];
    struct orset_key k;
    int had = orset_subscription_dots(os, name, len, dots, ORSET_SUBSCRIPTION_DOTS), r;
    unsigned n = 0;
    if (had < 0)
        return had;
    for (int i = 0; i < had; i++) {
        bool gone = false;
        for (unsigned j = 0; j < nkill; j++)
            gone |= dots[i].origin == kill[j].origin && dots[i].counter == kill[j].counter;
        if (add.counter && dots[i].origin == add.origin) {
            if (dots[i].counter >= add.counter)
                add.counter = 0;
            else
                gone = true;
        }
        if (gone)
            orset_sum_sub(&os->named, subscription_sum(os, name, len, dots[i]));
        else
            dots[n++] = dots[i];
    }
    if (add.counter && n == ORSET_SUBSCRIPTION_DOTS) /* of an op this was found in its dry run */
        return orset_fail(os, ORSET_E_LIMIT, "more than %d sites and epochs subscribed one name",
                          ORSET_SUBSCRIPTION_DOTS);
    if (had == 0 && n + (add.counter != 0) > 0 && os->subscriptions)
        os->subscriptions += len + SUBSCRIPTION_COSTS;
    else if (had > 0 && n + (add.counter != 0) == 0)
        os->subscriptions -=
            os->subscriptions > len + SUBSCRIPTION_COSTS ? len + SUBSCRIPTION_COSTS : 0;
    if (add.counter) {
        orset_sum_add(&os->named, subscription_sum(os, name, len, add));
        dots[n++] = add;
        if ((r = orset_arrived(os, ORSET_NO_FOLDER, add)) < 0)
            return r;
    }
    os->meta_dirty = true;
    name_key(&k, name, len);
    os->row.len = 0;
    for (unsigned i = 0; i < n; i++)
        orset_dot_write(&os->row, dots[i]);
    r = n ? orset_row_put(os, ORSET_T_SUBSCRIPTION, &k, &os->row)
          : orset_row_del(os, ORSET_T_SUBSCRIPTION, &k);
    if (r < 0 || local || (had > 0) == (n > 0))
        return r;
    /* A row that waits means that the mailbox has the opposite: a change back settles it. */
    struct orset_key t = {0};
    struct orset_reader rd;
    orset_key_num(&t, ORSET_TASK_SUBSCRIPTION);
    orset_key_num(&t, 0);
    orset_key_put(&t, name, len);
    int waits = orset_row_get(os, ORSET_T_TASK, &t, &rd);
    return waits < 0 ? waits
           : waits   ? orset_row_del(os, ORSET_T_TASK, &t)
                     : orset_row_put(os, ORSET_T_TASK, &t, NULL);
}

bool orset_subscribed(struct orset *os, const char *name, size_t len)
{
    struct orset_dot d;
    return orset_subscription_dots(os, name, len, &d, 1) > 0;
}

int orset_local_subscribe(struct orset *os, const char *name, size_t len, bool on)
{
    struct orset_dot dots[ORSET_SUBSCRIPTION_DOTS];
    struct orset_key t = {0};
    struct orset_reader rd;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!orset_name_valid(name, len))
        return orset_fail(os, ORSET_E_LIMIT,
                          "subscription of a name that is empty, too long or too deep");
    orset_key_num(&t, ORSET_TASK_SUBSCRIPTION);
    orset_key_num(&t, 0);
    orset_key_put(&t, name, len);
    int n = orset_subscription_dots(os, name, len, dots, ORSET_SUBSCRIPTION_DOTS);
    int waits = orset_row_get(os, ORSET_T_TASK, &t, &rd);
    if (n < 0 || waits < 0)
        return n < 0 ? n : waits;
    if (waits) {
        if (on == (n > 0) && (r = orset_row_del(os, ORSET_T_TASK, &t)) < 0)
            return r;
        return ORSET_KNOWN;
    }
    if (on == (n > 0))
        return ORSET_KNOWN;
    int bytes = on ? orset_subscriptions_with(os, len) : 0;
    if (bytes < 0 || bytes > ORSET_MAKE_SUBSCRIPTIONS_MAX)
        return bytes < 0
                   ? bytes
                   : orset_fail(os, ORSET_E_LIMIT,
                                "this user's subscriptions are %d bytes, and a site makes no more",
                                ORSET_MAKE_SUBSCRIPTIONS_MAX);
    orset_op_begin(os, OP_SUBSCRIBE);
    orset_buf_text(&os->op, name, len);
    orset_buf_u8(&os->op, on);
    orset_buf_num(&os->op, (uint64_t)n);
    for (int i = 0; i < n; i++)
        orset_dot_write(&os->op, dots[i]);
    return orset_emit(os, 0);
}

int orset_local_subscription_shown(struct orset *os, const char *name, size_t len, bool on)
{
    struct orset_dot d;
    struct orset_key t = {0};
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!orset_name_valid(name, len))
        return ORSET_KNOWN;
    orset_key_num(&t, ORSET_TASK_SUBSCRIPTION);
    orset_key_num(&t, 0);
    orset_key_put(&t, name, len);
    int n = orset_subscription_dots(os, name, len, &d, 1);
    if (n < 0)
        return n;
    if (on == (n > 0))
        return orset_row_del(os, ORSET_T_TASK, &t) < 0 ? ORSET_E_STORAGE : ORSET_KNOWN;
    return orset_row_put(os, ORSET_T_TASK, &t, NULL);
}

/* --- attributes
 * ---------------------------------------------------------------------------------------------- */

struct attribute {
    struct stamp stamp;
    bool set;
    const uint8_t *value;
    size_t len;
};

static void attribute_key(struct orset_key *k, uint32_t folder, const void *key, size_t len)
{
    k->n = 0;
    orset_key_num(k, folder == ORSET_NO_FOLDER ? 0 : folder + 1ULL);
    orset_key_put(k, key, len);
}

static int attribute_load(struct orset *os, const struct orset_key *k, struct attribute *a)
{
    struct orset_reader r;
    int got = orset_row_get(os, ORSET_T_ATTRIBUTE, k, &r);
    memset(a, 0, sizeof *a);
    if (got <= 0)
        return got;
    a->stamp.clock = orset_read_num(&r, ORSET_CLOCK_MAX);
    a->stamp.site = orset_read_u64(&r);
    a->stamp.epoch = orset_read_u64(&r);
    a->set = orset_read_u8(&r);
    a->value = r.at;
    a->len = (size_t)(r.end - r.at);
    return r.bad || a->len > ORSET_ATTRIBUTE_MAX ? orset_corrupt(os, "an attribute's row") : 1;
}

/* The value may be the store's own, as it came from attribute_load. */
static int attribute_store(struct orset *os, const struct orset_key *k, const struct attribute *a)
{
    os->row.len = 0;
    orset_buf_num(&os->row, a->stamp.clock);
    orset_buf_u64(&os->row, a->stamp.site);
    orset_buf_u64(&os->row, a->stamp.epoch);
    orset_buf_u8(&os->row, a->set);
    if (a->set)
        orset_buf_put(&os->row, a->value, a->len);
    return orset_row_put(os, ORSET_T_ATTRIBUTE, k, &os->row);
}

static struct orset_sum attribute_sum(const struct orset *os, uint32_t folder, const void *key,
                                      size_t key_len, const struct attribute *a)
{
    const struct folder *f = orset_folder_at(os, folder);
    uint64_t w[9] = {2,
                     0,
                     0,
                     orset_hash(key, key_len).lo,
                     a->stamp.clock,
                     a->stamp.site,
                     a->stamp.epoch,
                     a->set,
                     a->len ? orset_hash(a->value, a->len).lo : 0};
    w[1] = !f ? 1 : f->id.origin == ORSET_INBOX_ORIGIN ? 2 : os->origin[f->id.origin].hash;
    w[2] = f ? f->id.counter : 0;
    return orset_hash_words(w, 9);
}

static uint64_t value_hash(const uint8_t *value, size_t len, bool set)
{
    return set ? orset_hash(value ? value : (const void *)"", len).lo | 1 : 0;
}

int orset_attribute_exec(struct orset *os, uint32_t folder, const void *key, size_t key_len,
                         const uint8_t *value, size_t len, bool set, struct stamp stamp, bool local)
{
    struct orset_key k, t = {0};
    struct attribute old, now = {stamp, set, value, len};
    struct orset_reader rd;
    attribute_key(&k, folder, key, key_len);
    int had = attribute_load(os, &k, &old);
    if (had < 0 || (had && orset_stamp_order(stamp, old.stamp) <= 0))
        return had < 0 ? had : 0;
    uint64_t seen = value_hash(old.value, old.len, old.set);
    if (had)
        orset_sum_sub(&os->named, attribute_sum(os, folder, key, key_len, &old));
    orset_sum_add(&os->named, attribute_sum(os, folder, key, key_len, &now));
    os->meta_dirty = true;
    int r = attribute_store(os, &k, &now);
    if (r < 0)
        return r;
    orset_key_num(&t, ORSET_TASK_ATTRIBUTE);
    orset_key_num(&t, folder);
    orset_key_put(&t, key, key_len);
    int waits = orset_row_get(os, ORSET_T_TASK, &t, &rd);
    if (waits < 0)
        return waits;
    if (waits)
        seen = orset_read_u64(&rd);
    if (local || seen == value_hash(value, len, set))
        return waits ? orset_row_del(os, ORSET_T_TASK, &t) : 0;
    os->row.len = 0;
    orset_buf_u64(&os->row, seen);
    return orset_row_put(os, ORSET_T_TASK, &t, &os->row);
}

int orset_local_attribute_shown(struct orset *os, uint32_t folder, const char *key, size_t key_len,
                                const uint8_t *value, size_t len)
{
    struct orset_key k, t = {0};
    struct attribute a;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    attribute_key(&k, folder, key, key_len);
    if ((r = attribute_load(os, &k, &a)) < 0)
        return r;
    orset_key_num(&t, ORSET_TASK_ATTRIBUTE);
    orset_key_num(&t, folder);
    orset_key_put(&t, key, key_len);
    uint64_t shown = value_hash(value, len, value != NULL);
    if (value_hash(a.value, a.len, a.set) == shown)
        return orset_row_del(os, ORSET_T_TASK, &t) < 0 ? ORSET_E_STORAGE : ORSET_KNOWN;
    os->row.len = 0;
    orset_buf_u64(&os->row, shown);
    return orset_row_put(os, ORSET_T_TASK, &t, &os->row);
}

int orset_attribute_get(struct orset *os, uint32_t folder, const char *key, size_t key_len,
                        const uint8_t **value, size_t *len)
{
    struct orset_key k;
    struct attribute a;
    if (key_len == 0 || key_len > ORSET_ATTRIBUTE_KEY_MAX)
        return 0;
    attribute_key(&k, folder, key, key_len);
    int got = attribute_load(os, &k, &a);
    if (got <= 0 || !a.set)
        return got < 0 ? got : 0;
    *value = a.value;
    *len = a.len;
    return 1;
}

int orset_local_attribute(struct orset *os, uint32_t folder, const char *key, size_t key_len,
                          const uint8_t *value, size_t len)
{
    struct folder *f = orset_folder_at(os, folder);
    struct orset_key k, t = {0};
    struct attribute a;
    struct orset_reader rd;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (key_len == 0 || key_len > ORSET_ATTRIBUTE_KEY_MAX || len > ORSET_ATTRIBUTE_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "attribute %.*s of %zu bytes: at most %d",
                          (int)(key_len > 99 ? 99 : key_len), key, len, ORSET_ATTRIBUTE_MAX);
    if (!f && folder != ORSET_NO_FOLDER)
        return orset_fail(os, ORSET_E_ABSENT, "attribute of folder %u: there is no such folder",
                          folder);
    attribute_key(&k, folder, key, key_len);
    orset_key_num(&t, ORSET_TASK_ATTRIBUTE);
    orset_key_num(&t, folder);
    orset_key_put(&t, key, key_len);
    int waits = orset_row_get(os, ORSET_T_TASK, &t, &rd);
    uint64_t seen = waits > 0 ? orset_read_u64(&rd) : 0,
             now = value_hash(value, len, value != NULL);
    if (waits < 0 || attribute_load(os, &k, &a) < 0)
        return ORSET_E_STORAGE;
    uint64_t wanted = value_hash(a.value, a.len, a.set);
    if (now == wanted && waits)
        return orset_row_del(os, ORSET_T_TASK, &t) < 0 ? ORSET_E_STORAGE : ORSET_KNOWN;
    if (now == wanted || (waits && now == seen))
        return ORSET_KNOWN;
    orset_op_begin(os, OP_ATTRIBUTE);
    orset_buf_u8(&os->op, f == NULL);
    if (f)
        orset_folder_id_write(&os->op, f);
    orset_buf_text(&os->op, key, key_len);
    orset_buf_num(&os->op, orset_next_stamp(os).clock);
    orset_buf_u8(&os->op, value != NULL);
    if (value)
        orset_buf_text(&os->op, value, len);
    return orset_emit(os, 0);
}

/* --- a new epoch
 * ---------------------------------------------------------------------------------------------- */

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
        orset_sum_add(&os->named, subscription_sum(os, k->b, k->n, dots[i]));
    }
    return had < 0 ? had : orset_row_put(os, ORSET_T_SUBSCRIPTION, k, &os->row);
}

static int renumber_attribute(struct renumber *n, const struct orset_key *k)
{
    struct orset *os = n->os;
    struct orset_reader r = orset_reader_of(k->b, k->n);
    struct attribute a;
    uint64_t folder = orset_key_read(&r, os->nfolders);
    int got = r.bad ? orset_corrupt(os, "an attribute's key") : attribute_load(os, k, &a);
    if (got <= 0)
        return got;
    orset_restamp(n, &a.stamp);
    orset_sum_add(&os->named, attribute_sum(os, folder ? (uint32_t)folder - 1 : ORSET_NO_FOLDER,
                                            r.at, (size_t)(r.end - r.at), &a));
    return attribute_store(os, k, &a);
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
