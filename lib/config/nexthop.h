/* nexthop - what a destination says: transport, then next hop, as Postfix resolved them (smtp(8),
 * "SMTP DESTINATION SYNTAX", "LMTP DESTINATION SYNTAX").
 *
 *   smtp:[10.0.0.5]:2525   relay:[::1]:25   smtp:[mail.example]:submission
 *   lmtp:[mail.example]:24   lmtp:inet:mail.example:24   lmtp:mail.example
 *   lmtp:unix:/run/dovecot/lmtp
 *   smtp:[10.0.0.5], [10.0.0.6]:2525   hosts that are tried in this order (Postfix 3.5)
 *
 * Names are in ASCII, as DNS has them: xn--bcher-kva.example.
 *
 * Only next hops with an address. In SMTP the brackets say that no MX is looked up; a mail without
 * them is Postfix's. LMTP looks none up. */
#ifndef DOVELANE_LIB_CONFIG_NEXTHOP_H
#define DOVELANE_LIB_CONFIG_NEXTHOP_H

#include <stdbool.h>
#include <stddef.h>

struct nexthop {
    bool lmtp;
    char *host; /* name or address without brackets; the path of a UNIX socket */
    /* NULL: UNIX socket. Default: 25 for smtp and relay, 24 for lmtp (RFC 2033 section 5) */
    char *port;
};

/* Of one list. */
#define NEXTHOP_HOSTS_MAX 32

/* Of a list: the first host. false: nothing we can deliver to, or not all of the list is; nothing
 * is left to free then. */
bool nexthop_parse(const char *destination, struct nexthop *out);

/* The n-th host of a list, from 0, as a destination of its own: "smtp:[10.0.0.6]:2525"; malloc'd.
 * NULL: there are no more. A destination that is no list has one. */
char *nexthop_host(const char *destination, size_t n);

/* The same hosts with one comma between them, as lanes are named: "smtp:[a],[b]"; malloc'd. Any
 * other destination is copied. */
char *nexthop_spell(const char *destination);

/* Whether one of its hosts has no brackets: Postfix may ask DNS for more than its address. */
bool nexthop_by_name(const char *destination);

/* For an address as the config has it ("127.0.0.1:10626", "unix:/path"): SMTP. */
bool nexthop_from_address(const char *address, struct nexthop *out);

void nexthop_free(struct nexthop *);

#endif
