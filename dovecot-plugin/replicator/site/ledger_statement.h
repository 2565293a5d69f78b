/* ledger_statement - single statements on replicator.db, in the transaction that gathers. For the
 * ledger's own files. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_LEDGER_STATEMENT_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_LEDGER_STATEMENT_H

#include <sqlite3.h>

#include "dovecot-plugin/replicator/site/ledger.h"

/* Those that are prepared once and stay so. */
enum ledger_statement {
    LEDGER_ADD_USER,
    LEDGER_ADD_JOINED,
    LEDGER_DROP_JOINED,
    LEDGER_HAS_JOINED,
    LEDGER_KNOWS_USER,
    LEDGER_DROP_USER,
    LEDGER_DROP_USERS_OPS,
    LEDGER_SET_OPS,
    LEDGER_DROP_OPS,
    LEDGER_REMOVE_PEER,
    LEDGER_DROP_PEERS_OPS,
    LEDGER_SET_META,
    LEDGER_SET_WAITING,
    LEDGER_DROP_WAITING,
    LEDGER_ADD_LOOK,
    LEDGER_DROP_LOOK,
    LEDGER_DROP_LOOKS,
    LEDGER_GET_LOOKS,
    LEDGER_GET_USERS,
    LEDGER_GET_OPS,
    LEDGER_GET_TOTALS,
    LEDGER_GET_UNCONFIRMED,
    LEDGER_GET_WAITING,
    LEDGER_SET_NAMES,
    LEDGER_DROP_NAMES,
    LEDGER_GET_NAMES,
    LEDGER_GET_UNTOLD,
    LEDGER_DROP_UNTOLD,
    LEDGER_STATEMENTS
};

/* To be reset, and its bindings cleared. NULL: it cannot be prepared (logged). */
sqlite3_stmt *ledger_prepared(struct ledger *, int which);
int ledger_write_row(struct ledger *, int which, const char *format, ...);

/* Format: s text (const char *), n number (int64_t). Returns how many rows that changed. */
int ledger_write(struct ledger *, const char *sql, const char *format, ...);
/* What was written is on disk with ledger_flush(), which comes by itself within a second. */
void ledger_flush_soon(struct ledger *);
/* To be finalized. NULL: it cannot be prepared (logged), and has no row. */
sqlite3_stmt *ledger_read(struct ledger *, const char *sql, const char *format, ...);
bool ledger_next_row(struct ledger *, sqlite3_stmt *);

/* ledger_retired.c: sites that are new in the group are to be told of all that is retired. */
void ledger_meet(struct ledger *, const struct group *);

#endif
