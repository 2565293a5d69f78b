/* guard - sets SQLite's limits and its authorizer, and stops what takes too long. */
#include "dovecot-plugin/store/guard.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A row takes some hundred steps; a migration some ten for each row of the state. */
#define TICK_STEPS 1000000
#define ROW_TICKS 1000
#define MIGRATION_TICKS 20000

const char *state_guard_no_file(const char *path)
{
    static const char *const part[] = {"", "-wal", "-journal"};
    size_t n = strlen(path) + 16;
    char *name = malloc(n);
    const char *found = NULL;
    for (size_t i = 0; name && !found && i < sizeof part / sizeof part[0]; i++) {
        struct stat st;
        snprintf(name, n, "%s%s", path, part[i]);
        if (lstat(name, &st) == 0 && !S_ISREG(st.st_mode))
            found = part[i];
    }
    free(name);
    return found;
}

char *state_guard_path(const char *path)
{
    const char *file = strrchr(path, '/');
    char *dir = file ? strndup(path, (size_t)(file - path)) : strdup("."), *real, *whole;
    file = file ? file + 1 : path;
    real = dir ? realpath(*dir ? dir : "/", NULL) : NULL;
    free(dir);
    if (!real)
        return strdup(path); /* the open says what is wrong */
    size_t n = strlen(real) + strlen(file) + 2;
    whole = malloc(n);
    if (whole)
        snprintf(whole, n, "%s/%s", strcmp(real, "/") == 0 ? "" : real, file);
    free(real);
    return whole;
}

/* in: the view or trigger that asks for it. */
static int allow(void *arg, int action, const char *a, const char *b, const char *db,
                 const char *in)
{
    (void)arg;
    (void)a;
    (void)b;
    (void)db;
    return in || action == SQLITE_RECURSIVE || action == SQLITE_ATTACH ? SQLITE_DENY : SQLITE_OK;
}

static int tick(void *arg)
{
    struct state_guard *g = arg;
    return ++g->ticks > g->most;
}

void state_guard_row(struct state_guard *g)
{
    g->ticks = 0;
    g->most = ROW_TICKS;
}

void state_guard_migration(struct state_guard *g)
{
    g->ticks = 0;
    g->most = MIGRATION_TICKS;
}

int state_guard_begin(sqlite3 *db, struct state_guard *g)
{
    static const struct {
        int what, value;
    } limit[] = {{SQLITE_LIMIT_LENGTH, STATE_ROW_MAX},
                 {SQLITE_LIMIT_SQL_LENGTH, 10000},
                 {SQLITE_LIMIT_COLUMN, 32},
                 {SQLITE_LIMIT_EXPR_DEPTH, 100},
                 {SQLITE_LIMIT_ATTACHED, 0},
                 {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
                 {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100}};
    for (size_t i = 0; i < sizeof limit / sizeof limit[0]; i++)
        sqlite3_limit(db, limit[i].what, limit[i].value);
    state_guard_row(g);
    sqlite3_progress_handler(db, TICK_STEPS, tick, g);
    int r = sqlite3_set_authorizer(db, allow, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
#ifdef SQLITE_DBCONFIG_TRUSTED_SCHEMA
    if (r == SQLITE_OK)
        r = sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
#endif
    return r == SQLITE_OK ? sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL) : r;
}

bool state_guard_blames_file(sqlite3 *db, const char *path, bool opening)
{
    switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_INTERRUPT: /* state_guard.most */
    case SQLITE_AUTH:
    case SQLITE_SCHEMA: return true;
    /* A text that this program has cannot be wrong. "Too big": a row that is read. */
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG: return opening;
    /* Its own head says so; with more to tell, SQLite means the directory, or that the file is
     * another one by now. */
    case SQLITE_READONLY:
        return sqlite3_extended_errcode(db) == SQLITE_READONLY &&
               faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0;
    default: return false;
    }
}
