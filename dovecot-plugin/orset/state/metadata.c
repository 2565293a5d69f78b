/* metadata - what hangs on a name: subscriptions (enable-wins dots per folder name) and attributes
 * (a Lamport register per folder or server and key: METADATA, ACL, Sieve scripts). */
#include "dovecot-plugin/orset/state/metadata.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/tasks.h"

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

struct orset_sum orset_subscription_sum(const struct orset *os, const void *name, size_t len,
                                        struct orset_dot d)
{
    uint64_t w[4] = {1, orset_hash(name, len).lo, os->origin[d.origin].hash, d.counter};
    return orset_hash_words(w, 4);
}

/* Takes the dots named away, puts the fresh one (counter 0: none; an origin's later dot replaces
 * its earlier one). */
int orset_subscription_apply(struct orset *os, const void *name, size_t len,
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
            orset_sum_sub(&os->named, orset_subscription_sum(os, name, len, dots[i]));
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
        orset_sum_add(&os->named, orset_subscription_sum(os, name, len, add));
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
    struct orset_reader rd;
    int waits = orset_task_row(os, ORSET_TASK_SUBSCRIPTION, 0, name, len, &rd);
    return waits < 0 ? waits
           : waits   ? orset_task_del(os, ORSET_TASK_SUBSCRIPTION, 0, name, len)
                     : orset_task_put(os, ORSET_TASK_SUBSCRIPTION, 0, name, len, NULL);
}

bool orset_subscribed(struct orset *os, const char *name, size_t len)
{
    struct orset_dot d;
    return orset_subscription_dots(os, name, len, &d, 1) > 0;
}

/* --- attributes
 * ---------------------------------------------------------------------------------------------- */

void orset_attribute_key(struct orset_key *k, uint32_t folder, const void *key, size_t len)
{
    k->n = 0;
    orset_key_num(k, folder == ORSET_NO_FOLDER ? 0 : folder + 1ULL);
    orset_key_put(k, key, len);
}

int orset_attribute_load(struct orset *os, const struct orset_key *k, struct attribute *a)
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
int orset_attribute_store(struct orset *os, const struct orset_key *k, const struct attribute *a)
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

struct orset_sum orset_attribute_sum(const struct orset *os, uint32_t folder, const void *key,
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

uint64_t orset_value_hash(const uint8_t *value, size_t len, bool set)
{
    return set ? orset_hash(value ? value : (const void *)"", len).lo | 1 : 0;
}

int orset_attribute_apply(struct orset *os, uint32_t folder, const void *key, size_t key_len,
                          const uint8_t *value, size_t len, bool set, struct stamp stamp,
                          bool local)
{
    struct orset_key k;
    struct attribute old, now = {stamp, set, value, len};
    struct orset_reader rd;
    orset_attribute_key(&k, folder, key, key_len);
    int had = orset_attribute_load(os, &k, &old);
    if (had < 0 || (had && orset_stamp_order(stamp, old.stamp) <= 0))
        return had < 0 ? had : 0;
    uint64_t seen = orset_value_hash(old.value, old.len, old.set);
    if (had)
        orset_sum_sub(&os->named, orset_attribute_sum(os, folder, key, key_len, &old));
    orset_sum_add(&os->named, orset_attribute_sum(os, folder, key, key_len, &now));
    os->meta_dirty = true;
    int r = orset_attribute_store(os, &k, &now);
    if (r < 0)
        return r;
    int waits = orset_task_row(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len, &rd);
    if (waits < 0)
        return waits;
    if (waits)
        seen = orset_read_u64(&rd);
    if (local || seen == orset_value_hash(value, len, set))
        return waits ? orset_task_del(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len) : 0;
    os->row.len = 0;
    orset_buf_u64(&os->row, seen);
    return orset_task_put(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len, &os->row);
}

int orset_attribute_known(struct orset *os, uint32_t folder, const char *key, size_t key_len)
{
    struct orset_key k;
    struct attribute a;
    if (key_len == 0 || key_len > ORSET_ATTRIBUTE_KEY_MAX)
        return 0;
    orset_attribute_key(&k, folder, key, key_len);
    return orset_attribute_load(os, &k, &a);
}

int orset_attribute_get(struct orset *os, uint32_t folder, const char *key, size_t key_len,
                        const uint8_t **value, size_t *len)
{
    struct orset_key k;
    struct attribute a;
    if (key_len == 0 || key_len > ORSET_ATTRIBUTE_KEY_MAX)
        return 0;
    orset_attribute_key(&k, folder, key, key_len);
    int got = orset_attribute_load(os, &k, &a);
    if (got <= 0 || !a.set)
        return got < 0 ? got : 0;
    *value = a.value;
    *len = a.len;
    return 1;
}
