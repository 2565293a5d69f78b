/* rows - rows of the store, memory, and what is said of a failure of either. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_ROWS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_ROWS_H

#include "dovecot-plugin/orset/base/handle.h"

int orset_fail(struct orset *, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int orset_storage_fail(struct orset *, const char *what);
/* a row cannot be true: reported to the store, as a failure of it */
int orset_corrupt(struct orset *, const char *what);
void *orset_mem(struct orset *, void *p, size_t n); /* NULL marks the transaction broken */
int orset_need_transaction(struct orset *);

int orset_row_put(struct orset *, enum orset_table, const struct orset_key *,
                  const struct orset_buf *);
int orset_row_del(struct orset *, enum orset_table, const struct orset_key *);
/* 1 and its value, 0, error */
int orset_row_get(struct orset *, enum orset_table, const struct orset_key *,
                  struct orset_reader *);

/* The state's own row, and those of origins and folders, say what all others mean. They end with a
 * seal, four bytes of a hash of what is before it. So a flipped bit in them is known as one. Most
 * would look true: an epoch or a folder's id is as good as any other. Peers would keep what was told
 * of it for ever. A program that knows no seals reads such a row, and writes it without. */
void orset_seal(struct orset_buf *row);
/* left: what was not read of the row of len bytes at row. It is a seal, and a true one; or nothing,
 * where a program without seals wrote the row. */
bool orset_sealed(const uint8_t *row, size_t len, const struct orset_reader *left);

/* A dot in a value, on the wire or in a row, and in a key. */
void orset_dot_write(struct orset_buf *, struct orset_dot);
void orset_key_dot(struct orset_key *, struct orset_dot);
/* Numbers of a row's key or value that are used as indices. Out of bounds they are bad, and the
 * index is one that exists. */
struct orset_dot orset_key_read_dot(const struct orset *, struct orset_reader *);
struct orset_dot orset_row_read_dot(const struct orset *, struct orset_reader *);
uint32_t orset_key_read_folder(const struct orset *, struct orset_reader *);

#endif
