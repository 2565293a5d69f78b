/* plugin_settings_parser - the table of settings that Dovecot 2.4 reads. */
#include "dovecot-plugin/plugin/plugin_settings_parser.h"

#if COMPAT_24
#include "dovecot-plugin/plugin/plugin_settings.h"
#include <settings-parser.h>

static bool absolute(const char *name, const char *value, const char **error_r)
{
    /* What begins with a variable shows when it is expanded. */
    if (value[0] == '/' || value[0] == '\0' || value[0] == '%')
        return TRUE;
    *error_r = t_strdup_printf("%s = %s: must be an absolute path", name, value);
    return FALSE;
}

static bool check(void *data, pool_t pool, const char **error_r)
{
    const struct dovelane_parsed_settings *set = data;

    return absolute("dovelane_hint_path", set->dovelane_hint_path, error_r) &&
           absolute("dovelane_dirty_dir", set->dovelane_dirty_dir, error_r) &&
           absolute("dovelane_group_key_file", set->dovelane_group_key_file, error_r);
}

#define DEF(name) SETTING_DEFINE_STRUCT_STR(#name, name, struct dovelane_parsed_settings)

static const struct setting_define defines[] = {
    DEF(dovelane_hint_path),
    DEF(dovelane_dirty_dir),
    DEF(dovelane_group_key_file),
    DEF(dovelane_public_user),
    DEF(dovelane_commit),
    SETTING_DEFINE_STRUCT_TIME_MSECS("dovelane_commit_wait", dovelane_commit_wait,
                                     struct dovelane_parsed_settings),
    SETTING_DEFINE_LIST_END,
};

static const struct dovelane_parsed_settings defaults = {
    .dovelane_hint_path = "",
    .dovelane_dirty_dir = PLUGIN_DIRTY_DIR,
    .dovelane_group_key_file = "",
    .dovelane_public_user = "",
    .dovelane_commit = PLUGIN_COMMIT,
    .dovelane_commit_wait = 2000, /* PLUGIN_COMMIT_WAIT */
};

const struct setting_parser_info dovelane_setting_parser_info = {
    .name = "dovelane",
    .defines = defines,
    .defaults = &defaults,
    .struct_size = sizeof(struct dovelane_parsed_settings),
    .check_func = check,
    .pool_offset1 = 1 + offsetof(struct dovelane_parsed_settings, pool),
};
#endif
