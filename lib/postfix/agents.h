/* agents - how this host's Postfix is set to speak to next hops, so that the relay speaks alike. It
 * has the name by which Postfix calls itself, its protocols, its source address and its TLS.
 *
 * The name (a next hop that judges names, reject_non_fqdn_helo_hostname, takes a mail by either
 * way):
 *   1  host_name of dovelane.conf
 *   2  of the Postfix in postfix_config, as the transport's service has them (-o in master.cf, else
 *      main.cf): smtp_helo_name, for lmtp lmtp_lhlo_name; else myhostname
 *   3  without Postfix: the resolver's full name of this host, when it has a dot
 *   4  the kernel's name of it, which many next hops refuse
 * The rest is the service's, too; without Postfix, what Postfix does by default. */
#ifndef DOVELANE_LIB_POSTFIX_AGENTS_H
#define DOVELANE_LIB_POSTFIX_AGENTS_H

#include <stdbool.h>

#include "lib/base/resolve.h"

/* A service of master.cf that is an smtp(8) or lmtp(8). */
struct agent {
    char *transport; /* "smtp" */
    char *name;      /* what it calls itself */
    /* smtp_tls_security_level: TLS_NONE, TLS_MAY, TLS_ENCRYPT (config.h). Of others, for which mail
     * is not diverted, TLS_ENCRYPT, so that none of what waits goes out open */
    int tls;
    /* smtp_fallback_relay as a list of hosts: "smtp:[a],[b]"; NULL: none */
    char *fallback;
    unsigned addresses; /* smtp_mx_address_limit: of one host, 0: all */
    unsigned sessions;  /* smtp_mx_session_limit: the same, of those that said something */
    int trust;          /* smtp_send_xforward_command: TRUST_XFORWARD, else TRUST_NONE */
    bool v4, v6;        /* inet_protocols */
    sa_family_t first;  /* smtp_address_preference: AF_INET, AF_INET6; AF_UNSPEC: as they come */
    /* smtp_bind_address, smtp_bind_address6; without them the one address that inet_interfaces
     * has of that family, unless it is a loopback one. AF_UNSPEC: the kernel chooses. len 0: what
     * main.cf has is no address of that family, and cannot be bound to */
    struct socket_address from4, from6;
    /* smtp_bind_address_enforce, or one of them is no address at all, with which smtp(8) ends:
     * rather no connection than from another one */
    bool from_enforced;
};

struct agents;

/* Both are settings, "" when they are empty. expected: there was a Postfix before. Then, and where
 * there is a master.cf or a postconf(1), a main.cf that is missing counts as unread: somebody moved
 * it away to edit it. Blocks: runs postconf(1) (about 50 ms), or asks the resolver. Never NULL. */
struct agents *agents_find(const char *host_name, const char *postfix_config, bool expected);
void agents_free(struct agents *);

/* The one for a destination ("lmtp:[10.0.0.5]:24"); smtp's for a transport that is not known, and
 * for NULL: ports of our own Postfix. */
const struct agent *agents_for(const struct agents *, const char *destination);

/* Where the names are from: "host_name", "/etc/postfix/main.cf", "the resolver", "the kernel". */
const char *agents_source(const struct agents *);

/* Whether a Postfix said how to speak, and not this host alone. */
bool agents_by_postfix(const struct agents *);

/* NULL, or why postconf(1) could not read the settings, though there are some: as in the middle of
 * an edit. They are as without Postfix then. */
const char *agents_unread(const struct agents *);

/* Makes them unread, for that reason (malloc'd; theirs from now on). */
void agents_doubt(struct agents *, char *why);

/* Takes the TLS of each transport for which it is stricter, and nothing else: what said that may be
 * half-written. False: there is none. */
bool agents_tighten(struct agents *, const struct agents *said);

/* NULL, or what is wrong with the names, and what to set. */
const char *agents_wrong(const struct agents *);

/* The address that connections to one of that family come from; NULL: the kernel chooses. */
const struct socket_address *agent_from(const struct agent *, sa_family_t);

/* Leaves of a host's addresses those that this agent would use, in its order. UNIX sockets stay. */
void agent_sort(const struct agent *, struct addresses *);

#endif
