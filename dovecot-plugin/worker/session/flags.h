/* flags - flags and keywords between Dovecot and the core. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FLAGS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FLAGS_H

#include "dovecot-plugin/compat.h"

struct orset_flags;
struct session;

/* Dovecot's system flags as the core's bits. */
uint8_t flags_system(enum mail_flags);
void flags_of_mail(struct session *, struct mail *, struct orset_flags *);
const char *flags_text(struct session *, const struct orset_flags *); /* for the log */
bool flags_equal(const struct orset_flags *, const struct orset_flags *);
void flags_unite(struct orset_flags *, const struct orset_flags *more);
void flags_without(struct orset_flags *, const struct orset_flags *less);
/* A Maildir's file names carry keywords as letters. dovecot-keywords, which names them, is written
 * later. A crash between leaves letters that Dovecot calls unknown-0, unknown-1, ... True when
 * there were such: nobody set them, and whose place they took is damage. */
bool flags_drop_nameless(struct session *, const struct mailbox *, struct orset_flags *);
/* Of a Maildir that is open: where that file is lost, the letters in use get these names before
 * another keyword gets one of them. */
void flags_name_letters(struct mailbox *);
/* Without the keywords that the mailbox cannot hold: they are not seen there (F29). */
void flags_holdable(struct session *, struct mailbox *, const struct orset_flags *wanted,
                    struct orset_flags *seen);
/* Keywords that the mailbox cannot hold are left out (F29). *keywords is NULL for none, else the
 * caller's. */
void flags_to_dovecot(struct session *, struct mailbox *, const struct orset_flags *,
                      enum mail_flags *, struct mail_keywords **);

#endif
