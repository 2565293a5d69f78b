/* scope - see scope.h. */
#include "dovecot-plugin/mailbox/scope.h"

bool scope_has(const struct mail_user *user, const struct mail_namespace *ns,
               const char *const *names, size_t n, const char *public_user)
{
    const char *name = compat_namespace_name(ns);
    if (ns->type == MAIL_NAMESPACE_TYPE_SHARED ||
        (ns->type == MAIL_NAMESPACE_TYPE_PUBLIC && strcmp(public_user, user->username) != 0) ||
        ns->alias_for != NULL)
        return FALSE;
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return TRUE;
    return FALSE;
}

bool scope_is_inbox(const struct mail_namespace *ns, const char *vname)
{
    return (ns->flags & NAMESPACE_FLAG_INBOX_USER) != 0 && strcasecmp(vname, "INBOX") == 0;
}
