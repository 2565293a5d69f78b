/* patience - how long the mails of a mailbox wait for the body of one before them (plan.h).
 *
 * They wait no longer when other sites spoke again and again and did not bring it, or when none
 * spoke for so long that all must be down. A site that is back after such a silence may bring it:
 * then they wait anew. A row keeps that, because the user may be closed between any two parcels. It
 * goes when the first mail in the order was placed.
 *
 * ROW_WAITS = num how often one spoke, num when the last time, or since when they wait. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/patience.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <seq-range-array.h>

#include <time.h>

#ifdef DOVELANE_TEST_CRASH
#define SPOKE_SECS 10
#define SILENT_SECS 30
#else
#define SPOKE_SECS 30 /* what comes within so long is one time */
#define SILENT_SECS 120
#endif
#define SPOKE_MOST 4

struct waits {
    unsigned spoken;
    time_t last;
};

/* False: none wait, as far as a row tells. */
static bool waits_get(struct session *s, uint32_t folder, struct waits *w)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *v;
    size_t len;
    if (rows_get(s, ROW_WAITS, k.b, k.n, &v, &len) <= 0)
        return FALSE;
    struct orset_reader in = orset_reader_of(v, len);
    w->spoken = (unsigned)orset_read_num(&in, SPOKE_MOST);
    w->last = (time_t)orset_read_num(&in, INT64_MAX);
    return !in.bad;
}

static int waits_put(struct session *s, uint32_t folder, struct waits w)
{
    struct orset_buf row = {.alloc = session_alloc()};
    struct orset_key k = rows_folder_key(folder);
    orset_buf_num(&row, w.spoken);
    orset_buf_num(&row, (uint64_t)w.last);
    int r = row.failed ? session_fail(s, "out of memory") : session_begin(s);
    if (r == 0 && (r = rows_put(s, ROW_WAITS, k.b, k.n, row.data, row.len)) < 0)
        session_rollback(s);
    orset_buf_free(&row);
    return r < 0 ? -1 : session_commit(s);
}

bool patience_is_over(struct session *s, uint32_t folder)
{
    struct waits w;
    time_t now = time(NULL);
    return waits_get(s, folder, &w) &&
           (w.spoken >= SPOKE_MOST || (now >= w.last && now - w.last >= SILENT_SECS));
}

int patience_begin(struct session *s, uint32_t folder)
{
    struct waits w;
    time_t now = time(NULL);
    if (!waits_get(s, folder, &w))
        return waits_put(s, folder, (struct waits){0, now});
    /* the clock was ahead */
    return now < w.last ? waits_put(s, folder, (struct waits){w.spoken, now}) : 0;
}

int patience_spoken(struct session *s)
{
    unsigned n;
    const struct plan_mailbox *m = plan_mailboxes(s, &n);
    time_t now = time(NULL);
    for (unsigned i = 0; i < n; i++) {
        struct waits w;
        if (m[i].at == m[i].end || !waits_get(s, m[i].folder, &w))
            continue;
        bool back = now < w.last || now - w.last >= SILENT_SECS;
        if (!back && (w.spoken >= SPOKE_MOST || now - w.last < SPOKE_SECS))
            continue;
        if (waits_put(s, m[i].folder, (struct waits){back ? 1 : w.spoken + 1, now}) < 0)
            return -1;
        body_requests_soon(s);
    }
    return 0;
}

int patience_renew(struct session *s, uint32_t folder)
{
    struct orset_key k = rows_folder_key(folder);
    struct waits w;
    return waits_get(s, folder, &w) ? rows_del(s, ROW_WAITS, k.b, k.n) : 0;
}

static int collect(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    ARRAY_TYPE(seq_range) *folders = arg;
    struct orset_reader k = {key + 1, key + key_len, false};
    uint32_t folder = (uint32_t)orset_key_read(&k, UINT32_MAX - 1);
    (void)v, (void)len;
    if (!k.bad)
        seq_range_array_add(folders, folder + 1);
    return 0;
}

/* The mail that was waited for may have been removed, and the next one is another matter. */
int patience_forget(struct session *s)
{
    ARRAY_TYPE(seq_range) folders;
    struct seq_range_iter iter;
    uint32_t folder;
    t_array_init(&folders, 4);
    if (rows_each(s, ROW_WAITS, collect, &folders) < 0)
        return -1;
    if (array_count(&folders) == 0)
        return 0;
    if (session_begin(s) < 0)
        return -1;
    seq_range_array_iter_init(&iter, &folders);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &folder); i++) {
        if (patience_renew(s, folder - 1) < 0) {
            session_rollback(s);
            return -1;
        }
    }
    return session_commit(s);
}

int patience_grown(struct session *s, unsigned item)
{
    if (item == 0)
        return 0;
    if (session_begin(s) < 0)
        return -1;
    if (patience_renew(s, plan_item(s, item - 1)->mailbox) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}
