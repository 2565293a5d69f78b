/* store - what the OR-Set core needs of the place where its state is. That is ordered rows of bytes
 * in a few tables, and one transaction at a time.
 *
 * Two implementations: dovecot-plugin/store/state_sqlite.h (beside the mailbox) and
 * tests/support/memstore (in memory, for tests). A third one needs nothing but the functions below.
 * Keys are ordered by memcmp, a key that is a prefix of another comes first.
 *
 * The core keeps all of its facts here. What it holds in memory (vector, folders, keywords) is a
 * cache, which orset_commit() writes and which is read again after orset_rollback(). */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STORE_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STORE_H

#include <stddef.h>
#include <stdint.h>

enum orset_table {
    /* "self" -> own origin, clock, sums, epoch.c's doubts; GUIDs by other names (aliases.c) */
    ORSET_T_META,
    /* origin index -> site, epoch, counter (the version vector), running hash */
    ORSET_T_ORIGIN,
    ORSET_T_FOLDER,       /* folder index -> identity, registers, presence dots, digest */
    ORSET_T_MESSAGE,      /* folder, dot -> immutable facts, flag dots, agreed UID, bound UID */
    ORSET_T_GUID,         /* first bytes of the GUID, folder, dot -> k */
    ORSET_T_UID,          /* folder, UID -> dot */
    ORSET_T_AHEAD,        /* what is remembered of dots that the vector does not cover yet */
    ORSET_T_TASK,         /* what the mailboxes still lack of the state: tasks */
    ORSET_T_KEYWORD,      /* keyword number -> name */
    ORSET_T_SUBSCRIPTION, /* name -> dots */
    ORSET_T_ATTRIBUTE,    /* folder or server, key -> stamp and value */
    ORSET_T_OUT,          /* number -> op of this replica, until every peer has confirmed it */
    ORSET_T_APP,          /* the caller's own rows: cursors, brakes. The core never reads them */
    ORSET_TABLES
};

/* Rows handed to a callback and values handed out by get are the store's: good until the next
 * call on the store. */
typedef int orset_row_fn(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
                         size_t value_len);

#define ORSET_PREFETCH 32

struct orset_ref {
    const void *key;
    size_t len;
};

struct orset_store {
    void *ctx;
    /* 1 and *value, *len when the row is there, 0 when not, -1 on an error (unreadable, out of
     * memory). */
    int (*get)(void *ctx, enum orset_table, const void *key, size_t key_len, const uint8_t **value,
               size_t *len);
    /* 0, or -1. The store copies key and value. */
    int (*put)(void *ctx, enum orset_table, const void *key, size_t key_len, const void *value,
               size_t len);
    /* 0 also when there was no such row, or -1. */
    int (*del)(void *ctx, enum orset_table, const void *key, size_t key_len);
    /* Calls fn for each row whose key begins with the first prefix_len bytes of from and is not
     * before from (from_len >= prefix_len). Goes in order, until fn returns non-zero. Returns what
     * fn returned last, 0 without rows, -1 on an error. fn must not write to the store. */
    int (*each)(void *ctx, enum orset_table, const void *from, size_t from_len, size_t prefix_len,
                orset_row_fn *fn, void *arg);
    /* 0 or -1. 0 or -1. Between begin and commit another user of the same storage sees nothing of
     * it. After a crash either all or nothing of it is there. rollback cannot fail. */
    int (*begin)(void *ctx);
    int (*commit)(void *ctx);
    void (*rollback)(void *ctx);
    /* These rows (at most ORSET_PREFETCH) will be asked for next: a hint, so that the store can
     * fetch them side by side. NULL when it has no use for it. */
    void (*expect)(void *ctx, enum orset_table, const struct orset_ref *, size_t n);
    /* A row holds what cannot be true, so somebody else wrote it: what is stored here is not to
     * be believed any more. NULL where nobody else can write. */
    void (*corrupt)(void *ctx, const char *what);
};

/* Memory comes from the caller, so that tests can make it fail and the plugin can use its pools.
 * resize(ctx, NULL, n) allocates; resize(ctx, p, 0) frees and returns NULL. NULL with n > 0 means:
 * no memory. */
struct orset_alloc {
    void *ctx;
    void *(*resize)(void *ctx, void *ptr, size_t size);
};

#endif
