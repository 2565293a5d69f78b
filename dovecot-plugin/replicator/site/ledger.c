/* ledger - replicator.db's tables: reads them at start, gathers writes for a second. */
#include "dovecot-plugin/replicator/site/ledger.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/site/ledger_statement.h"

#define GATHER 1. /* seconds for which writes are gathered */

static const char *const sql[LEDGER_STATEMENTS] = {
    "INSERT OR IGNORE INTO users VALUES (?1)",
    "INSERT OR IGNORE INTO joined VALUES (?1)",
    "DELETE FROM joined WHERE name = ?1",
    "SELECT 1 FROM joined WHERE name = ?1",
    "SELECT 1 FROM users WHERE name = ?1",
    "DELETE FROM users WHERE name = ?1",
    "DELETE FROM unconfirmed WHERE name = ?1",
    "INSERT OR REPLACE INTO unconfirmed VALUES (?1, ?2, ?3, ?4)",
    "DELETE FROM unconfirmed WHERE site = ?1 AND name = ?2",
    "INSERT OR IGNORE INTO peers VALUES (?1)",
    "DELETE FROM unconfirmed WHERE site = ?1",
    "INSERT OR REPLACE INTO meta VALUES (?1, ?2)",
    "INSERT OR REPLACE INTO waiting VALUES (?1, ?2, ?3)",
    "DELETE FROM waiting WHERE name = ?1",
    "INSERT OR IGNORE INTO look VALUES (?1)",
    "DELETE FROM look WHERE name = ?1",
    "DELETE FROM look WHERE name <= ?1",
    "SELECT name, 0, 0 FROM look WHERE name > ?1 ORDER BY name LIMIT ?2",
    "SELECT name, 0, 0 FROM users WHERE name > ?1 ORDER BY name LIMIT ?2",
    "SELECT name, ops, since FROM unconfirmed WHERE site = ?3 AND name > ?1 ORDER BY name LIMIT ?2",
    "SELECT count(*), coalesce(sum(ops), 0), coalesce(min(since), 0) FROM unconfirmed WHERE site = "
    "?1",
    "SELECT ops, since FROM unconfirmed WHERE site = ?2 AND name = ?1",
    "SELECT coalesce(sum(unplaced), 0), coalesce(sum(held), 0) FROM waiting WHERE name = ?1 OR ?1 "
    "IS NULL",
    "INSERT OR REPLACE INTO names VALUES (?1, ?2)",
    "DELETE FROM names WHERE name = ?1",
    "SELECT coalesce(sum(folders), 0), 0 FROM names WHERE name = ?1 OR ?1 IS NULL",
    "SELECT name, 0, since FROM untold WHERE site = ?3 AND name > ?1 ORDER BY name LIMIT ?2",
    "DELETE FROM untold WHERE site = ?1",
};

static const char schema[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA locking_mode = EXCLUSIVE;"
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS users (name TEXT PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS unconfirmed (site INTEGER, name TEXT, ops INTEGER, since INTEGER, "
    "PRIMARY KEY (site, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS waiting (name TEXT PRIMARY KEY, unplaced INTEGER, held INTEGER) "
    "WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, folders INTEGER) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS look (name TEXT PRIMARY KEY) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS of_user ON unconfirmed (name);"
    "CREATE TABLE IF NOT EXISTS origins (name TEXT, site INTEGER, epoch INTEGER, "
    "PRIMARY KEY (name, site, epoch)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS retired (name TEXT, site INTEGER, epoch INTEGER, since INTEGER, "
    "PRIMARY KEY (name, site, epoch)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS untold (site INTEGER, name TEXT, since INTEGER, "
    "PRIMARY KEY (site, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS met (site INTEGER PRIMARY KEY);"
    "CREATE TABLE IF NOT EXISTS peers (site INTEGER PRIMARY KEY);";

/* In a file of a program that did not have it: an upgrade is no join. Who is new is so by his
 * worker's word. */
static const char all_joined[] = "BEGIN; CREATE TABLE joined (name TEXT PRIMARY KEY) WITHOUT ROWID;"
                                 "INSERT INTO joined SELECT name FROM users; COMMIT;";

struct ledger {
    struct replicator *r;
    sqlite3 *db;
    sqlite3_stmt *statement[LEDGER_STATEMENTS];
    ev_timer gather; /* the end of the transaction that is open */
    bool at_once;    /* there is a new user in it */
    bool fresh;      /* there are new users, or a removed site, not on disk yet */
    bool rewrite;    /* and some of them not even in a transaction: one could not be committed */
    bool undone;     /* that happened in this run */
    int64_t users, joined; /* rows of these tables; users below 0: to be counted anew */
    ev_timer flush;
    void (*write_users)(void *arg); /* NULL: nobody is in memory yet */
    void *write_users_arg;
    double said;
};

static void failed(struct ledger *l, const char *what)
{
    if (replicator_may_say(&l->said, 60.))
        log_error("replicator.db: %s: %s", what, sqlite3_errmsg(l->db));
}

static bool run(struct ledger *l, const char *text)
{
    if (sqlite3_exec(l->db, text, NULL, NULL, NULL) == SQLITE_OK)
        return true;
    failed(l, text);
    return false;
}

static void flush_soon(struct ledger *l)
{
    l->fresh = true;
    if (!ev_is_active(&l->flush))
        ev_timer_again(l->r->loop, &l->flush);
}

/* As far as it is users and removed peers it is written again; the next start sweeps all for the
 * rest (ledger_close). */
static void undone(struct ledger *l)
{
    l->rewrite = l->undone = true;
    l->users = -1;
    flush_soon(l);
}

/* By SQLite's own word: the timer is over when it calls, and some errors end a transaction. */
static bool gathers(const struct ledger *l)
{
    return !sqlite3_get_autocommit(l->db);
}

static bool commit(struct ledger *l)
{
    bool ok = !gathers(l) || run(l, "COMMIT");
    if (!ok) {
        if (gathers(l))
            run(l, "ROLLBACK");
        undone(l);
    }
    ev_timer_stop(l->r->loop, &l->gather);
    l->at_once = false;
    return ok;
}

static void on_gather(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    commit(t->data);
}

void ledger_commit_seen(struct ledger *l)
{
    if (l->at_once)
        commit(l);
}

sqlite3_stmt *ledger_prepared(struct ledger *l, int which)
{
    if (!l->statement[which] && sqlite3_prepare_v3(l->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                                                   &l->statement[which], NULL) != SQLITE_OK) {
        failed(l, sql[which]);
        return NULL;
    }
    return l->statement[which];
}

static void bind(sqlite3_stmt *s, const char *format, va_list ap)
{
    for (int i = 0; format[i]; i++) {
        if (format[i] == 's')
            sqlite3_bind_text(s, i + 1, va_arg(ap, const char *), -1, SQLITE_STATIC);
        else
            sqlite3_bind_int64(s, i + 1, va_arg(ap, int64_t));
    }
}

/* Binds by the format: s text, n number. Returns how many rows that changed. */
static int write_by(struct ledger *l, sqlite3_stmt *s, const char *what, const char *format,
                    va_list ap)
{
    if (!s) {
        undone(l);
        return 0;
    }
    if (!gathers(l)) {
        if (!run(l, "BEGIN")) {
            undone(l);
            return 0;
        }
        ev_timer_stop(l->r->loop, &l->gather);
        ev_timer_set(&l->gather, GATHER, 0.);
        ev_timer_start(l->r->loop, &l->gather);
    }
    bind(s, format, ap);
    bool ok = sqlite3_step(s) == SQLITE_DONE;
    if (!ok) {
        failed(l, what);
        undone(l);
    }
    int changed = ok ? sqlite3_changes(l->db) : 0;
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return changed;
}

int ledger_write_row(struct ledger *l, int which, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int changed = write_by(l, ledger_prepared(l, which), sql[which], format, ap);
    va_end(ap);
    return changed;
}

static sqlite3_stmt *prepare_once(struct ledger *l, const char *text)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(l->db, text, -1, &s, NULL) != SQLITE_OK)
        failed(l, text);
    return s;
}

int ledger_write(struct ledger *l, const char *text, const char *format, ...)
{
    va_list ap;
    sqlite3_stmt *s = prepare_once(l, text);
    va_start(ap, format);
    int changed = write_by(l, s, text, format, ap);
    va_end(ap);
    sqlite3_finalize(s);
    return changed;
}

void ledger_flush_soon(struct ledger *l)
{
    flush_soon(l);
}

sqlite3_stmt *ledger_read(struct ledger *l, const char *text, const char *format, ...)
{
    va_list ap;
    sqlite3_stmt *s = prepare_once(l, text);
    va_start(ap, format);
    if (s)
        bind(s, format, ap);
    va_end(ap);
    return s;
}

/* A row is there. An error ends the transaction for some of its kinds, also of a statement that
 * only reads. */
static bool next_row(struct ledger *l, sqlite3_stmt *s)
{
    int r = sqlite3_step(s);
    if (r != SQLITE_ROW && r != SQLITE_DONE) {
        failed(l, "reading");
        undone(l);
    }
    return r == SQLITE_ROW;
}

bool ledger_next_row(struct ledger *l, sqlite3_stmt *s)
{
    return s && next_row(l, s);
}

static bool finds(struct ledger *l, int which, const char *name)
{
    sqlite3_stmt *s = ledger_prepared(l, which);
    bool found = false;
    if (s) {
        sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
        found = next_row(l, s);
        sqlite3_reset(s);
        sqlite3_clear_bindings(s);
    }
    return found;
}

/* Where there is none: 0; -1: it cannot be read. */
static int64_t number_in(sqlite3 *db, const char *text)
{
    sqlite3_stmt *s;
    int64_t v = 0;
    int r = sqlite3_prepare_v2(db, text, -1, &s, NULL);
    if (r == SQLITE_OK && (r = sqlite3_step(s)) == SQLITE_ROW)
        v = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return r == SQLITE_ROW || r == SQLITE_DONE ? v : -1;
}

static int64_t one_number(struct ledger *l, const char *text)
{
    int64_t v = number_in(l->db, text);
    if (v < 0)
        failed(l, text);
    return v;
}

void ledger_on_loss(struct ledger *l, void (*write_users)(void *arg), void *arg)
{
    l->write_users = write_users;
    l->write_users_arg = arg;
}

void ledger_write_user(struct ledger *l, const char *name, bool joined)
{
    ledger_write_row(l, LEDGER_ADD_USER, "s", name);
    if (joined)
        ledger_write_row(l, LEDGER_ADD_JOINED, "s", name);
}

bool ledger_flush(struct ledger *l)
{
    if (!l->fresh)
        return true;
    if (l->rewrite) {
        l->rewrite = false;
        ledger_write_row(l, LEDGER_SET_META, "sn", "clean", (int64_t)0);
        for (size_t i = 0; i < l->r->group.npeers; i++)
            if (l->r->group.peer[i].removed)
                ledger_write_row(l, LEDGER_REMOVE_PEER, "n", (int64_t)l->r->group.peer[i].site);
        if (l->write_users)
            l->write_users(l->write_users_arg);
    }
    l->fresh = !commit(l) || l->rewrite;
    if (!l->fresh && sqlite3_wal_checkpoint_v2(l->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL,
                                               NULL) != SQLITE_OK) {
        failed(l, "checkpoint");
        l->fresh = true;
    }
    if (!l->fresh)
        ev_timer_stop(l->r->loop, &l->flush);
    return !l->fresh;
}

static void on_flush(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    ledger_flush(t->data);
}

/* ---- who has joined ---- */

static void count_users(struct ledger *l)
{
    if (l->users >= 0)
        return;
    l->users = one_number(l, "SELECT count(*) FROM users");
    l->joined = one_number(l, "SELECT count(*) FROM joined");
}

/* Rows of users and of joined that came, or went. */
static void counted(struct ledger *l, int users, int joined)
{
    uint64_t all, have;
    if (l->users >= 0) {
        l->users += users;
        l->joined += joined;
    }
    ledger_count(l, &all, &have);
    metric_set(replicator_joining, (long long)(all - have));
}

void ledger_count(struct ledger *l, uint64_t *users_r, uint64_t *joined_r)
{
    count_users(l);
    *users_r = l->users > 0 ? (uint64_t)l->users : 0;
    *joined_r = l->joined > 0 ? (uint64_t)l->joined : 0;
    if (*joined_r > *users_r) /* rows that an older program left behind */
        *joined_r = *users_r;
}

void ledger_joined(struct ledger *l, const char *name, bool joined)
{
    int changed = ledger_write_row(l, joined ? LEDGER_ADD_JOINED : LEDGER_DROP_JOINED, "s", name);
    counted(l, 0, joined ? changed : -changed);
}

bool ledger_has_joined(struct ledger *l, const char *name)
{
    return finds(l, LEDGER_HAS_JOINED, name);
}

static const char site_here[] = "SELECT value FROM meta WHERE key = 'site'";

/* What is here is of one site, as the states are, and one's numbers are never another's. The
 * text is the caller's; NULL: it is this site's, or nobody's yet. */
static char *of_another(const char *path, int64_t site, const char *name, int64_t self)
{
    if (site <= 0 || site == self)
        return NULL;
    return mem_printf("%s: is of site %lld, and -n names %s, site %lld: -n in the executable of "
                      "service dovelane-replicator must be this host's name. A site's id must not "
                      "change. If this host ran under a wrong name, see the replication "
                      "reference, When something is damaged",
                      path, (long long)site, name, (long long)self);
}

/* A URI's path: these begin something else in one. The caller's. */
static char *uri_of(const char *path)
{
    char *uri = mem_zero(strlen(path) * 3 + 32), *to = uri + sprintf(uri, "file:");
    for (; *path; path++)
        to += sprintf(to, strchr("%?#", *path) ? "%%%02X" : "%c", *path);
    strcpy(to, "?immutable=1");
    return uri;
}

/* As a file that nothing is written to, nor beside: who asks may be root, and the replicator may
 * run. */
char *ledger_of_another_site(const char *dir, const char *name, uint64_t self)
{
    char *path = mem_printf("%s/replicator.db", dir), *uri = uri_of(path), *text = NULL;
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) == SQLITE_OK)
        text = of_another(path, number_in(db, site_here), name, (int64_t)self);
    sqlite3_close(db);
    free(uri);
    free(path);
    return text;
}

static bool is_ours(struct ledger *l, const char *path)
{
    int64_t self = (int64_t)l->r->group.self, site = one_number(l, site_here);
    char text[80], *other = of_another(path, site, l->r->group.name, self);
    if (other) {
        log_error("%s", other);
        free(other);
        return false;
    }
    snprintf(text, sizeof text, "INSERT OR REPLACE INTO meta VALUES ('site', %lld)",
             (long long)self);
    return site == self || (site == 0 && run(l, text));
}

static bool has_table_of_joined(struct ledger *l)
{
    int64_t there = number_in(l->db, "SELECT count(*) FROM sqlite_master WHERE name = 'joined'");
    return there > 0 ||
           (there == 0 && sqlite3_exec(l->db, all_joined, NULL, NULL, NULL) == SQLITE_OK);
}

static void cannot_open(struct ledger *l, const char *path)
{
    int code = sqlite3_errcode(l->db);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        log_error("%s: %s: the file is damaged; it holds no mail: remove %s* and start again. What "
                  "is lost: see the replication reference, When something is damaged",
                  path, sqlite3_errmsg(l->db), path);
    else
        log_error("%s: %s: it and its directory must be there and belong to this user, uid %u",
                  path, sqlite3_errmsg(l->db), (unsigned)geteuid());
}

struct ledger *ledger_open(struct replicator *r)
{
    struct ledger *l = mem_zero(sizeof *l);
    char *path = mem_printf("%s/replicator.db", r->directory);
    l->r = r;
    l->users = -1;
    ev_timer_init(&l->gather, on_gather, 0., 0.);
    ev_timer_init(&l->flush, on_flush, 0., GATHER);
    l->gather.data = l->flush.data = l;
    bool ok = sqlite3_open_v2(path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) ==
                  SQLITE_OK &&
              sqlite3_exec(l->db, schema, NULL, NULL, NULL) == SQLITE_OK && has_table_of_joined(l);
    if (!ok)
        cannot_open(l, path);
    r->first = ok && one_number(l, "SELECT count(*) FROM meta") == 0;
    ok = ok && is_ours(l, path);
    free(path);
    for (size_t i = 0; ok && i < r->group.npeers; i++) {
        char text[80];
        snprintf(text, sizeof text, "SELECT count(*) FROM peers WHERE site = %lld",
                 (long long)r->group.peer[i].site);
        int64_t n = one_number(l, text);
        r->group.peer[i].removed = n > 0;
        ok = n >= 0;
    }
    if (!ok) {
        sqlite3_close(l->db);
        free(l);
        return NULL;
    }
    r->unclean = !r->first && one_number(l, "SELECT value FROM meta WHERE key = 'clean'") != 1;
    /* A hash, which may be below 0; one that cannot be read is another. */
    r->adopted = !r->first && number_in(l->db, "SELECT value FROM meta WHERE key = 'parent'") !=
                                  (int64_t)r->parent;
    if (!run(l, "INSERT OR REPLACE INTO meta VALUES ('clean', 0)"))
        undone(l);
    counted(l, 0, 0);
    ledger_meet(l, &r->group);
    return l;
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    if (l->r->stopping && !l->undone && !l->r->unswept) {
        ledger_write_row(l, LEDGER_SET_META, "sn", "clean", (int64_t)1);
        ledger_write_row(l, LEDGER_SET_META, "sn", "parent", (int64_t)l->r->parent);
    }
    commit(l);
    ev_timer_stop(l->r->loop, &l->flush); /* closing checkpoints */
    for (int i = 0; i < LEDGER_STATEMENTS; i++)
        sqlite3_finalize(l->statement[i]);
    sqlite3_close(l->db);
    free(l);
}

void ledger_user_listed(struct ledger *l, const char *name)
{
    counted(l, ledger_write_row(l, LEDGER_ADD_USER, "s", name), 0);
}

bool ledger_knows(struct ledger *l, const char *name)
{
    return finds(l, LEDGER_KNOWS_USER, name);
}

bool ledger_user_seen(struct ledger *l, const char *name)
{
    if (ledger_knows(l, name))
        return true;
    counted(l, ledger_write_row(l, LEDGER_ADD_USER, "s", name), 0);
    l->at_once = true;
    flush_soon(l);
    return false;
}

void ledger_forget_user(struct ledger *l, const char *name)
{
    int users = ledger_write_row(l, LEDGER_DROP_USER, "s", name);
    counted(l, -users, -ledger_write_row(l, LEDGER_DROP_JOINED, "s", name));
    ledger_write_row(l, LEDGER_DROP_USERS_OPS, "s", name);
    ledger_write_row(l, LEDGER_DROP_WAITING, "s", name);
    ledger_write_row(l, LEDGER_DROP_NAMES, "s", name);
    ledger_write_row(l, LEDGER_DROP_LOOK, "s", name);
}

void ledger_note(struct ledger *l, const char *key, uint64_t value)
{
    ledger_write_row(l, LEDGER_SET_META, "sn", key, (int64_t)value);
}

uint64_t ledger_noted(struct ledger *l, const char *key)
{
    char text[80];
    snprintf(text, sizeof text, "SELECT value FROM meta WHERE key = '%s'", key);
    int64_t v = one_number(l, text);
    return v > 0 ? (uint64_t)v : 0;
}

bool ledger_remove_peer(struct ledger *l, uint64_t site)
{
    ledger_write_row(l, LEDGER_REMOVE_PEER, "n", (int64_t)site);
    ledger_write_row(l, LEDGER_DROP_PEERS_OPS, "n", (int64_t)site);
    ledger_write_row(l, LEDGER_DROP_UNTOLD, "n", (int64_t)site);
    flush_soon(l);
    return ledger_flush(l);
}
