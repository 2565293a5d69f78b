/* user - makes the plugin's part of a mail user, and gives it back. */
#include "dovecot-plugin/plugin/mailbox.h"
#include "dovecot-plugin/plugin/user.h"

#include <module-context.h>

static MODULE_CONTEXT_DEFINE_INIT(plugin_user_module, &mail_user_module_register);

struct plugin_user *plugin_user_get(struct mail_user *user)
{
    return MODULE_CONTEXT(user, plugin_user_module);
}

static void deinit(struct mail_user *user)
{
    struct plugin_user *puser = plugin_user_get(user);

    plugin_mailbox_user_ends(puser); /* the rest may wait for dictionaries */
    puser->module_ctx.super.deinit(user);
    plugin_mailbox_user_ends(puser); /* of mailboxes that were open for virtual ones */
}

void plugin_user_created(struct mail_user *user)
{
    struct mail_user_vfuncs *v = user->vlast;
    struct plugin_user *puser;
    const char *error;

    if (user->autocreated)
        return;
    puser = p_new(user->pool, struct plugin_user, 1);
    if (dovelane_settings_get(user, &puser->set, &error) < 0) {
        e_error(user->event, "dovelane: %s", error);
        return;
    }
    puser->module_ctx.super = *v;
    user->vlast = &puser->module_ctx.super;
    v->deinit = deinit;
    MODULE_CONTEXT_SET(user, plugin_user_module, puser);
}
