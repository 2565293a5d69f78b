/* folder_name - see folder_name.h. */
#include "dovecot-plugin/mailbox/folder_name.h"
#include "dovecot-plugin/mailbox/scope.h"

bool folder_name_of(struct mail_namespace *ns, const char *vname, buffer_t *name)
{
    const char *key = compat_namespace_name(ns), sep = mail_namespace_get_sep(ns);
    size_t skip = I_MIN(ns->prefix_len, strlen(vname));
    if (scope_is_inbox(ns, vname) || strncmp(vname, ns->prefix, skip) != 0 || vname[skip] == '\0')
        return FALSE;
    buffer_set_used_size(name, 0);
    buffer_append(name, key, strlen(key) + 1);
    for (const char *p = vname + skip; *p != '\0'; p++) {
        char c = *p == sep ? '\0' : *p;
        buffer_append_c(name, (unsigned char)c);
    }
    return TRUE;
}
