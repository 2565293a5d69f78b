/* owner - finds the user whose mailbox it is, and says why it is not replicated. */
#include "dovecot-plugin/plugin/owner.h"

#include <mail-storage-private.h>
#include <mailbox-list-private.h>
#include <string.h>

static bool one_of(const char *name, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strcmp(name, *list) == 0)
            return TRUE;
    }
    return FALSE;
}

/* Why the mailbox cannot be replicated and what to do, or NULL. */
static const char *refusal(struct mailbox *box)
{
    static const char *const replicated[] = {"sdbox", "mdbox", "maildir", NULL};
    const char *index_root, *control_root, *mail_root;

    if (!one_of(box->storage->name, replicated))
        return t_strdup_printf(
            "storage %s has no index log to replicate from; use sdbox, mdbox or maildir",
            box->storage->name);
    if (!mailbox_list_get_root_path(box->list, MAILBOX_LIST_PATH_TYPE_INDEX, &index_root))
        return t_strdup_printf("storage %s with its index in memory has no log to replicate from; "
                               "take the MEMORY index out of the mail location",
                               box->storage->name);
    if (strcmp(box->storage->name, "maildir") == 0 && strcmp(box->list->name, "fs") == 0 &&
        mailbox_list_get_root_path(box->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &control_root) &&
        mailbox_list_get_root_path(box->list, MAILBOX_LIST_PATH_TYPE_MAILBOX, &mail_root) &&
        strcmp(control_root, mail_root) == 0)
        return "storage maildir with layout fs would show the replication state as a folder; "
               "give it a control directory of its own";
    return NULL;
}

const char *owner_of(struct plugin_user *puser, struct mailbox *box)
{
    /* Not mailboxes of anybody, or a view of others that are looked at themselves. */
    static const char *const views[] = {"virtual", "raw", "shared", "fail", NULL};
    const struct mail_namespace *ns = box->list->ns;
    const char *why;

    if (one_of(box->storage->name, views))
        return NULL;
    if (ns->type == MAIL_NAMESPACE_TYPE_PUBLIC && puser->set.public_user[0] == '\0')
        return NULL;
    why = refusal(box);
    if (why != NULL) {
        if (!puser->refusal_logged) {
            puser->refusal_logged = TRUE;
            e_warning(box->storage->user->event,
                      "dovelane: user %s, namespace %s is not replicated: %s",
                      ns->owner == NULL ? ns->user->username : ns->owner->username,
                      compat_namespace_name(ns), why);
        }
        return NULL;
    }
    if (ns->type == MAIL_NAMESPACE_TYPE_PUBLIC)
        return puser->set.public_user;
    return ns->owner == NULL ? ns->user->username : ns->owner->username;
}
