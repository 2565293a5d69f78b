/* plugin - lib20_dovelane_plugin.so, for imap, pop3, lmtp, lda, managesieve and doveadm
 * (mail_plugins = dovelane).
 *
 * It tells the replicator where to look (hint), writes down which folders were meant to go
 * (intent), and names mail that came through the gateway (delivery). Dovecot's own commit is the
 * record of what changed; this plugin keeps none, so a crash of it loses nothing. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/plugin/commit.h"
#include "dovecot-plugin/plugin/delivery.h"
#include "dovecot-plugin/plugin/fetch.h"
#include "dovecot-plugin/plugin/hint.h"
#include "dovecot-plugin/plugin/mailbox.h"
#include "dovecot-plugin/plugin/user.h"

#include <mail-storage-hooks.h>
#include <module-dir.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char *dovelane_plugin_version;
EXPORT void dovelane_plugin_init(struct module *module);
EXPORT void dovelane_plugin_deinit(void);

const char *dovelane_plugin_version = DOVECOT_ABI_VERSION;

static void user_created(struct mail_user *user)
{
    plugin_user_created(user);
    delivery_hook();
}

static struct mail_storage_hooks hooks = {
    .mail_user_created = user_created,
    .mailbox_allocated = plugin_mailbox_allocated,
    .mail_allocated = plugin_mail_allocated,
};

/* What the replicator's own worker changes came from the replicator. */
static bool in_worker(void)
{
    return master_service != NULL &&
           strcmp(master_service_get_name(master_service), "dovelane-worker") == 0;
}

void dovelane_plugin_init(struct module *module)
{
    if (!in_worker())
        mail_storage_hooks_add(module, &hooks);
}

void dovelane_plugin_deinit(void)
{
    if (!in_worker())
        mail_storage_hooks_remove(&hooks);
    commit_deinit();
    delivery_unhook();
    hint_deinit();
}
