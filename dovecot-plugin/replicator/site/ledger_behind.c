/* Who is behind: whose changes peers have not confirmed, whose mails or folders wait here, and who
 * was to be looked at. And pages of users. */
#include <stdlib.h>

#include "dovecot-plugin/replicator/site/ledger_statement.h"

#define LOOKS_PAGE 1000

void ledger_unconfirmed(struct ledger *l, uint64_t site, const char *name, uint64_t ops,
                        int64_t since)
{
    if (ops)
        ledger_write_row(l, LEDGER_SET_OPS, "nsnn", (int64_t)site, name, (int64_t)ops, since);
    else
        ledger_write_row(l, LEDGER_DROP_OPS, "ns", (int64_t)site, name);
}

void ledger_waiting(struct ledger *l, const char *name, uint64_t unplaced, uint64_t held)
{
    if (unplaced || held)
        ledger_write_row(l, LEDGER_SET_WAITING, "snn", name, (int64_t)unplaced, (int64_t)held);
    else
        ledger_write_row(l, LEDGER_DROP_WAITING, "s", name);
}

/* Where there is no row: 0, 0. */
static bool two_numbers(struct ledger *l, int which, const char *name, uint64_t site,
                        int64_t *one_r, int64_t *two_r)
{
    sqlite3_stmt *s = ledger_prepared(l, which);
    *one_r = *two_r = 0;
    if (!s)
        return false;
    sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC); /* NULL is bound as such */
    if (which == LEDGER_GET_UNCONFIRMED)
        sqlite3_bind_int64(s, 2, (int64_t)site);
    if (ledger_next_row(l, s)) {
        *one_r = sqlite3_column_int64(s, 0);
        *two_r = sqlite3_column_int64(s, 1);
    }
    bool read = sqlite3_reset(s) == SQLITE_OK; /* an error of the step comes again */
    sqlite3_clear_bindings(s);
    return read;
}

bool ledger_get_unconfirmed(struct ledger *l, uint64_t site, const char *name, uint64_t *ops_r,
                            int64_t *since_r)
{
    int64_t ops;
    bool read = two_numbers(l, LEDGER_GET_UNCONFIRMED, name, site, &ops, since_r);
    *ops_r = (uint64_t)ops;
    return read;
}

bool ledger_get_waiting(struct ledger *l, const char *name, uint64_t *unplaced_r, uint64_t *held_r)
{
    int64_t unplaced, held;
    bool read = two_numbers(l, LEDGER_GET_WAITING, name, 0, &unplaced, &held);
    *unplaced_r = (uint64_t)unplaced;
    *held_r = (uint64_t)held;
    return read;
}

void ledger_names(struct ledger *l, const char *name, uint64_t folders)
{
    if (folders)
        ledger_write_row(l, LEDGER_SET_NAMES, "sn", name, (int64_t)folders);
    else
        ledger_write_row(l, LEDGER_DROP_NAMES, "s", name);
}

uint64_t ledger_get_names(struct ledger *l, const char *name)
{
    int64_t folders, none;
    (void)two_numbers(l, LEDGER_GET_NAMES, name, 0, &folders, &none);
    return (uint64_t)folders;
}

/* Rows are copied before fn sees them: it may write. */
static size_t each(struct ledger *l, int which, uint64_t site, const char *after, size_t most,
                   ledger_fn *fn, void *arg)
{
    struct row {
        char *name;
        uint64_t ops;
        int64_t since;
    } *row = mem_zero(most * sizeof *row);
    sqlite3_stmt *s = ledger_prepared(l, which);
    size_t n = 0;
    if (s) {
        sqlite3_bind_text(s, 1, after, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s, 2, (int64_t)most);
        if (which == LEDGER_GET_OPS || which == LEDGER_GET_UNTOLD)
            sqlite3_bind_int64(s, 3, (int64_t)site);
        while (n < most && ledger_next_row(l, s)) {
            const char *name = (const char *)sqlite3_column_text(s, 0);
            row[n++] =
                (struct row){mem_strdup(name ? name : ""), (uint64_t)sqlite3_column_int64(s, 1),
                             sqlite3_column_int64(s, 2)};
        }
        sqlite3_reset(s);
        sqlite3_clear_bindings(s);
    }
    for (size_t i = 0; i < n; i++) {
        fn(arg, row[i].name, row[i].ops, row[i].since);
        free(row[i].name);
    }
    free(row);
    return n;
}

size_t ledger_users(struct ledger *l, const char *after, size_t most, ledger_fn *fn, void *arg)
{
    return each(l, LEDGER_GET_USERS, 0, after, most, fn, arg);
}

size_t ledger_each_unconfirmed(struct ledger *l, uint64_t site, const char *after, size_t most,
                               ledger_fn *fn, void *arg)
{
    return each(l, LEDGER_GET_OPS, site, after, most, fn, arg);
}

size_t ledger_each_untold(struct ledger *l, uint64_t site, const char *after, size_t most,
                          ledger_fn *fn, void *arg)
{
    return each(l, LEDGER_GET_UNTOLD, site, after, most, fn, arg);
}

void ledger_look(struct ledger *l, const char *name)
{
    ledger_write_row(l, LEDGER_ADD_LOOK, "s", name);
}

struct looks {
    ledger_fn *fn;
    void *arg;
    char *last;
};

static void on_look(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct looks *k = arg;
    k->fn(k->arg, name, ops, since);
    free(k->last);
    k->last = mem_strdup(name);
}

void ledger_looks(struct ledger *l, ledger_fn *fn, void *arg)
{
    struct looks k = {fn, arg, mem_strdup("")};
    while (each(l, LEDGER_GET_LOOKS, 0, k.last, LOOKS_PAGE, on_look, &k) == LOOKS_PAGE)
        ;
    if (*k.last)
        ledger_write_row(l, LEDGER_DROP_LOOKS, "s", k.last);
    free(k.last);
}

bool ledger_totals(struct ledger *l, uint64_t site, uint64_t *users_r, uint64_t *ops_r,
                   int64_t *since_r)
{
    sqlite3_stmt *s = ledger_prepared(l, LEDGER_GET_TOTALS);
    *users_r = *ops_r = 0;
    *since_r = 0;
    if (!s)
        return false;
    sqlite3_bind_int64(s, 1, (int64_t)site);
    if (ledger_next_row(l, s)) {
        *users_r = (uint64_t)sqlite3_column_int64(s, 0);
        *ops_r = (uint64_t)sqlite3_column_int64(s, 1);
        *since_r = sqlite3_column_int64(s, 2);
    }
    return sqlite3_reset(s) == SQLITE_OK;
}
