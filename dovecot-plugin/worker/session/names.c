/* names - folder names travel as namespace key and components (F26); here they become mailbox
 * names and back. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/state/tree.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/session.h"

#include <buffer.h>
#include <mailbox-list-private.h>
#include <str.h>
#include <unichar.h>

bool vname_is_inbox(struct session *s, const char *vname)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    return (ns->flags & NAMESPACE_FLAG_INBOX_USER) != 0 && strcasecmp(vname, "INBOX") == 0;
}

bool name_of_vname(struct session *s, const char *vname, buffer_t *name)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    const char *key = compat_namespace_name(ns), sep = mail_namespace_get_sep(ns);
    size_t skip = I_MIN(ns->prefix_len, strlen(vname));
    if (vname_is_inbox(s, vname) || strncmp(vname, ns->prefix, skip) != 0 || vname[skip] == '\0')
        return FALSE;
    buffer_set_used_size(name, 0);
    buffer_append(name, key, strlen(key) + 1);
    for (const char *p = vname + skip; *p != '\0'; p++) {
        char c = *p == sep ? '\0' : *p;
        buffer_append_c(name, (unsigned char)c);
    }
    return TRUE;
}

static void escape_byte(string_t *out, unsigned char c)
{
    str_printfa(out, "%%%02X", c);
}

/* The storage has such a folder for itself ("dbox-Mails", "tmp"), or takes no name like it. */
static bool reserved(struct mail_namespace *ns, const char *part)
{
    const char *why, *vname = t_strconcat(ns->prefix, part, NULL);
    return !mailbox_list_is_valid_name(ns->list, mailbox_list_get_storage_name(ns->list, vname),
                                       &why);
}

/* orset_escape() knows one separator; a layout has two (its own and the namespace's), and names
 * must be UTF-8. */
static void put_component(string_t *vname, struct mail_namespace *ns, const char *part, size_t len)
{
    if (len == 0)
        return; /* no valid name has one */
    char sep = mail_namespace_get_sep(ns), storage_sep = mailbox_list_get_hierarchy_sep(ns->list);
    char *escaped = t_malloc_no0(3 * len + 1);
    size_t n = orset_escape(part, len, storage_sep == '/' ? sep : storage_sep, escaped),
           begin = str_len(vname);
    bool utf8 = uni_utf8_data_is_valid((const unsigned char *)escaped, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)escaped[i];
        if (c == (unsigned char)sep || (c >= 0x80 && !utf8))
            escape_byte(vname, c);
        else
            str_append_c(vname, c);
    }
    const char *shown = t_strdup(str_c(vname) + begin);
    unsigned char first = (unsigned char)shown[0];
    if (first < 0x80 && reserved(ns, shown)) {
        const char *other = t_strdup_printf("%%%02X%s", first, shown + 1);
        if (reserved(ns, other))
            return; /* too long, say: it waits, and the log says why */
        str_truncate(vname, begin);
        str_append(vname, other);
    }
}

/* Dovecot takes it for a name of another namespace, one that the site with the folder has not. */
static bool belongs_elsewhere(struct session *s, const struct mail_namespace *ns, const char *vname)
{
    for (const struct mail_namespace *other = s->user->namespaces; other != NULL;
         other = other->next) {
        size_t len = other->prefix_len;
        if (other != ns && len > ns->prefix_len && strncmp(vname, other->prefix, len - 1) == 0 &&
            (vname[len - 1] == '\0' || vname[len - 1] == other->prefix[len - 1]))
            return TRUE;
    }
    return FALSE;
}

const char *vname_of_name(struct session *s, const char *name, size_t len)
{
    const char *end = name + len;
    size_t key_len = strnlen(name, len);
    struct mail_namespace *ns;
    for (ns = s->user->namespaces; ns != NULL; ns = ns->next)
        if (session_has_namespace(s, ns) && strlen(compat_namespace_name(ns)) == key_len &&
            memcmp(compat_namespace_name(ns), name, key_len) == 0)
            break;
    if (ns == NULL || key_len == len)
        return NULL;
    string_t *vname = t_str_new(len + 32);
    str_append(vname, ns->prefix);
    for (const char *p = name + key_len + 1; p < end;) {
        size_t part = strnlen(p, (size_t)(end - p));
        if (p > name + key_len + 1)
            str_append_c(vname, mail_namespace_get_sep(ns));
        put_component(vname, ns, p, part);
        p += part + 1;
    }
    /* A folder that happens to be called like the constant one. */
    if (vname_is_inbox(s, str_c(vname)))
        return "%49NBOX";
    if (belongs_elsewhere(s, ns, str_c(vname))) {
        unsigned char first = (unsigned char)str_c(vname)[ns->prefix_len];
        if (first >= 0x80)
            return NULL;
        str_delete(vname, ns->prefix_len, 1);
        str_insert(vname, ns->prefix_len, t_strdup_printf("%%%02X", first));
    }
    return str_c(vname);
}

const char *name_text(const char *name, size_t len)
{
    char *text = t_malloc_no0(len + 1);
    memcpy(text, name, len);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0')
            text[i] = '/';
    return text;
}
