/* delivery_id - the header line by which the Dovecot plugin knows a mail that it was given before:
 *
 *     Dovelane-Id: <entry> <mac>
 *
 * entry: the entry's id, 32 hex digits; mac: the first 16 bytes, in hex, of HMAC-SHA256(group key, "dovelane-id:" entry). What a key file holds:
 * dovecot-plugin/plugin/delivery_id.h. */
#ifndef DOVELANE_RELAY_DELIVERY_ID_H
#define DOVELANE_RELAY_DELIVERY_ID_H

#include "entryid.h"

struct delivery_key;

/* NULL: *error_r (malloc'd) says what is wrong, and the way out. */
struct delivery_key *delivery_key_read(const char *path, char **error_r);
void delivery_key_free(struct delivery_key *); /* NULL is fine; leaves nothing of it in memory */

/* The line with its CRLF; malloc'd. */
char *delivery_id_header(const struct delivery_key *, const unsigned char id[ENTRYID_LEN]);

#endif
