/* state_sqlite - the OR-Set core's storage interface on SQLite: one file per user beside the mail
 * index.
 *
 * There is one table per enum orset_table, each (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID.
 * message, uid and out have two. Rows with keys of at most 7 bytes are in (number INTEGER PRIMARY
 * KEY, value BLOB), the others in NAME_long. An admin can count and copy with the sqlite3 tool.
 * journal_mode=WAL, synchronous=NORMAL, locking_mode=EXCLUSIVE (no -shm file, home on NFS; F44). A
 * commit is one write. After power loss the last commits may be gone, all of them in order: that is
 * what reserve.h is for (F12). The log is PATH-wal, and gone after a close. It grows to a quarter
 * of the file, at least 4 MB and at most 32 MB, before its pages are moved. Up to 64 MB of memory
 * hold pages.
 *
 * PRAGMA user_version is the schema's version. A newer file than this program knows is refused,
 * an older one is migrated in one transaction at open. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STORE_STATE_SQLITE_H
#define DOVELANE_DOVECOT_PLUGIN_STORE_STATE_SQLITE_H

#include "dovecot-plugin/orset/store.h"

#include <stdbool.h>

#define STATE_SQLITE_VERSION 2

struct state_sqlite;

/* Opens or makes the file (its directory must be there; mode 0600). 0, or -1 and *error_r: a text
 * that names the path and the way out, from malloc, the caller's. -2: the same, and the file is
 * damaged, not a database, or not a state of this program's. Another process that has the file open
 * is waited for up to 5 s. */
int state_sqlite_open(struct state_sqlite **s_r, const char *path, char **error_r);

/* Rolls an open transaction back, checkpoints, closes. The store must not be used by an orset
 * any more. */
void state_sqlite_close(struct state_sqlite *);

void state_sqlite_interface(struct state_sqlite *, struct orset_store *store_r);

/* Text of the last error of a store call, never NULL. */
const char *state_sqlite_error(const struct state_sqlite *);
/* The file is damaged, or no database, or holds what this program never wrote: no bound of a row
 * is believed (guard.h, store.h). It is to be put aside, and a state made anew. */
void state_sqlite_corrupt(struct state_sqlite *, const char *what);
bool state_sqlite_spoilt(const struct state_sqlite *);
/* Another file has the path by now: the close leaves that one's log alone. */
void state_sqlite_replaced(struct state_sqlite *);

/* Rows in a table, -1 on an error. */
int64_t state_sqlite_rows(struct state_sqlite *, enum orset_table);
/* Moves what the log holds into the file. 0 or -1. */
int state_sqlite_checkpoint(struct state_sqlite *);

#endif
