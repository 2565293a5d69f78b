/* check - what is wrong with an installation, each with the way to mend it. */
#ifndef DOVELANE_CTL_CHECK_H
#define DOVELANE_CTL_CHECK_H

#include "ctl/ctl.h"
#include "lib/postfix/postconf.h"

enum finding {
    FINDING_GOOD,
    FINDING_WARNING,  /* works, but not as well, or not for every mail */
    FINDING_CRITICAL, /* mail is lost, doubled, refused, or slow as a snail */
};

/* Which. */
enum found {
#define FINDING(section, name, text) FOUND_##name,
#include "ctl/findings.def"
#undef FINDING
    FOUND_MOST
};

/* Before the first of these. */
void check_begin(void);
/* One line: what is so; a second one: what mends it. */
void check_say(struct ctl *, enum finding, enum found, const char *about, const char *mend,
               const char *format, ...) __attribute__((format(printf, 6, 7)));
/* What is good is shown with -v only. */
void check_good(struct ctl *, const char *about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* From now on good things are shown, too. */
void check_verbose(void);
/* How many of each there were. */
void check_sum(void);
/* The names of all findings, by section. */
void check_list(void);

void check_nodes(struct ctl *);
/* whether the times that are set are long enough for how far that node is */
void check_times(struct ctl *, struct conn *, size_t node);
void check_spread(struct ctl *); /* what the loss of a zone or a site would cost */
/* check_shape.c */
void check_backoff_rules(struct ctl *); /* the file that dovelane.conf names */
void check_suspended(struct ctl *);     /* next hops to which nothing is sent */
/* check_state.c */
void check_states(struct ctl *); /* of all nodes that are connected */
void check_clock(struct ctl *, struct conn *);
void check_users(struct ctl *, struct conn *);
/* the users of nodes that only replicas have; `doveadm dovelane status` says which do not answer */
void check_replica_nodes(struct ctl *);

/* check_replicas.c */
void check_replica_users(struct ctl *);
void check_replicator(struct ctl *);
char *check_replicator_user(void); /* whom Dovecot here runs it as, malloc'd; NULL: it does not */

/* `dovelane check replicas`: what replication needs of this host's Dovecot, and what the sites must
 * have alike. dovecot_file: a file in place of Dovecot's own; NULL: Dovecot's own. asked: the admin
 * named this check, and did not ask for all of them. */
void check_replicas(struct ctl *, const char *dovecot_file, bool asked);

/* check_host.c: this host's files, disks and services. user: NULL, or whose rights count in the
 * place of those of the services' own. */
void check_host(struct ctl *, const char *user, const char *defaults_file);

void check_postfix(struct ctl *, const char *config_directory /* NULL: postfix_config */);
/* The same: what main.cf sets and diverted mail misses, and what is not known. */
void check_parameters(struct ctl *, const char *directory);
void check_dovecot(struct ctl *);

/* check_proxy.c: NULL when no smtpd uses our proxy. Otherwise the smtpd behind it, whose settings a
 * diverted mail would miss, or any where that is not known. milter: this host's way in is the
 * milter, so that it need not have what a proxy needs. */
const struct postconf_service *check_proxy(struct ctl *, const struct postconf *, bool milter);

/* check_dovecot.c: NULL when somebody listens there, else why not. port NULL: host is the path
 * of a socket. */
const char *check_listens(const char *host, const char *port);
/* The same for a host and port that speaks first; *out gets its first line. */
const char *check_greeting(const char *host, const char *port, char *out, size_t size);

#endif
