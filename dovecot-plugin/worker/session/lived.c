/* lived - row ROW_LIVED: for each folder the hash of its name, UIDVALIDITY and UIDNEXT; the latest
 * last. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/lived.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#define LIVED_MAX 200

struct lived {
    uint64_t name;
    uint32_t uid_validity, uid_next;
};
ARRAY_DEFINE_TYPE(lived, struct lived);

static int load(struct session *s, ARRAY_TYPE(lived) * all)
{
    const uint8_t *value;
    size_t len;
    t_array_init(all, 8);
    int r = rows_get(s, ROW_LIVED, "", 0, &value, &len);
    if (r <= 0)
        return r;
    struct orset_reader in = orset_reader_of(value, len);
    while (in.at != in.end && !in.bad) {
        struct lived *one = array_append_space(all);
        one->name = orset_read_num(&in, UINT64_MAX);
        one->uid_validity = (uint32_t)orset_read_num(&in, UINT32_MAX);
        one->uid_next = (uint32_t)orset_read_num(&in, UINT32_MAX);
    }
    return in.bad ? rows_corrupt(s, "the row of folders that came and went") : 0;
}

static int store(struct session *s, const ARRAY_TYPE(lived) * all)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const struct lived *one;
    array_foreach (all, one) {
        orset_buf_num(&b, one->name);
        orset_buf_num(&b, one->uid_validity);
        orset_buf_num(&b, one->uid_next);
    }
    int r =
        b.failed ? session_fail(s, "out of memory") : rows_put(s, ROW_LIVED, "", 0, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

int lived_add(struct session *s, const void *name, size_t len, uint32_t uid_validity,
              uint32_t uid_next)
{
    const struct lived fresh = {orset_hash(name, len).lo, uid_validity, uid_next};
    ARRAY_TYPE(lived) all;
    struct lived *one;
    if (load(s, &all) < 0)
        return -1;
    array_foreach_modifiable (&all, one) {
        if (one->name != fresh.name || one->uid_validity != uid_validity)
            continue;
        if (one->uid_next >= uid_next)
            return 0;
        one->uid_next = uid_next;
        return store(s, &all);
    }
    if (array_count(&all) >= LIVED_MAX)
        array_delete(&all, 0, array_count(&all) - LIVED_MAX + 1);
    array_push_back(&all, &fresh);
    return store(s, &all);
}

int lived_before(struct session *s, const struct orset_folder *f, uint32_t uid_validity)
{
    if (f->uid_validity == 0 || f->uid_validity == uid_validity || f->uid_next <= 1 ||
        f->name_len == 0)
        return 0;
    return lived_add(s, f->name, f->name_len, f->uid_validity, f->uid_next);
}

int lived_raised(struct session *s, const struct box *x, const struct orset_folder *f)
{
    struct orset_folder was = *f;
    was.uid_validity = x->at.uid_validity;
    was.uid_next = I_MAX(f->uid_next, x->at.uid_next);
    if (session_begin(s) < 0)
        return -1;
    if (lived_before(s, &was, f->uid_validity) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

int lived_uid_next(struct session *s, const void *name, size_t len, uint32_t uid_validity,
                   uint32_t *uid_next_r)
{
    const uint64_t hash = orset_hash(name, len).lo;
    ARRAY_TYPE(lived) all;
    const struct lived *one;
    *uid_next_r = 1;
    if (load(s, &all) < 0)
        return -1;
    array_foreach (&all, one) {
        if (one->name == hash && one->uid_validity == uid_validity)
            *uid_next_r = I_MAX(*uid_next_r, one->uid_next);
    }
    return 0;
}
