/* tables - what Postfix's lookup tables can answer (DATABASE_README, access(5),
 * header_checks(5)). */
#ifndef DOVELANE_LIB_POSTFIX_TABLES_H
#define DOVELANE_LIB_POSTFIX_TABLES_H

#include <stdbool.h>

/* What else than HOLD, FILTER, REDIRECT and BCC counts. */
enum table_kind {
    TABLE_ACCESS,        /* nothing */
    TABLE_HEADER_CHECKS, /* IGNORE, STRIP, REPLACE of a Received line: ours is not there yet */
    TABLE_MILTER_CHECKS, /* DISCARD, which comes behind the milter's turn */
};

/* Each table that was looked into; the same as features_word_fn of features.h. NULL: nobody asks. */
typedef bool tables_seen_fn(void *arg, const char *table);

/* Looks through all results of a table ("hash:/etc/postfix/access", "pcre:{{/^a/ HOLD}}"). It looks
 * for those that act on the queue file and are lost when the mail is diverted. directory: Postfix's
 * config directory. NULL: there is none; else a malloc'd text: what and where, or why it cannot be
 * looked into. Blocks: runs postmap(1), reads files. */
char *table_effect(const char *directory, const char *table, enum table_kind, tables_seen_fn *,
                   void *arg);

/* The same for a list of restrictions (smtpd_recipient_restrictions, a class): every
 * check_..._access table in it, and in results that are such lists. */
char *restrictions_effect(const char *directory, const char *list, tables_seen_fn *, void *arg);

#endif
