/* subscriptions - names that a user subscribed, of which the core keeps what is wanted, and rows
 * here what was seen last (F4).
 *
 * A name that was listed and is not any more was unsubscribed when the plugin wrote so
 * (journal.c). Else the file is lost, or an old one: the name is subscribed again. A name that
 * comes back into the list, and went from it on somebody's word, was subscribed again when the
 * plugin wrote so; else it is unsubscribed again. A name that was never there is the user's. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/logs/journal.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <bsearch-insert-pos.h>
#include <buffer.h>
#include <mail-storage-private.h>
#include <mailbox-list-iter.h>

#define LISTED ""           /* row: the names seen last */
#define FORMER "-"          /* row: those that went from the list on somebody's word */
#define APPLIED_AT_ONCE 100 /* names in one commit */

/* INBOX has no name as a folder, but one to subscribe to. */
static bool subscription_name(struct session *s, const char *vname, buffer_t *name)
{
    if (!vname_is_inbox(s, vname))
        return name_of_vname(s, vname, name);
    const char *key = compat_namespace_name(mail_namespace_find(s->user->namespaces, vname));
    buffer_set_used_size(name, 0);
    buffer_append(name, key, strlen(key) + 1);
    buffer_append(name, "INBOX", 5);
    return TRUE;
}

static const char *subscription_vname(struct session *s, const char *name, size_t len)
{
    struct mail_namespace *ns = mail_namespace_find_inbox(s->user->namespaces);
    size_t key_len = strnlen(name, len);
    if (strcmp(compat_namespace_name(ns), t_strndup(name, key_len)) == 0 && len == key_len + 6 &&
        memcmp(name + key_len + 1, "INBOX", 5) == 0)
        return "INBOX";
    return vname_of_name(s, name, len);
}

static int by_name(const char *const *a, const char *const *b)
{
    return strcmp(*a, *b);
}

static int list_subscriptions(struct session *s, ARRAY_TYPE(const_string) * names)
{
    int r = 0;
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL && r == 0; ns = ns->next) {
        const struct mailbox_info *info;
        if (!session_has_namespace(s, ns))
            continue;
        struct mailbox_list_iterate_context *iter = mailbox_list_iter_init(
            ns->list, "*", MAILBOX_LIST_ITER_SELECT_SUBSCRIBED | MAILBOX_LIST_ITER_RETURN_NO_FLAGS);
        while ((info = mailbox_list_iter_next(iter)) != NULL) {
            const char *vname = t_strdup(info->vname);
            array_push_back(names, &vname);
        }
        if (mailbox_list_iter_deinit(&iter) < 0)
            r = session_fail(s, "subscriptions cannot be listed: %s",
                             mailbox_list_get_last_internal_error(ns->list, NULL));
    }
    array_sort(names, by_name);
    return r;
}

/* --- sorted names, and their rows ------------------------------------------------------------- */

static bool has(ARRAY_TYPE(const_string) * names, const char *vname)
{
    return array_bsearch(names, &vname, by_name) != NULL;
}

static void add(ARRAY_TYPE(const_string) * names, const char *vname)
{
    unsigned at;
    if (!array_bsearch_insert_pos(names, &vname, by_name, &at))
        array_insert(names, at, &vname, 1);
}

static void drop(ARRAY_TYPE(const_string) * names, const char *vname)
{
    unsigned at;
    while (array_bsearch_insert_pos(names, &vname, by_name, &at))
        array_delete(names, at, 1);
}

static int load_names(struct session *s, const char *row, ARRAY_TYPE(const_string) * names)
{
    const uint8_t *v;
    size_t len, n;
    t_array_init(names, 16);
    int r = rows_get(s, ROW_SUBSCRIPTIONS, row, strlen(row), &v, &len);
    struct orset_reader in = orset_reader_of(v, r > 0 ? len : 0);
    in.bad = r <= 0;
    while (!in.bad && in.at != in.end) {
        const uint8_t *p = orset_read_text(&in, ROW_NAME_MAX, &n);
        const char *vname = p == NULL ? NULL : t_strndup(p, n);
        if (vname == NULL || strlen(vname) != n)
            return rows_corrupt(s, "the names that were subscribed");
        array_push_back(names, &vname);
    }
    array_sort(names, by_name);
    return r < 0 ? -1 : 0;
}

static int put_names(struct session *s, const char *row, const ARRAY_TYPE(const_string) * names)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const char *const *n;
    array_foreach (names, n)
        orset_buf_text(&b, *n, strlen(*n));
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_SUBSCRIPTIONS, row, strlen(row),
                                b.len > 0 ? b.data : (const uint8_t *)"", b.len);
    orset_buf_free(&b);
    return r;
}

/* --- ingest ----------------------------------------------------------------------------------- */

struct subscription_scan {
    struct session *s;
    struct journal *journal;
    ARRAY_TYPE(const_string) now, seen, former;
    unsigned lost, back; /* names that went, and came back, on nobody's word */
    bool other;          /* the list is not the one seen last */
};

/* The mailbox list has the name, or has it no more: by somebody's doing, or as damage. */
static int changed(struct subscription_scan *l, const char *vname, bool on, bool said)
{
    struct session *s = l->s;
    buffer_t *name = t_buffer_create(128);
    l->other = TRUE;
    if (!subscription_name(s, vname, name))
        return 0;
    int r = said ? orset_local_subscribe(s->os, name->data, name->used, on)
                 : orset_local_subscription_shown(s->os, name->data, name->used, on);
    l->back += !said && on && r == ORSET_OK;
    l->lost += !said && !on && r == ORSET_OK;
    if (r == ORSET_E_LIMIT) {
        session_note(s, NOTE_WARNING, "the subscription of %s is not replicated: %s", vname,
                     orset_error_text(s->os));
        return 0;
    }
    return r < 0 ? session_core_failed(s, vname) : 0;
}

static int came(struct subscription_scan *l, const char *vname)
{
    bool said =
        l->s->rewound || !has(&l->former, vname) || journal_subscription(l->journal, vname, TRUE);
    if (said)
        drop(&l->former, vname);
    return changed(l, vname, TRUE, said);
}

static int went(struct subscription_scan *l, const char *vname)
{
    bool said = journal_subscription(l->journal, vname, FALSE);
    if (said)
        add(&l->former, vname);
    return changed(l, vname, FALSE, said);
}

/* It is listed as before, and clients unsubscribed and subscribed it since: who unsubscribes it
 * elsewhere meanwhile has not seen that. */
static int stays(struct subscription_scan *l, const char *vname)
{
    if (!journal_subscription(l->journal, vname, FALSE) ||
        !journal_subscription(l->journal, vname, TRUE))
        return 0;
    return changed(l, vname, FALSE, TRUE) < 0 ? -1 : changed(l, vname, TRUE, TRUE);
}

static int compare(struct subscription_scan *l)
{
    const char *const *n;
    array_foreach (&l->now, n) {
        if ((has(&l->seen, *n) ? stays(l, *n) : came(l, *n)) < 0)
            return -1;
    }
    array_foreach (&l->seen, n) {
        if (!has(&l->now, *n) && went(l, *n) < 0)
            return -1;
    }
    if (l->lost + l->back > 0)
        session_note(l->s, NOTE_WARNING,
                     "the subscriptions are lost, or an old backup's (%u are missing and %u are "
                     "back that nobody unsubscribed or "
                     "subscribed): they are restored",
                     l->lost, l->back);
    if (!l->other)
        return 0;
    return put_names(l->s, LISTED, &l->now) < 0 ? -1 : put_names(l->s, FORMER, &l->former);
}

int subscriptions_ingest(struct session *s, struct journal *journal, bool *names_r)
{
    struct subscription_scan l = {.s = s, .journal = journal};
    t_array_init(&l.now, 16);
    if (list_subscriptions(s, &l.now) < 0) {
        /* Nothing is concluded from it, and the mail waits for nobody: it may stay so for long. */
        session_note(s, NOTE_WARNING, "%s: their changes wait", session_error(s));
        *names_r = s->scan_again = TRUE;
        session_want_tick(s, 60000);
        return 0;
    }
    /* What was written before a name went is read after it is missed. */
    if (journal_read(journal) < 0 || load_names(s, LISTED, &l.seen) < 0 ||
        load_names(s, FORMER, &l.former) < 0)
        return -1;
    return compare(&l);
}

/* --- apply ------------------------------------------------------------------------------------ */

/* A name that the mailbox list has, or has not any more, by the state's word. */
struct applied {
    const char *name, *vname;
    size_t len;
    bool on;
};
ARRAY_DEFINE_TYPE(applied, struct applied);

/* They are seen now as a peer, or the state, has them. */
static int put_applied(struct session *s, const ARRAY_TYPE(applied) * list)
{
    ARRAY_TYPE(const_string) seen, former;
    const struct applied *a;
    if (load_names(s, LISTED, &seen) < 0 || load_names(s, FORMER, &former) < 0)
        return -1;
    array_foreach (list, a) {
        add(a->on ? &seen : &former, a->vname);
        drop(a->on ? &former : &seen, a->vname);
        if (orset_done_subscription(s->os, a->name, a->len) < 0)
            return session_core_failed(s, a->vname);
    }
    return put_names(s, LISTED, &seen) < 0 ? -1 : put_names(s, FORMER, &former);
}

static int commit_applied(struct session *s, const ARRAY_TYPE(applied) * list)
{
    if (array_count(list) == 0)
        return 0;
    if (session_begin(s) < 0)
        return -1;
    if (put_applied(s, list) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static void apply_one(struct session *s, const struct orset_task *t, ARRAY_TYPE(applied) * list)
{
    const char *name = p_memdup(pool_datastack_create(), t->name, t->name_len);
    struct applied a = {.name = name, .len = t->name_len};
    a.vname = subscription_vname(s, a.name, a.len);
    a.on = orset_subscribed(s->os, a.name, a.len);
    if (a.vname == NULL)
        return;
    struct mailbox *box = session_mailbox(s, a.vname, 0);
    if (mailbox_set_subscribed(box, a.on) == 0)
        array_push_back(list, &a);
    else
        session_note(s, NOTE_WARNING, "%s: cannot be %ssubscribed: %s", a.vname, a.on ? "" : "un",
                     mailbox_get_last_internal_error(box, NULL));
    mailbox_free(&box);
}

/* The rows have all names, and are written anew for each commit. */
int subscriptions_apply(struct session *s)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    int got, r;
    t->at[0] = ORSET_TASK_SUBSCRIPTION;
    t->at_len = 1;
    do {
        T_BEGIN
        {
            ARRAY_TYPE(applied) list;
            t_array_init(&list, APPLIED_AT_ONCE);
            while ((got = orset_task_next(s->os, t)) > 0 && t->kind == ORSET_TASK_SUBSCRIPTION) {
                apply_one(s, t, &list);
                if (array_count(&list) == APPLIED_AT_ONCE)
                    break;
            }
            r = got < 0 ? session_core_failed(s, "todo") : commit_applied(s, &list);
        }
        T_END;
    } while (r == 0 && got > 0 && t->kind == ORSET_TASK_SUBSCRIPTION);
    i_free(t);
    return r;
}
