/* patience - how long the mails of a mailbox wait for the body of one before them (plan.h).
 *
 * Not by the clock alone: while no other site can be reached nothing comes, and that says nothing of that body. What counts is how
 * often other sites spoke meanwhile and did not bring it. A row keeps that, because the user may be closed between any two
 * parcels. It goes when the first mail in the order was placed.
 *
 * ROW_WAITS = num how often, num when the last time. */
#include "worker.h"

#include <time.h>

#ifdef DOVELANE_TEST_CRASH
#define SPOKE_SECS 10
#else
#define SPOKE_SECS 30 /* what comes within so long is one time */
#endif
#define SPOKE_MOST 4

static void folder_key(struct orset_key *k, uint32_t folder)
{
    k->n = 0;
    orset_key_num(k, folder);
}

/* 0: never. */
static unsigned spoken(struct session *s, uint32_t folder, time_t *last_r)
{
    struct orset_key k;
    const uint8_t *v;
    size_t len;
    folder_key(&k, folder);
    *last_r = 0;
    if (rows_get(s, ROW_WAITS, k.b, k.n, &v, &len) <= 0)
        return 0;
    struct orset_reader in = orset_reader_of(v, len);
    unsigned n = (unsigned)orset_read_num(&in, SPOKE_MOST);
    *last_r = (time_t)orset_read_num(&in, INT64_MAX);
    return in.bad ? 0 : n;
}

bool patience_is_over(struct session *s, uint32_t folder)
{
    time_t last;
    return spoken(s, folder, &last) >= SPOKE_MOST;
}

static int count(struct session *s, uint32_t folder, unsigned n, time_t now)
{
    struct orset_buf row = {.alloc = session_alloc()};
    struct orset_key k;
    folder_key(&k, folder);
    orset_buf_num(&row, n);
    orset_buf_num(&row, (uint64_t)now);
    int r = row.failed ? session_fail(s, "out of memory") : session_begin(s);
    if (r == 0 && (r = rows_put(s, ROW_WAITS, k.b, k.n, row.data, row.len)) < 0)
        session_rollback(s);
    orset_buf_free(&row);
    return r < 0 ? -1 : session_commit(s);
}

int patience_spoken(struct session *s)
{
    unsigned n;
    const struct plan_mailbox *m = plan_mailboxes(s, &n);
    time_t now = time(NULL), last;
    for (unsigned i = 0; i < n; i++) {
        unsigned was = m[i].blocked ? spoken(s, m[i].folder, &last) : SPOKE_MOST;
        if (was == SPOKE_MOST || (now >= last && now - last < SPOKE_SECS))
            continue;
        if (count(s, m[i].folder, was + 1, now) < 0)
            return -1;
        wants_soon(s);
    }
    return 0;
}

int patience_renew(struct session *s, uint32_t folder)
{
    struct orset_key k;
    time_t last;
    folder_key(&k, folder);
    return spoken(s, folder, &last) == 0 ? 0 : rows_del(s, ROW_WAITS, k.b, k.n);
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
