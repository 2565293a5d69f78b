/* delivery_id - the header line by which the Dovecot plugin knows a mail that it was given before:
 *
 *     Dovelane-Id: <entry>
 *      <code> <code>
 *      <code>
 *
 * entry: the lane entry's id, 32 hex digits. There is a code for each recipient of the transaction.
 * It is the first 16 bytes, in hex, of HMAC-SHA256(group key, "dovelane-id 2:" entry ":" hash ":"
 * address), the address in lower case. hash: SHA-256, in hex, of the message below the line, with
 * LF for CRLF and a line end after its last line. So the line says nothing of another mail, and
 * nothing to another recipient. What a key file holds: dovecot-plugin/protocol/delivery_id.h. */
#ifndef DOVELANE_RELAY_SMTP_DELIVERY_ID_H
#define DOVELANE_RELAY_SMTP_DELIVERY_ID_H

#include <stddef.h>

#include "lib/mail/entryid.h"

struct delivery_key;

/* NULL: *error_r (malloc'd) says what is wrong, and the way out. */
struct delivery_key *delivery_key_read(const char *path, char **error_r);
void delivery_key_free(struct delivery_key *); /* NULL is fine; leaves nothing of it in memory */

#define DELIVERY_GUID 33 /* in hex, with its NUL */

/* The GUIDs that the plugin gives to the mail for these recipients (delivery_id_guid() of
 * dovecot-plugin/protocol/delivery_id.h). A GUID is 12 bytes of SHA-256("dovelane-guid 2:" entry
 * ":" hash ":" address), and 4 of SHA-256("dovelane-guid check:" those 12). */
void delivery_id_guids(const unsigned char id[ENTRYID_LEN], const char *message, size_t len,
                       const char *const *address, size_t n, char (*guid_r)[DELIVERY_GUID]);

/* The line with its CRLF, for these recipients' addresses (at most SMTP_RECIPIENTS_MAX);
 * malloc'd. message: what follows it. */
char *delivery_id_header(const struct delivery_key *, const unsigned char id[ENTRYID_LEN],
                         const char *message, size_t len, const char *const *address, size_t n);

#endif
