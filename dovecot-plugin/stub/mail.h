/* mail - mails of which only a stub is on the disk: opened, they are the whole mail.
 *
 * Above what other plugins make of the bytes on a disk (zlib, mail_compress), for those who read
 * and for who writes alike. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STUB_MAIL_H
#define DOVELANE_DOVECOT_PLUGIN_STUB_MAIL_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/stub/streams.h"

struct mail;
struct mail_save_context;
struct mailbox;

/* Its format may have stubs: sdbox and mdbox, where a mail's GUID is in its file. A Maildir's GUID is
 * the file's name. Renamed, a stub would be another mail, whose bytes nobody has, and the old one
 * would be removed everywhere. */
bool stub_fits(const struct mailbox *);
/* Hook, of a mail that is allocated. fetch gets the mail as its context, and may be NULL. */
void stub_mail_allocated(struct mail *, stub_fetch_fn *fetch);
/* Of a mail whose stream is open: what its stub says. NULL: all of it is here. */
const struct stub *stub_of_mail(struct mail *);
/* After a storage's save_begin(): what is saved becomes a stub. */
void stub_save(struct mail_save_context *, const struct stub *, const struct stub_key *);

#endif
