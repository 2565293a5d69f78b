/* plugin_settings - reads the plugin's settings in either version of Dovecot. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/plugin/plugin_settings.h"
#include "dovecot-plugin/plugin/plugin_settings_parser.h"

static int read_commit(struct dovelane_settings *set_r, const char *value, const char **error_r)
{
    set_r->commit_peers = strcmp(value, "peers") == 0;
    if (!set_r->commit_peers && strcmp(value, PLUGIN_COMMIT) != 0 && value[0] != '\0') {
        *error_r = t_strdup_printf("dovelane_commit = %s: one of local, peers; until that is "
                                   "mended the replicator gets no hints of this user",
                                   value);
        return -1;
    }
    if (set_r->commit_wait == 0 || set_r->commit_wait > PLUGIN_COMMIT_WAIT_MAX) {
        *error_r = t_strdup_printf("dovelane_commit_wait = %u ms: 1 ms to %u s", set_r->commit_wait,
                                   PLUGIN_COMMIT_WAIT_MAX / 1000);
        return -1;
    }
    return 0;
}

#if COMPAT_24
static int read_settings(struct mail_user *user, struct dovelane_settings *set_r,
                         const char **error_r)
{
    const struct dovelane_parsed_settings *parsed;

    if (settings_get(user->event, &dovelane_setting_parser_info, 0, &parsed, error_r) < 0)
        return -1;
    set_r->hint_path = p_strdup(user->pool, parsed->dovelane_hint_path);
    set_r->dirty_dir = p_strdup(user->pool, parsed->dovelane_dirty_dir);
    set_r->group_key_file = p_strdup(user->pool, parsed->dovelane_group_key_file);
    set_r->public_user = p_strdup(user->pool, parsed->dovelane_public_user);
    set_r->commit_wait = parsed->dovelane_commit_wait;
    const char *commit = t_strdup(parsed->dovelane_commit);
    settings_free(parsed);
    return read_commit(set_r, commit, error_r);
}
#else
static const char *read_one(struct mail_user *user, const char *name, const char *otherwise)
{
    const char *value = mail_user_plugin_getenv(user, name);

    return value == NULL ? otherwise : value;
}

static int read_settings(struct mail_user *user, struct dovelane_settings *set_r,
                         const char **error_r)
{
    const char *value, *error;

    set_r->hint_path = read_one(user, "dovelane_hint_path", "");
    set_r->dirty_dir = read_one(user, "dovelane_dirty_dir", PLUGIN_DIRTY_DIR);
    set_r->group_key_file = read_one(user, "dovelane_group_key_file", "");
    set_r->public_user = read_one(user, "dovelane_public_user", "");
    value = read_one(user, "dovelane_commit_wait", PLUGIN_COMMIT_WAIT);
    if (settings_get_time_msecs(value, &set_r->commit_wait, &error) < 0) {
        *error_r = t_strdup_printf("dovelane_commit_wait = %s: %s", value, error);
        return -1;
    }
    return read_commit(set_r, read_one(user, "dovelane_commit", PLUGIN_COMMIT), error_r);
}
#endif

static int check_path(struct mail_user *user, const char *name, const char *value,
                      const char **error_r)
{
    if (value[0] == '/')
        return 0;
    *error_r = t_strdup_printf(
        "%s = %s: must be an absolute path; changes of user %s wait for the replicator's sweep "
        "until that is mended",
        name, value, user->username);
    return -1;
}

int dovelane_settings_get(struct mail_user *user, struct dovelane_settings *set_r,
                          const char **error_r)
{
    if (read_settings(user, set_r, error_r) < 0)
        return -1;
    if (set_r->hint_path[0] == '\0')
        set_r->hint_path = p_strconcat(user->pool, user->set->base_dir, "/" PLUGIN_FIFO_NAME, NULL);
    if (check_path(user, "dovelane_hint_path", set_r->hint_path, error_r) < 0 ||
        check_path(user, "dovelane_dirty_dir", set_r->dirty_dir, error_r) < 0)
        return -1;
    if (set_r->group_key_file[0] != '\0' &&
        check_path(user, "dovelane_group_key_file", set_r->group_key_file, error_r) < 0)
        return -1;
    return 0;
}
