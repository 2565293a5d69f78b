/* tasks - rows that say what a mailbox still lacks of the state.
 *
 *     FOLDER        folder           -> nothing
 *     PLACE         folder, dot      -> nothing                the message has no UID here
 *     FLAGS         mailbox, UID     -> flags the mailbox has  they differ from those the state wants
 *     RENUMBER      mailbox, UID     -> new UID
 *     REMOVE        mailbox, UID     -> GUID; folder, dot and the folder's stamp of a message that
 *                                       left the mailbox (doomed.h)   no live dot is bound to it
 *     SUBSCRIPTION  name             -> nothing                the mailbox has the opposite
 *     ATTRIBUTE     folder, key      -> hash of the value the mailbox has
 *     BODY          mailbox, UID     -> SHA-256 of the bytes the mailbox has
 *
 * Without a FLAGS row the mailbox has exactly the flags the state wants: so what was *seen* (F4)
 * costs nothing. */
#include "dovecot-plugin/orset/state/tasks.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"

#include <string.h>

static void task_key(struct orset_key *k, int kind, uint32_t home, const void *rest, size_t len)
{
    k->n = 0;
    orset_key_num(k, (uint64_t)kind);
    orset_key_num(k, home);
    orset_key_put(k, rest, len);
}

int orset_task_row(struct orset *os, int kind, uint32_t home, const void *rest, size_t len,
                   struct orset_reader *r)
{
    struct orset_key k;
    task_key(&k, kind, home, rest, len);
    return orset_row_get(os, ORSET_T_TASK, &k, r);
}

int orset_task_put(struct orset *os, int kind, uint32_t home, const void *rest, size_t len,
                   const struct orset_buf *v)
{
    struct orset_key k;
    task_key(&k, kind, home, rest, len);
    return orset_row_put(os, ORSET_T_TASK, &k, v);
}

int orset_task_del(struct orset *os, int kind, uint32_t home, const void *rest, size_t len)
{
    struct orset_key k;
    task_key(&k, kind, home, rest, len);
    return orset_row_del(os, ORSET_T_TASK, &k);
}

int orset_task_uid_row(struct orset *os, int kind, uint32_t home, uint32_t uid,
                       struct orset_reader *r)
{
    struct orset_key k;
    task_key(&k, kind, home, "", 0);
    orset_key_num(&k, uid);
    return orset_row_get(os, ORSET_T_TASK, &k, r);
}

int orset_task_uid(struct orset *os, int kind, uint32_t home, uint32_t uid,
                   const struct orset_buf *v)
{
    struct orset_key k;
    task_key(&k, kind, home, "", 0);
    orset_key_num(&k, uid);
    return v ? orset_row_put(os, ORSET_T_TASK, &k, v) : orset_row_del(os, ORSET_T_TASK, &k);
}

int orset_task_renumber(struct orset *os, uint32_t home, uint32_t uid, uint32_t to)
{
    struct orset_buf v = {.alloc = &os->alloc};
    orset_buf_num(&v, to);
    int r = v.failed ? ORSET_E_MEMORY : orset_task_uid(os, ORSET_TASK_RENUMBER, home, uid, &v);
    orset_buf_free(&v);
    return r;
}

int orset_task_place(struct orset *os, struct folder *f, struct orset_dot d, bool wanted)
{
    struct orset_key k;
    task_key(&k, ORSET_TASK_PLACE, f->index, "", 0);
    orset_key_dot(&k, d);
    os->place_changes += wanted;
    return wanted ? orset_row_put(os, ORSET_T_TASK, &k, NULL) : orset_row_del(os, ORSET_T_TASK, &k);
}

static int any_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    (void)arg, (void)key, (void)len, (void)v, (void)vlen;
    return 1;
}

int orset_task_any_place(struct orset *os, uint32_t folder)
{
    struct orset_key k = {0};
    orset_key_num(&k, ORSET_TASK_PLACE);
    if (folder != ORSET_NO_FOLDER)
        orset_key_num(&k, folder);
    int r = os->store.each(os->store.ctx, ORSET_T_TASK, k.b, k.n, k.n, any_row, NULL);
    return r < 0 ? orset_storage_fail(os, "todo rows") : r;
}

int orset_task_seen(struct orset *os, uint32_t home, uint32_t uid, struct orset_flags *seen)
{
    struct orset_reader r;
    int got = orset_task_uid_row(os, ORSET_TASK_FLAGS, home, uid, &r);
    if (got > 0)
        orset_flags_read(os, &r, seen);
    return got > 0 && (r.bad || r.at != r.end) ? orset_corrupt(os, "the flags that a mailbox has")
                                               : got;
}

int orset_task_flags(struct orset *os, uint32_t home, uint32_t uid,
                     const struct orset_flags *before, const struct orset_flags *now,
                     const struct orset_flags *seen)
{
    struct orset_flags recorded;
    int got = orset_task_seen(os, home, uid, &recorded);
    if (got < 0)
        return got;
    if (!seen && os->changed)
        os->changed(os->changed_arg, home, uid);
    if (!seen)
        seen = got ? &recorded : before;
    if (orset_flags_equal(now, seen))
        return got ? orset_task_uid(os, ORSET_TASK_FLAGS, home, uid, NULL) : 0;
    if (got && orset_flags_equal(&recorded, seen))
        return 0;
    os->row.len = 0;
    orset_flags_write(&os->row, seen);
    return orset_task_uid(os, ORSET_TASK_FLAGS, home, uid, &os->row);
}

int orset_task_bytes(struct orset *os, uint32_t home, uint32_t uid, uint8_t sha256_r[32])
{
    struct orset_reader r;
    int got = orset_task_uid_row(os, ORSET_TASK_BODY, home, uid, &r);
    const uint8_t *bytes = got > 0 ? orset_read_bytes(&r, 32) : NULL;
    if (got > 0 && !bytes)
        return orset_corrupt(os, "a body's row is cut");
    if (bytes)
        memcpy(sha256_r, bytes, 32);
    return got;
}

int orset_task_body(struct orset *os, uint32_t home, uint32_t uid, const uint8_t before[32],
                    const uint8_t now[32], const uint8_t *seen)
{
    struct orset_reader r;
    int got = orset_task_uid_row(os, ORSET_TASK_BODY, home, uid, &r);
    if (got < 0)
        return got;
    if (!seen)
        seen = got ? orset_read_bytes(&r, 32) : before;
    if (!seen)
        return orset_corrupt(os, "a body's row is cut");
    if (memcmp(now, seen, 32) == 0)
        return got ? orset_task_uid(os, ORSET_TASK_BODY, home, uid, NULL) : 0;
    os->row.len = 0;
    orset_buf_put(&os->row, seen, 32);
    return orset_task_uid(os, ORSET_TASK_BODY, home, uid, &os->row);
}
