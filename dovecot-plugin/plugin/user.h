/* user - what the plugin keeps of a mail user, in the user's own memory: a process serves many
 * (lmtp, doveadm). */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_USER_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_USER_H

#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/plugin/plugin_settings.h"

#define GUID_128_HEX_SIZE 32

struct target;

struct plugin_user {
    union mail_user_module_context module_ctx;
    struct dovelane_settings set;
    struct target *left; /* of the mailbox that was closed last (mailbox.c) */
    /* While a gateway delivery to this user is under way: the GUID that its mail gets; else "". */
    char delivery_guid[GUID_128_HEX_SIZE + 1];
    bool delivery_saved; /* something was, by that delivery */
    bool delivery_strip; /* and that mail has a line of the relay's, which is not stored */
    /* Storages that cannot be replicated were named in the log. */
    bool refusal_logged;
};

/* NULL for users that are nobody's mailbox (raw storage, owners of shared namespaces) or whose
 * settings are wrong. */
struct plugin_user *plugin_user_get(struct mail_user *user);

/* Hook. */
void plugin_user_created(struct mail_user *user);

#endif
