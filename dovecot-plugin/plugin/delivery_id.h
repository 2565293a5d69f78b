/* delivery_id - the id that the gateway's relay gives to a mail, and the GUID that follows from it (DESIGN 10, F40).
 *
 *     Dovelane-Id: <entry> <mac>
 *
 * entry: the lane entry's 16-byte id in lower-case hex; mac: the first 16 bytes, in lower-case hex, of
 * HMAC-SHA256(group key, "dovelane-id:" entry). A header without a valid mac has no authority: a sender who could guess
 * ids would suppress other people's mail.
 *
 * The GUID is made of the entry and the final recipient's address, so that a second delivery, here or at another replica,
 * makes an equal message; not of the user, since one mail to two addresses of a user is two mails. It has the same 32 hex
 * digits in all mailbox formats: a Maildir base name would hold the sizes, which differ with each delivery's Received. */
#ifndef PLUGIN_DELIVERY_ID_H
#define PLUGIN_DELIVERY_ID_H

#include <stdbool.h>
#include <stddef.h>

#define DELIVERY_ID_HEADER "Dovelane-Id"
#define DELIVERY_ID_HEX 32      /* digits of entry, mac and GUID */
#define DELIVERY_KEY_MIN 16     /* bytes */
#define DELIVERY_KEY_MAX 1024

struct delivery_key {
    unsigned char bytes[DELIVERY_KEY_MAX];
    size_t size;
};

/* Key from a file's contents: if these, without white space at their end, are an even number of at least 32 hex digits,
 * the bytes they spell; else the contents as they are. False when that is shorter than DELIVERY_KEY_MIN or longer than
 * DELIVERY_KEY_MAX. */
bool delivery_key_parse(struct delivery_key *key_r, const void *data, size_t size);

/* Reads a key file, at most DELIVERY_KEY_MAX * 2 + 2 bytes, of a mode that shuts others out. False and *error_r (on
 * Dovecot's data stack): what is wrong and the way out. */
bool delivery_key_read(struct delivery_key *key_r, const char *path, const char **error_r);

/* mac of an entry of DELIVERY_ID_HEX digits, 0-terminated. */
void delivery_id_mac(char mac_r[DELIVERY_ID_HEX + 1], const struct delivery_key *key, const char *entry);

/* The entry of a header's value (white space around it is skipped) if its mac is valid: true and entry_r. */
bool delivery_id_verify(char entry_r[DELIVERY_ID_HEX + 1], const struct delivery_key *key, const char *value);

/* The GUID: first 16 bytes of SHA-256("dovelane-guid:" entry ":" rcpt) in hex. rcpt: the final recipient's address as in
 * RCPT TO, without <>. */
void delivery_id_guid(char guid_r[DELIVERY_ID_HEX + 1], const char *entry, const char *rcpt);

#endif
