/* postfix - the Postfix that the milter or the proxy works for: which of its settings a diverted
 * mail would miss (docs/design.md, "Mail in" 9).
 *
 * Read at start and whenever main.cf, master.cf or a table of theirs changed (looked at every
 * two seconds). Thread safe. */
#ifndef DOVELANE_LIB_POSTFIX_POSTFIX_H
#define DOVELANE_LIB_POSTFIX_POSTFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/config/config.h"
#include "lib/postfix/maps.h"

/* Which service's settings count. Of the milter: of the smtpd that names milter_socket in
 * smtpd_milters. Of the proxy: of the one that listens on proxy_next, whose cleanup(8) would have
 * got the mail. Its milters and its header and body checks see no diverted mail either. */
enum postfix_way { POSTFIX_MILTER, POSTFIX_PROXY };

/* Reads once and logs what was found; then a thread of its own goes on looking. config must
 * outlive the program. */
void postfix_open(const struct config *, enum postfix_way);

/* Reads once, logs nothing and starts no thread: for a command that asks the functions below and
 * ends. */
void postfix_look(const struct config *, enum postfix_way);

/* For -t: NULL, or (malloc'd) which of the ports for bounces and for mail that comes back is one on
 * which mail is diverted. Such a mail would come back again and again. Reads master.cf; without a
 * Postfix here there is nothing to find. */
char *postfix_ports_wrong(const struct config *);

/* What cleanup(8) does to the header of each mail (message_drop_headers, hopcount_limit);
 * Postfix's defaults when its settings are not looked at. */
struct postfix_header {
    char drop[512]; /* "bcc,content-length,": names in small letters, a comma behind each */
    unsigned hops;  /* a mail with so many Received lines is in a loop */
};
void postfix_header(struct postfix_header *);

/* What smtpd(8) is to write into its Received line; all false when its settings are not looked
 * at. */
struct postfix_received {
    bool login;  /* smtpd_sasl_authenticated_header: the client's login */
    bool tls;    /* smtpd_tls_received_header: how TLS was agreed on */
    bool hidden; /* smtpd_hide_client_session: nothing of the session */
};
void postfix_received(struct postfix_received *);

/* recipient_delimiter: any of these letters begins an address' extension; "" when there is none. */
#define POSTFIX_DELIMITER 16
void postfix_delimiter(char out[POSTFIX_DELIMITER]);

/* True when nothing may be diverted; detail names the first parameter that forbids it. */
bool postfix_forbids(char *detail, size_t size);
/* True when nothing may be diverted to that next hop ("lmtp:[10.0.0.5]:24"), though mail to others
 * may. */
bool postfix_forbids_destination(const char *destination, char *detail, size_t size);

/* False when no smtpd(8) asks the milter about any mail. Of the proxy, and when Postfix's settings
 * are not looked at, it is true. */
bool postfix_asks(void);

/* True when Postfix would change that address. Blocks as maps_change does. */
bool postfix_changes(enum maps_of, const char *address, int64_t until, char *detail, size_t size);

/* True when postfix_changes would answer without asking a map: it does not block then. */
bool postfix_knows(enum maps_of, const char *address);

#endif
