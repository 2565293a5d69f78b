/* replica_here - the replica that this host is, as its Dovecot has it, for `dovelane check
 * replicas`. */
#ifndef DOVELANE_CTL_REPLICA_HERE_H
#define DOVELANE_CTL_REPLICA_HERE_H

#include "ctl/check.h"
#include "ctl/dovecot_conf.h"

#define REPLICATOR "service dovelane-replicator"
#define WORKER "service dovelane-worker"

struct replica_here {
    struct ctl *ctl;
    bool asked;               /* by its word, and not with everything else */
    const char *dovecot_file; /* NULL: Dovecot's own */
    struct dovecot_conf *dovecot;
    char *name; /* -n; NULL: none, or no replica of dovelane.conf */
    int self;   /* index in dovelane.conf; -1 */
    char *user; /* whom the replicator runs as */
};

/* check_mailboxes.c: namespaces, formats, plugins, the userdb. */
void check_mailboxes(const struct replica_here *);
/* check_plugin.c: what Dovecot's files say to the plugin. */
void check_plugin(const struct replica_here *);
/* check_sites.c: what is compared between sites. */
void check_sites(const struct replica_here *);

/* How a namespace section keeps mail; "" where it is not set for all users. */
struct storage {
    char driver[32], layout[32], index[32]; /* in small letters */
};
void storage_of(const struct dovecot_conf *, const char *section, struct storage *);
/* The character between folders' names, also where none is set; '\0': not known. */
char separator_of(const struct dovecot_conf *, const char *section);

#endif
