/* names - folder names travel as namespace key and components (F26); here they become mailbox
 * names and back. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/mailbox/folder_name.h"
#include "dovecot-plugin/mailbox/scope.h"
#include "dovecot-plugin/orset/state/shown.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/session.h"

#include <buffer.h>
#include <mailbox-list-private.h>
#include <str.h>
#include <unichar.h>

bool vname_is_inbox(struct session *s, const char *vname)
{
    return scope_is_inbox(mail_namespace_find(s->user->namespaces, vname), vname);
}

/* --- what the layout can hold ----------------------------------------------------------------- */

struct layout {
    struct session *s;
    struct mail_namespace *ns;
    char special[4];
};

/* Of the components behind the namespace's key. */
static const char *join(const struct mail_namespace *ns, const char *name, size_t len)
{
    size_t key = strnlen(name, len) + 1;
    string_t *vname = t_str_new(len + 32);
    char sep = mail_namespace_get_sep((struct mail_namespace *)ns);
    str_append(vname, ns->prefix);
    for (size_t i = key; i < len; i++)
        str_append_c(vname, (unsigned char)(name[i] == '\0' ? sep : name[i]));
    return str_c(vname);
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

/* The storage's name of it is that of no other one, and none that it has for itself
 * ("dbox-Mails", "tmp"). */
static bool storage_holds(struct mail_namespace *ns, const char *vname)
{
    const char *why, *name = mailbox_list_get_storage_name(ns->list, vname);
    return mailbox_list_is_valid_name(ns->list, name, &why) &&
           strcmp(mailbox_list_get_vname(ns->list, name), vname) == 0;
}

/* A folder that happens to be called like the constant one. */
static bool is_like_inbox(const struct mail_namespace *ns, const char *vname, bool last)
{
    return (ns->flags & NAMESPACE_FLAG_INBOX_USER) != 0 && strcasecmp(vname, "INBOX") == 0 &&
           (last || strcmp(vname, "INBOX") != 0);
}

static bool holds(void *arg, const char *shown, size_t len, bool last)
{
    const struct layout *l = arg;
    size_t begin = len;
    bool is;
    while (begin > 0 && shown[begin - 1] != '\0')
        begin--;
    if (begin == len)
        return FALSE; /* no valid name has an empty component */
    for (size_t i = begin; i < len; i++)
        if ((unsigned char)shown[i] < 0x20 || shown[i] == 0x7f ||
            shown[i] == mail_namespace_get_sep(l->ns))
            return FALSE;
    T_BEGIN
    {
        const char *vname = join(l->ns, shown, len),
                   *part = t_strconcat(l->ns->prefix, t_strndup(shown + begin, len - begin), NULL);
        is = uni_utf8_str_is_valid(vname) && !is_like_inbox(l->ns, vname, last) &&
             !belongs_elsewhere(l->s, l->ns, vname) && storage_holds(l->ns, vname) &&
             storage_holds(l->ns, part);
    }
    T_END;
    return is;
}

static bool exists(void *arg, const char *name, size_t len)
{
    const struct layout *l = arg;
    return orset_has_name(l->s->os, name, len);
}

/* Of both separators, the namespace's and the storage's, and of a directory's. */
static struct orset_layout layout_of(struct session *s, struct mail_namespace *ns, struct layout *l)
{
    *l = (struct layout){s, ns, {'/', mail_namespace_get_sep(ns), 0, 0}};
    l->special[2] = mailbox_list_get_hierarchy_sep(ns->list);
    return (struct orset_layout){l, l->special, holds, exists};
}

/* --- names ------------------------------------------------------------------------------------ */

bool name_of_vname(struct session *s, const char *vname, buffer_t *name)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    if (!folder_name_of(ns, vname, name))
        return FALSE;
    if (memchr(name->data, '%', name->used) == NULL)
        return TRUE;
    struct layout l;
    struct orset_layout layout = layout_of(s, ns, &l);
    char *out = t_malloc_no0(name->used + 1);
    size_t len = orset_unshow(&layout, name->data, name->used, out);
    buffer_set_used_size(name, 0);
    buffer_append(name, out, len);
    return TRUE;
}

static struct mail_namespace *namespace_of(struct session *s, const char *name, size_t len)
{
    size_t key_len = strnlen(name, len);
    struct mail_namespace *ns;
    for (ns = s->user->namespaces; ns != NULL; ns = ns->next)
        if (session_has_namespace(s, ns) && strlen(compat_namespace_name(ns)) == key_len &&
            memcmp(compat_namespace_name(ns), name, key_len) == 0)
            break;
    return key_len == len ? NULL : ns;
}

const char *vname_as_is(struct session *s, const char *name, size_t len)
{
    struct mail_namespace *ns = namespace_of(s, name, len);
    return ns == NULL ? NULL : join(ns, name, len);
}

const char *vname_of_name(struct session *s, const char *name, size_t len)
{
    struct mail_namespace *ns = namespace_of(s, name, len);
    struct layout l;
    if (ns == NULL)
        return NULL;
    struct orset_layout layout = layout_of(s, ns, &l);
    char *shown = t_malloc_no0(ORSET_SHOWN_MAX(len));
    size_t n = orset_show(&layout, name, len, shown);
    return n == 0 ? NULL : join(ns, shown, n);
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

const char *folder_text(struct session *s, uint32_t folder)
{
    const struct box *x = box_by_folder(s, folder);
    struct orset_folder f;
    if (folder == ORSET_INBOX || orset_folder_get(s->os, folder, &f) < 0)
        return "INBOX";
    return x != NULL && x->vname != NULL ? x->vname : name_text(f.name, f.name_len);
}
