/* ledger_statement - single statements on replicator.db, in the transaction that gathers. For the
 * ledger's own files. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_LEDGER_STATEMENT_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_LEDGER_STATEMENT_H

#include <sqlite3.h>

#include "dovecot-plugin/replicator/site/ledger.h"

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
