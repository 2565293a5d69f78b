/* user - see user.h */
#include "user.h"

#include <module-context.h>

static MODULE_CONTEXT_DEFINE_INIT(plugin_user_module, &mail_user_module_register);

struct plugin_user *plugin_user_get(struct mail_user *user)
{
    return MODULE_CONTEXT(user, plugin_user_module);
}

void plugin_user_created(struct mail_user *user)
{
    struct plugin_user *puser;
    const char *error;

    if (user->autocreated)
        return;
    puser = p_new(user->pool, struct plugin_user, 1);
    if (dovelane_settings_get(user, &puser->set, &error) < 0) {
        e_error(user->event, "dovelane: %s", error);
        return;
    }
    MODULE_CONTEXT_SET(user, plugin_user_module, puser);
}
