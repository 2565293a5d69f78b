/* replicator_dir - where replicator.db and the reserve are.
 *
 * A user who may write there can have numbers given twice; so it belongs to the replicator's own
 * user. Versions before ran as the user of relay and milter, and had them in those programs'
 * directory. Where they still are, and may be written, they stay. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_REPLICATOR_DIR_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_REPLICATOR_DIR_H

#define REPLICATOR_DIR_OWN "/var/lib/dovelane-replicator"
#define REPLICATOR_DIR_OLDER "/var/lib/dovelane"

/* setting: replicator_dir, "" for the rule above. Malloc'd; or NULL with *error_r (malloc'd): what
 * is there is another user's, or a directory cannot be searched. A new reserve beside one that
 * counts would give its numbers once more. */
char *replicator_dir_find(const char *setting, const char *own, const char *older, char **error_r);

#endif
