/* plugin_settings - the plugin's settings, from plugin {} in Dovecot 2.3 and as settings of
 * their own in 2.4. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_PLUGIN_SETTINGS_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_PLUGIN_SETTINGS_H

struct mail_user;

#define PLUGIN_DIRTY_DIR "/var/lib/dovelane/dirty"
#define PLUGIN_FIFO_NAME "dovelane-hint"
#define PLUGIN_COMMIT "local"
#define PLUGIN_COMMIT_WAIT "2s"
#define PLUGIN_COMMIT_WAIT_MAX 300000

struct dovelane_settings {
    const char *hint_path;      /* dovelane_hint_path; default $base_dir/dovelane-hint */
    const char *dirty_dir;      /* dovelane_dirty_dir */
    const char *group_key_file; /* dovelane_group_key_file; "" = no delivery ids */
    /* dovelane_public_user; "" = public namespaces are not replicated */
    const char *public_user;
    bool commit_peers;    /* dovelane_commit = peers; default "local" */
    unsigned commit_wait; /* dovelane_commit_wait, in milliseconds: 1 to PLUGIN_COMMIT_WAIT_MAX */
};

/* The user's settings, checked; strings live as long as the user. 0, or -1 and *error_r, which
 * names the setting, its value and the way out. */
int dovelane_settings_get(struct mail_user *user, struct dovelane_settings *set_r,
                          const char **error_r);

#endif
