/* mime - whether a message says of itself that it is 8-bit. Pure. */
#ifndef DOVELANE_LIB_MAIL_MIME_H
#define DOVELANE_LIB_MAIL_MIME_H

#include <stdbool.h>
#include <stddef.h>

/* True when its header, or the header of one of its parts, has Content-Transfer-Encoding 8bit or
 * binary. Postfix's cleanup(8) counts such a mail as 8-bit whatever its client declared, and
 * smtp(8) says BODY=8BITMIME (RFC 6152). Parts are found by lines that begin with "--", without
 * looking for the boundaries themselves. So text that quotes such a part counts, too. message:
 * header, empty line, body, with CRLF. */
bool mime_says_8bit(const char *message, size_t len);

/* Makes the arguments of MAIL (malloc'd or NULL) say BODY=8BITMIME when the message says that it
 * is 8-bit. */
void mime_note_8bit(char **args, const char *message, size_t len);

#endif
