/* guard - a state file is in its user's hands, where users have a shell: what such a file may make
 * SQLite do.
 *
 * Nothing that is in the file is run: no view, no trigger, no function, no recursion. No step of a
 * statement goes on without end. No row is longer than rows are. No other file is opened in place
 * of the state's. Internal to state_sqlite. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STORE_GUARD_H
#define DOVELANE_DOVECOT_PLUGIN_STORE_GUARD_H

#include <sqlite3.h>
#include <stdbool.h>

/* Steps of SQLite's machine are counted, not time: a slow disk or a busy host is no reason to
 * give up. */
struct state_guard {
    unsigned ticks, most;
};

/* No file of this program has longer rows. An op and an attribute are of 2 MiB at most; so is an
 * APP row of MOVED_MAX mails. */
#define STATE_ROW_MAX (64 * 1024 * 1024)

/* Which of the state's files is there and is not a plain file (a link, a directory, a pipe): "",
 * "-wal" or "-journal". NULL: there is no such file. */
const char *state_guard_no_file(const char *path);
/* The path with its directory resolved, so that SQLITE_OPEN_NOFOLLOW means the file alone. From
 * malloc; NULL: no memory. */
char *state_guard_path(const char *path);
/* Right after the open, before anything is read. An error of SQLite's, or SQLITE_OK. */
int state_guard_begin(sqlite3 *, struct state_guard *);
/* The next step of a statement may take this long: a row's, or all of a migration's. */
void state_guard_row(struct state_guard *);
void state_guard_migration(struct state_guard *);
/* The handle's last error is the file's doing, not the disk's or the host's. opening: nothing
 * but what this program made was asked for yet. */
bool state_guard_blames_file(sqlite3 *, const char *path, bool opening);

#endif
