/* delivery_id - the line by which the gateway's relay names a mail, and the GUID that follows from
 * it (docs/delivery.md, "Dovelane-Id").
 *
 *     Dovelane-Id: <entry>
 *      <code> <code> ...
 *
 * entry: the lane entry's 16-byte id in lower-case hex. There is a code for each recipient of the
 * transaction. It is the first 16 bytes, in lower-case hex, of HMAC-SHA256(group key, "dovelane-id
 * 2:" entry ":" hash ":" address), the address in lower case. hash: SHA-256, in hex, of the message
 * below the line, with LF for CRLF and a line end after its last line.
 *
 * So the line says of one message, and to one recipient, that the relay hands it over. In front of
 * other bytes, or for somebody else, it says nothing. A program that sends it again with the same
 * bytes to the same recipient delivers the same mail.
 *
 * The GUID is made of the entry, the final recipient's address and the hash of the bytes that
 * are being delivered. A second delivery, here or at another replica, makes an equal message;
 * two mails with other bytes never have one GUID. Not of the user, since one mail to two
 * addresses of a user is two mails. It has the same 32 hex digits in all mailbox formats: a
 * Maildir base name would hold the sizes, which differ with each delivery's Received. Its last 4
 * bytes are a check of the first 12, so that such a GUID is known as one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_DELIVERY_ID_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_DELIVERY_ID_H

#include <stdbool.h>
#include <stddef.h>

#define DELIVERY_ID_HEADER "Dovelane-Id"
#define DELIVERY_ID_HEX 32    /* digits of entry, code and GUID */
#define DELIVERY_HASH_HEX 64  /* digits of the hash */
#define DELIVERY_ID_MOST 8192 /* bytes of a line's value that are read */
#define DELIVERY_KEY_MIN 16   /* bytes */
#define DELIVERY_KEY_MAX 1024

/* Beside the state, with the user's mails: GUIDs of deliveries that saved nothing, a line each. The
 * plugin appends to it, and gives it the second name when it has grown to so many bytes. */
#define DELIVERY_DISCARDED "discarded"
#define DELIVERY_DISCARDED_OLD DELIVERY_DISCARDED ".old"
#define DELIVERY_DISCARDED_MOST 131072

struct delivery_key {
    unsigned char bytes[DELIVERY_KEY_MAX];
    size_t size;
};

/* Key from a file's contents. If these, without white space at their end, are an even number of at
 * least 32 hex digits, the key is the bytes they spell. Else it is the contents as they are. False
 * when that is shorter than DELIVERY_KEY_MIN or longer than DELIVERY_KEY_MAX. */
bool delivery_key_parse(struct delivery_key *key_r, const void *data, size_t size);

/* Reads a key file, at most DELIVERY_KEY_MAX * 2 + 2 bytes, of a mode that shuts others out.
 * False and *error_r (on Dovecot's data stack): what is wrong and the way out. */
bool delivery_key_read(struct delivery_key *key_r, const char *path, const char **error_r);

/* The code of an entry, a hash and an address, 0-terminated. */
void delivery_id_code(char code_r[DELIVERY_ID_HEX + 1], const struct delivery_key *key,
                      const char *entry, const char *hash, const char *rcpt);

/* The entry of a line's value, unfolded or not, if one of its codes is the right one for this
 * hash and recipient. */
bool delivery_id_verify(char entry_r[DELIVERY_ID_HEX + 1], const struct delivery_key *key,
                        const char *value, const char *hash, const char *rcpt);

/* The GUID: in hex, 12 bytes of SHA-256("dovelane-guid 2:" entry ":" hash ":" rcpt), and the
 * check. rcpt: the final recipient's address as in RCPT TO, without <>. */
void delivery_id_guid(char guid_r[DELIVERY_ID_HEX + 1], const char *entry, const char *hash,
                      const char *rcpt);

/* Whether these 16 bytes are such a GUID. */
bool delivery_id_is_guid(const unsigned char guid[DELIVERY_ID_HEX / 2]);

/* Whether a header line, given from its first byte on, is one that a delivery adds (RFC 5321
 * section 4.4). These are Return-Path, Delivered-To and Received; and Dovelane-Id. */
bool delivery_id_is_trace(const char *line, size_t size);

#endif
