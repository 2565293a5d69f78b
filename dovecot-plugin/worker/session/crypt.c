/* crypt - users of mail_crypt whose private key only their password opens: nobody but their
 * login reads what comes in for them, so nothing of it could be sent (F39). Told when the user
 * is opened, by name, not mail by mail. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <mail-storage-private.h>
#include <mailbox-attribute.h>
#include <mailbox-list-private.h>

#include <stdlib.h>
#include <sys/stat.h>

#define KEYS                                                                         \
    MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT_SERVER MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT \
        "crypt/" /* a user's, not a mailbox's */
/* lib-dcrypt's text of a key: version, curve's or algorithm's oid, how it is encrypted, ... */
#define KEY_VERSION "2:"
#define ENCRYPTED_BY_PASSWORD 2

static const char *attribute(struct mailbox *box, enum mail_attribute_type type, const char *key)
{
    struct mail_attribute_value v;
    i_zero(&v);
    return mailbox_attribute_get(box, type, key, &v) > 0 ? v.value : NULL;
}

static bool is_bound_to_password(const char *key)
{
    const char *how = key != NULL && str_begins_with(key, KEY_VERSION)
                          ? strchr(key + strlen(KEY_VERSION), ':')
                          : NULL;
    return how != NULL && atoi(how + 1) == ENCRYPTED_BY_PASSWORD;
}

static bool is_set(struct session *s, const char *setting)
{
    const char *value = compat_crypt_setting(s->user, setting);
    return value != NULL && *value != '\0';
}

bool session_keys_ok(struct session *s, const char **error_r)
{
    const char *id = NULL;
    bool ok = TRUE;
    if ((s->group->backup || s->group->on_demand) &&
        str_array_find(compat_mail_plugins(s->user), "mail_crypt") &&
        compat_crypt_writes(s->user)) {
        if (s->group->on_demand) {
            *error_r =
                "mail_crypt: this site's role is on-demand, and what it fetches is not encrypted: "
                "set role = full for it in dovelane.conf, or leave mail_crypt out here";
            return FALSE;
        }
        *error_r = "mail_crypt: this site's role is backup, and what it keeps is not encrypted: "
                   "set role = full for it in dovelane.conf, or leave mail_crypt out here";
        return FALSE;
    }
    /* A global key comes before the user's own, and what it encrypts anybody with the
     * configuration reads. A mail of before that is told by its look. */
    if (!str_array_find(compat_mail_plugins(s->user), "mail_crypt") ||
        !compat_crypt_writes(s->user) || is_set(s, COMPAT_CRYPT_GLOBAL_KEY) ||
        is_set(s, COMPAT_CRYPT_PASSWORD))
        return TRUE;
    struct mailbox *box = session_mailbox(s, "INBOX", 0);
    struct stat st;
    const char *path;
    /* Not where that would make it. Where it cannot be read now, its look says so. */
    if (mailbox_list_get_path(box->list, box->name, MAILBOX_LIST_PATH_TYPE_MAILBOX, &path) > 0 &&
        stat(path, &st) == 0 && mailbox_open(box) == 0)
        id = attribute(box, MAIL_ATTRIBUTE_TYPE_SHARED, KEYS "active");
    if (id != NULL && is_bound_to_password(attribute(box, MAIL_ATTRIBUTE_TYPE_PRIVATE,
                                                     t_strconcat(KEYS "privkeys/", id, NULL)))) {
        *error_r = "mail_crypt: the user's key is bound to a password that only the login has, so "
                   "nobody else can read these mails. Replicate such users "
                   "with a key without password, or with one that the userdb gives the workers "
                   "(" COMPAT_CRYPT_PASSWORD ")";
        ok = FALSE;
    }
    mailbox_free(&box);
    return ok;
}
