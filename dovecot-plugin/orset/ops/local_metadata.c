/* local_metadata - what changed among subscriptions and attributes here becomes an op
 * (local_changes.c). */
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/metadata.h"
#include "dovecot-plugin/orset/state/tasks.h"

int orset_local_subscribe(struct orset *os, const char *name, size_t len, bool on)
{
    struct orset_dot dots[ORSET_SUBSCRIPTION_DOTS];
    struct orset_reader rd;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!orset_name_valid(name, len))
        return orset_fail(os, ORSET_E_LIMIT,
                          "subscription of a name that is empty, too long or too deep");
    int n = orset_subscription_dots(os, name, len, dots, ORSET_SUBSCRIPTION_DOTS);
    int waits = orset_task_row(os, ORSET_TASK_SUBSCRIPTION, 0, name, len, &rd);
    if (n < 0 || waits < 0)
        return n < 0 ? n : waits;
    if (waits) {
        if (on == (n > 0) && (r = orset_task_del(os, ORSET_TASK_SUBSCRIPTION, 0, name, len)) < 0)
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
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!orset_name_valid(name, len))
        return ORSET_KNOWN;
    int n = orset_subscription_dots(os, name, len, &d, 1);
    if (n < 0)
        return n;
    if (on == (n > 0))
        return orset_task_del(os, ORSET_TASK_SUBSCRIPTION, 0, name, len) < 0 ? ORSET_E_STORAGE
                                                                             : ORSET_KNOWN;
    return orset_task_put(os, ORSET_TASK_SUBSCRIPTION, 0, name, len, NULL);
}

int orset_local_attribute_shown(struct orset *os, uint32_t folder, const char *key, size_t key_len,
                                const uint8_t *value, size_t len)
{
    struct orset_key k;
    struct attribute a;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    orset_attribute_key(&k, folder, key, key_len);
    if ((r = orset_attribute_load(os, &k, &a)) < 0)
        return r;
    uint64_t shown = orset_value_hash(value, len, value != NULL);
    if (orset_value_hash(a.value, a.len, a.set) == shown)
        return orset_task_del(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len) < 0 ? ORSET_E_STORAGE
                                                                                  : ORSET_KNOWN;
    os->row.len = 0;
    orset_buf_u64(&os->row, shown);
    return orset_task_put(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len, &os->row);
}

int orset_local_attribute(struct orset *os, uint32_t folder, const char *key, size_t key_len,
                          const uint8_t *value, size_t len)
{
    struct folder *f = orset_folder_at(os, folder);
    struct orset_key k;
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
    orset_attribute_key(&k, folder, key, key_len);
    int waits = orset_task_row(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len, &rd);
    uint64_t seen = waits > 0 ? orset_read_u64(&rd) : 0,
             now = orset_value_hash(value, len, value != NULL);
    if (waits < 0 || orset_attribute_load(os, &k, &a) < 0)
        return ORSET_E_STORAGE;
    uint64_t wanted = orset_value_hash(a.value, a.len, a.set);
    if (now == wanted && waits)
        return orset_task_del(os, ORSET_TASK_ATTRIBUTE, folder, key, key_len) < 0 ? ORSET_E_STORAGE
                                                                                  : ORSET_KNOWN;
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
