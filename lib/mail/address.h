/* address - mail addresses as Postfix writes them. Pure. */
#ifndef DOVELANE_LIB_MAIL_ADDRESS_H
#define DOVELANE_LIB_MAIL_ADDRESS_H

#include <stdbool.h>

/* A dot-atom, '@' and a domain with a dot in it. It has no '%' or '!', no quotes, and no number for
 * a domain. Postfix changes no such address on its way through its queue. utf8: bytes of UTF-8
 * count as letters. */
bool address_plain(const char *address, bool utf8);

/* Whether Postfix writes it anew: source routes, %, !, a missing domain, comments, needless quotes.
 * resolved: what Postfix has made of it, in the form that smtp(8) sends, but for its case. Postfix
 * looks addresses up in lower case, and delivers them as given. (Its lower case of a few letters
 * outside ASCII, such as the German sharp s, is another word: such an address counts as rewritten,
 * too.) NULL: it is not known. */
bool address_rewritten(const char *address, const char *resolved);

/* A local part that is no dot-atom gets its quotes, or loses them: the form on the wire, and the
 * one inside Postfix. malloc'd. */
char *address_quoted(const char *bare);
char *address_unquoted(const char *quoted);

#endif
