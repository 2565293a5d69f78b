/* settings_module - libdovelane_settings.so: Dovecot 2.4's config process loads it to learn the
 * plugin's settings. */
#include "dovecot-plugin/plugin/plugin_settings_parser.h"

#if COMPAT_24
extern const char *dovelane_settings_version;
extern const struct setting_parser_info *dovelane_settings_set_infos[];
void dovelane_settings_init(void);
void dovelane_settings_deinit(void);

const char *dovelane_settings_version = DOVECOT_ABI_VERSION;
const struct setting_parser_info *dovelane_settings_set_infos[] = {&dovelane_setting_parser_info,
                                                                   NULL};

void dovelane_settings_init(void)
{
}

void dovelane_settings_deinit(void)
{
}
#endif
