/* removed - gathers what the core removes in a transaction, and keeps it for a week.
 *
 * A message leaves the state by a user's word only, here or at another site: what is missing
 * without one stays in it (F1). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/delivery_id.h"
#include "dovecot-plugin/worker/session/removed.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>

#include <time.h>

#define KEPT_SECS (7 * 86400) /* rows; and older mails get none: they were asked for long ago */
#define ROWS_MOST 10000       /* of them; beyond, the older half goes */
#define PURGE_SECS 3600

struct removed_row {
    guid_128_t guid;
    time_t at;
};

struct removed_guids {
    ARRAY_TYPE(guid_128_t) guids; /* of the transaction */
    unsigned rows;                /* as counted last, and written since */
    time_t purge_after;
};

static void note(void *arg, const struct orset_facts *facts)
{
    struct removed_guids *g = arg;
    guid_128_t guid;
    if (!delivery_id_is_guid(facts->guid) || facts->saved < time(NULL) - KEPT_SECS)
        return;
    memcpy(guid, facts->guid, sizeof guid);
    array_push_back(&g->guids, &guid);
}

/* -1: it is none. */
static time_t row_time(const uint8_t *value, size_t len)
{
    struct orset_reader r = orset_reader_of(value, len);
    uint64_t at = orset_read_num(&r, INT64_MAX);
    return r.bad || r.at != r.end ? -1 : (time_t)at;
}

ARRAY_DEFINE_TYPE(removed_row, struct removed_row);

static int collect(void *arg, const uint8_t *key, size_t len, const uint8_t *value, size_t vlen)
{
    ARRAY_TYPE(removed_row) *rows = arg;
    struct removed_row row = {.at = row_time(value, vlen)};
    if (len < sizeof row.guid)
        return 0;
    memcpy(row.guid, key + len - sizeof row.guid, sizeof row.guid);
    array_push_back(rows, &row);
    return 0;
}

static int by_time(const struct removed_row *a, const struct removed_row *b)
{
    return a->at < b->at ? -1 : a->at > b->at;
}

/* In a transaction. */
static int purge(struct session *s)
{
    struct removed_guids *g = s->removed;
    ARRAY_TYPE(removed_row) rows;
    const struct removed_row *row;
    time_t now = time(NULL);
    int r;
    i_array_init(&rows, 16);
    if ((r = rows_each(s, ROW_REMOVED, collect, &rows)) >= 0) {
        unsigned n = array_count(&rows), go = n > ROWS_MOST ? n / 2 : 0;
        array_sort(&rows, by_time);
        g->rows = n;
        array_foreach (&rows, row) {
            bool old = row->at < now - KEPT_SECS || row->at > now + KEPT_SECS;
            if (r < 0 || (!old && go == 0))
                continue;
            go -= go > 0;
            g->rows--;
            r = rows_del(s, ROW_REMOVED, row->guid, sizeof row->guid);
        }
        g->purge_after = now + PURGE_SECS;
    }
    array_free(&rows);
    return r < 0 ? -1 : 0;
}

static int write_rows(struct session *s)
{
    struct removed_guids *g = s->removed;
    struct orset_buf value = {.alloc = session_alloc()};
    const guid_128_t *guid;
    time_t now = time(NULL);
    int r = 0;
    if (array_count(&g->guids) == 0)
        return 0;
    orset_buf_num(&value, (uint64_t)now);
    if (value.failed)
        r = session_fail(s, "out of memory");
    array_foreach (&g->guids, guid) {
        if (r == 0)
            r = rows_put(s, ROW_REMOVED, *guid, sizeof *guid, value.data, value.len);
        g->rows++;
    }
    array_clear(&g->guids);
    orset_buf_free(&value);
    return r == 0 && (now >= g->purge_after || g->rows > ROWS_MOST) ? purge(s) : r;
}

/* It was rolled back. */
static void forget(struct session *s)
{
    array_clear(&s->removed->guids);
}

void removed_begin(struct session *s)
{
    if (!s->group->questions)
        return;
    s->removed = i_new(struct removed_guids, 1);
    i_array_init(&s->removed->guids, 4);
    s->removed_write = write_rows;
    s->removed_forget = forget;
    orset_on_removed(s->os, note, s->removed);
}

void removed_end(struct session *s)
{
    if (s->removed == NULL)
        return;
    array_free(&s->removed->guids);
    i_free(s->removed);
}

int removed_has(struct session *s, const uint8_t guid[16])
{
    const uint8_t *value;
    size_t len;
    int r = rows_get(s, ROW_REMOVED, guid, sizeof(guid_128_t), &value, &len);
    return r <= 0 ? r : row_time(value, len) >= 0;
}
