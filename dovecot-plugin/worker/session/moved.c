/* moved - mails that got another UID while clients looked at them (struct moved). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#include <time.h>

#define MOVED_VERSION 1
#define MOVED_SECS 3600 /* nobody has a view of a mailbox that is older, or so it is hoped */
#define MOVED_MAX 100000

static int by_old_uid(const struct moved *a, const struct moved *b)
{
    return a->uid < b->uid ? -1 : a->uid > b->uid;
}

static int put_moved(struct session *s, const struct box *x)
{
    struct orset_buf b = {.alloc = session_alloc()};
    struct orset_key k = rows_folder_key(x->folder);
    const struct moved *m;
    orset_buf_u8(&b, MOVED_VERSION);
    array_foreach (&x->moved, m) {
        orset_buf_num(&b, m->uid);
        orset_buf_num(&b, m->new_uid);
        orset_buf_num(&b, m->from.seq);
        orset_buf_num(&b, m->from.offset);
        orset_buf_num(&b, (uint64_t)m->at);
    }
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_MOVED, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

int moved_load(struct session *s, struct box *x, const uint8_t *value, size_t len)
{
    struct orset_reader in = orset_reader_of(value, len);
    if (orset_read_u8(&in) != MOVED_VERSION)
        return rows_corrupt(s, "the row of mails with another UID");
    if (!array_is_created(&x->moved))
        i_array_init(&x->moved, 16);
    array_clear(&x->moved);
    while (in.at != in.end && !in.bad) {
        struct moved *m = array_append_space(&x->moved);
        m->uid = (uint32_t)orset_read_num(&in, UINT32_MAX);
        m->new_uid = (uint32_t)orset_read_num(&in, UINT32_MAX);
        m->from.seq = (uint32_t)orset_read_num(&in, UINT32_MAX);
        m->from.offset = orset_read_num(&in, UINT64_MAX);
        m->at = (time_t)orset_read_num(&in, INT64_MAX);
    }
    return in.bad ? rows_corrupt(s, "the row of mails with another UID") : 0;
}

int moved_add(struct session *s, struct box *x, const struct moved *v, unsigned n)
{
    time_t now = time(NULL);
    unsigned kept = 0, count;
    if (n == 0)
        return 0;
    ARRAY_TYPE(moved) fresh;
    t_array_init(&fresh, n);
    array_append(&fresh, v, n);
    array_sort(&fresh, by_old_uid);
    if (!array_is_created(&x->moved))
        i_array_init(&x->moved, n);
    struct moved *old = array_get_modifiable(&x->moved, &count);
    for (unsigned i = 0; i < count; i++) {
        struct moved key = {.uid = old[i].new_uid};
        if (now - old[i].at > MOVED_SECS || count - i + n > MOVED_MAX)
            continue;
        const struct moved *again = array_bsearch(&fresh, &key, by_old_uid);
        if (again != NULL)
            old[i].new_uid = again->new_uid;
        old[kept++] = old[i];
    }
    array_delete(&x->moved, kept, count - kept);
    array_append_array(&x->moved, &fresh);
    array_sort(&x->moved, by_old_uid);
    return put_moved(s, x);
}
