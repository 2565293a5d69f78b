/* ledger_retired - replicator.db's rows of origins: what states have, and what users who were
 * forgotten had. */
#include "dovecot-plugin/replicator/site/ledger.h"

#include "dovecot-plugin/replicator/site/ledger_statement.h"
#include "lib/base/clock.h"

static void get(struct ledger *l, const char *sql, const char *name, struct orset_buf *b)
{
    sqlite3_stmt *s = ledger_read(l, sql, "s", name);
    while (ledger_next_row(l, s)) {
        uint64_t site = (uint64_t)sqlite3_column_int64(s, 0);
        frame_put_origin(b, (struct frame_origin){site, (uint64_t)sqlite3_column_int64(s, 1)});
    }
    sqlite3_finalize(s);
}

void ledger_get_origins(struct ledger *l, const char *name, struct orset_buf *b)
{
    get(l, "SELECT site, epoch FROM origins WHERE name = ?1", name, b);
}

void ledger_get_retired(struct ledger *l, const char *name, struct orset_buf *b)
{
    get(l, "SELECT site, epoch FROM retired WHERE name = ?1 ORDER BY since", name, b);
}

void ledger_drop_origins(struct ledger *l, const char *name)
{
    ledger_write(l, "DELETE FROM origins WHERE name = ?1", "s", name);
}

/* Mostly they are those that are there. */
void ledger_set_origins(struct ledger *l, const char *name, struct text origins)
{
    struct orset_buf had = {.alloc = &replicator_heap};
    ledger_get_origins(l, name, &had);
    struct text there = {had.data, had.len};
    size_t n = origins.n / FRAME_ORIGIN, same = 0;
    for (size_t i = 0; i < n; i++)
        same += frame_has_origin(there, frame_origin_at(origins, i));
    if (same != n || there.n != origins.n)
        ledger_drop_origins(l, name);
    for (size_t i = 0; (same != n || there.n != origins.n) && i < n; i++) {
        struct frame_origin o = frame_origin_at(origins, i);
        ledger_write(l, "INSERT OR IGNORE INTO origins VALUES (?1, ?2, ?3)", "snn", name,
                     (int64_t)o.site, (int64_t)o.epoch);
    }
    orset_buf_free(&had);
}

static uint64_t count(struct ledger *l, const char *sql, const char *name)
{
    sqlite3_stmt *s = ledger_read(l, sql, name ? "s" : "", name);
    uint64_t n = ledger_next_row(l, s) ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return n;
}

bool ledger_is_retired(struct ledger *l, const char *name)
{
    return count(l,
                 "SELECT count(*) FROM origins JOIN retired USING (name, site, epoch) WHERE name = "
                 "?1",
                 name) > 0;
}

/* The oldest go, where a name had very many users. */
static void trim(struct ledger *l, const char *name)
{
    uint64_t n = ledger_count_retired(l, name);
    if (n > PARCEL_ORIGINS_MAX)
        ledger_write(l,
                     "DELETE FROM retired WHERE (name, site, epoch) IN (SELECT name, site, epoch "
                     "FROM retired WHERE name = ?1 ORDER BY since LIMIT ?2)",
                     "sn", name, (int64_t)(n - PARCEL_ORIGINS_MAX));
}

size_t ledger_retire(struct ledger *l, const char *name, struct text origins)
{
    size_t n = 0;
    for (size_t i = 0; i < origins.n / FRAME_ORIGIN; i++) {
        struct frame_origin o = frame_origin_at(origins, i);
        n += (size_t)ledger_write(l, "INSERT OR IGNORE INTO retired VALUES (?1, ?2, ?3, ?4)",
                                  "snnn", name, (int64_t)o.site, (int64_t)o.epoch, clock_wall());
    }
    if (n > 0)
        trim(l, name);
    ledger_flush_soon(l);
    return n;
}

void ledger_untold(struct ledger *l, uint64_t site, const char *name, bool untold)
{
    if (untold)
        ledger_write(l, "INSERT OR REPLACE INTO untold VALUES (?1, ?2, ?3)", "nsn", (int64_t)site,
                     name, clock_wall());
    else
        ledger_write(l, "DELETE FROM untold WHERE site = ?1 AND name = ?2", "ns", (int64_t)site,
                     name);
    ledger_flush_soon(l);
}

bool ledger_is_untold(struct ledger *l, uint64_t site, const char *name)
{
    sqlite3_stmt *s = ledger_read(l, "SELECT 1 FROM untold WHERE site = ?1 AND name = ?2", "ns",
                                  (int64_t)site, name);
    bool is = ledger_next_row(l, s);
    sqlite3_finalize(s);
    return is;
}

uint64_t ledger_count_untold(struct ledger *l)
{
    return count(l, "SELECT count(*) FROM untold", NULL);
}

uint64_t ledger_count_retired(struct ledger *l, const char *name)
{
    return count(
        l, name ? "SELECT count(*) FROM retired WHERE name = ?1" : "SELECT count(*) FROM retired",
        name);
}

void ledger_meet(struct ledger *l, const struct group *g)
{
    for (size_t i = 0; i < g->npeers; i++) {
        int64_t site = (int64_t)g->peer[i].site;
        if (!g->peer[i].removed &&
            ledger_write(l, "INSERT OR IGNORE INTO met VALUES (?1)", "n", site) > 0)
            ledger_write(l,
                         "INSERT OR IGNORE INTO untold SELECT DISTINCT ?1, name, ?2 FROM retired",
                         "nn", site, clock_wall());
    }
}
