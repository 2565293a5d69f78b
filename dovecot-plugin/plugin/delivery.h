/* delivery - gives mail that came through the gateway its GUID, in lmtp and lda. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_DELIVERY_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_DELIVERY_H

#include <stdbool.h>

struct istream;
struct mail_save_context;
struct plugin_user;

/* Puts our hook before all others that are known by now, Sieve's too. It is called for each user,
 * since plugins may be loaded for a later user. Does nothing in processes that deliver no mail. */
void delivery_hook(void);
void delivery_unhook(void);

/* Before a mail is saved: during a gateway delivery to this user, sets its GUID and returns true.
 * Then the mailbox must make a file of its own. A Maildir that links the file of the delivery's
 * first recipient takes that one's GUID too. */
bool delivery_set_guid(struct plugin_user *puser, struct mail_save_context *ctx);

/* What is saved in place of input, a mail that is being delivered: without the lines that the
 * gateway's relay writes for us. NULL: input itself. The caller's to unreference. */
struct istream *delivery_strip(const struct plugin_user *puser, const struct mail_save_context *ctx,
                               struct istream *input);

#endif
