/* ourname - what this host calls itself to other mail servers: the names that its Postfix would
 * say, so that a next hop that judges names (reject_non_fqdn_helo_hostname) takes a mail by either
 * way.
 *
 *   1  host_name of dovelane.conf
 *   2  of the Postfix in postfix_config, as the transport's service has them (-o in master.cf, else
 *      main.cf): smtp_helo_name, for lmtp lmtp_lhlo_name; else myhostname
 *   3  without Postfix: the resolver's full name of this host, when it has a dot
 *   4  the kernel's name of it, which many next hops refuse */
#ifndef DOVELANE_LIB_POSTFIX_OURNAME_H
#define DOVELANE_LIB_POSTFIX_OURNAME_H

#include <stdbool.h>

struct ourname;

/* Both are settings, "" when they are empty. Blocks: runs postconf(1) (about 50 ms), or asks the
 * resolver. Never NULL. */
struct ourname *ourname_find(const char *host_name, const char *postfix_config);
void ourname_free(struct ourname *);

/* The name for a destination ("lmtp:[10.0.0.5]:24"); NULL: for ports of our own Postfix. */
const char *ourname_for(const struct ourname *, const char *destination);

/* Where they are from: "host_name", "/etc/postfix/main.cf", "the resolver", "the kernel". */
const char *ourname_source(const struct ourname *);

/* NULL, or what is wrong with them, and what to set. */
const char *ourname_wrong(const struct ourname *);

#endif
