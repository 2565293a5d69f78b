/* schema - the tables of a state file: their names, the form of their keys, their versions.
 * Internal to state_sqlite. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STORE_SCHEMA_H
#define DOVELANE_DOVECOT_PLUGIN_STORE_SCHEMA_H

#include "dovecot-plugin/orset/store.h"

#include <sqlite3.h>
#include <stdbool.h>

#define NUMBER_BYTES 7 /* of a key, where it is a number */

extern const char *const schema_table[ORSET_TABLES];

/* Short keys of this table are numbers; the long ones are in NAME_long. */
bool schema_has_numbers(enum orset_table);
/* 56 bits of key, 4 bits of its length: shorter keys come before those they begin. Of a longer
 * key the bound behind its first seven bytes. */
int64_t schema_number(const uint8_t *key, size_t len);

enum schema_result {
    SCHEMA_OK,
    SCHEMA_FAILED,  /* the handle has SQLite's text */
    SCHEMA_FOREIGN, /* there is something else in the file than a state */
    SCHEMA_NEWER    /* a later version of this program wrote it */
};

/* Makes the tables of STATE_SQLITE_VERSION, or brings older ones up to it. What is in the file must
 * be what this program made, by its very text. No view, trigger or index of another origin is ever
 * run. version_r: as it was. */
enum schema_result schema_prepare(sqlite3 *, int64_t *version_r);

#endif
