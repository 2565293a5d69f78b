/* acting_plugins - Dovecot's plugins that act on mail by themselves. They belong to the site where
 * a mail came in, not to the ones it is copied to. The workers refuse users for whom one is loaded
 * (F39), and `dovelane check replicas` reports that before. */
#ifndef DOVELANE_LIB_CONFIG_ACTING_PLUGINS_H
#define DOVELANE_LIB_CONFIG_ACTING_PLUGINS_H

#define ACTING_PLUGINS                                                             \
    "sieve", "imap_sieve", "lazy_expunge", "trash", "expire", "push_notification", \
        "notify_status", "quota_clone", "replication", "autocreate", "welcome"

#endif
