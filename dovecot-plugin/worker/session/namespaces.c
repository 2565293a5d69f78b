/* namespaces - which of the user's namespaces are replicated, and whether all of them can be. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/mailbox/scope.h"
#include "dovecot-plugin/worker/session/session.h"

#include <mail-storage-private.h>
#include <mailbox-list-private.h>
#include <str.h>

bool storage_known(const struct mail_storage *storage)
{
    return strcmp(storage->name, "sdbox") == 0 || strcmp(storage->name, "mdbox") == 0 ||
           strcmp(storage->name, "maildir") == 0;
}

/* The mailbox's storage is one that replicates: sdbox, mdbox, maildir with an index on disk
 * (F8). */
static bool storage_ok(struct mail_namespace *ns, const char **error_r)
{
    const char *path;
    struct mail_storage *storage = mail_namespace_get_default_storage(ns);
    if (storage == NULL || !storage_known(storage)) {
        *error_r = t_strdup_printf(
            "namespace %s: storage %s is not replicated; sdbox, mdbox and maildir are",
            compat_namespace_name(ns), storage == NULL ? "none" : storage->name);
        return FALSE;
    }
    if (!mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_INDEX, &path) ||
        *path == '\0') {
        *error_r = t_strdup_printf(
            "namespace %s: the index is in memory only, its log cannot be followed: "
            "give the mail location an index directory",
            compat_namespace_name(ns));
        return FALSE;
    }
    return TRUE;
}

bool session_has_namespace(struct session *s, struct mail_namespace *ns)
{
    return scope_has(s->user, ns, s->group->ns, s->group->nnamespaces, s->group->public_user);
}

/* One that only some users have is nothing; one that no user has is a slip of the pen, and its
 * folders would go nowhere. */
static void say_unknown_namespaces(struct session *s)
{
    static bool said;
    for (unsigned i = 0; i < s->group->nnamespaces && !said; i++) {
        struct mail_namespace *ns = s->user->namespaces;
        while (ns != NULL && strcmp(compat_namespace_name(ns), s->group->ns[i]) != 0)
            ns = ns->next;
        if (ns == NULL) {
            said = TRUE;
            e_warning(s->event,
                      "replicate_namespaces names \"%s\", but this user has no namespace section "
                      "of that name; "
                      "nothing more is said of it",
                      s->group->ns[i]);
        }
    }
}

static const char *no_namespace(struct session *s)
{
    string_t *text = t_str_new(128);
    str_append(text, "no namespace of this user is named in replicate_namespaces, which has");
    for (unsigned i = 0; i < s->group->nnamespaces; i++)
        str_printfa(text, "%s \"%s\"", i > 0 ? "," : "", s->group->ns[i]);
    str_append(text, "; this user's namespace sections are");
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next)
        str_printfa(text, "%s \"%s\"", ns != s->user->namespaces ? "," : "",
                    compat_namespace_name(ns));
    return str_c(text);
}

bool session_namespaces_ok(struct session *s, const char **error_r)
{
    unsigned n = 0;
    say_unknown_namespaces(s);
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        if (!session_has_namespace(s, ns))
            continue;
        n++;
        if (!storage_ok(ns, error_r))
            return FALSE;
    }
    if (n == 0)
        *error_r = no_namespace(s);
    return n > 0;
}
