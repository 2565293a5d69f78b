/* plugin_settings_parser - the settings as Dovecot 2.4's configuration knows them. Declared
 * once, for the plugin and for the small module that tells doveconf of them (settings_module.c).
 * Nothing in 2.3. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_PLUGIN_SETTINGS_PARSER_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_PLUGIN_SETTINGS_PARSER_H

#include "dovecot-plugin/compat.h"

#if COMPAT_24
#include <settings.h>

struct dovelane_parsed_settings {
    pool_t pool;
    const char *dovelane_hint_path;
    const char *dovelane_dirty_dir;
    const char *dovelane_group_key_file;
    const char *dovelane_public_user;
    const char *dovelane_commit;
    unsigned int dovelane_commit_wait;
};

extern const struct setting_parser_info dovelane_setting_parser_info;
#endif

#endif
