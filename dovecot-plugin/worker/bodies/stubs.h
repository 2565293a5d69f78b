/* stubs - mails of which this site stores the header only (role = on-demand), since another site
 * gave them whole and keeps them so.
 *
 * Nothing that is whole here becomes one later: a mail that clients or deliveries bring, and what
 * another site of that role gave, stays whole. So with this role no mail has fewer places than
 * before: the site that gave it has it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_STUBS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_STUBS_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/stub/format.h"

struct box;
struct istream;
struct orset_facts;
struct session;

/* This program's mails are opened as stubs, too; it never gets what they lack. */
void stubs_init(void);
void stubs_deinit(void);

/* A user is opened: his key is where it was. 0, -1 */
int stubs_open(struct session *);
/* He has, or had, some. */
bool stubs_are_here(const struct session *);

/* That site keeps what it gives whole: its role is not on-demand. */
bool stubs_site_is_whole(const struct session *, uint64_t site);
/* Whether a mail that comes from such a site is to be saved there without its text. in is at its
 * start, before and after. Then the key is on the disk. */
bool stubs_wanted(struct session *, struct mailbox *, const struct orset_facts *,
                  struct istream *in, struct stub *stub_r, struct stub_key *key_r);
/* Of a mail whose text is not here; opens it. 1, 0, -1 */
int stubs_is(struct mail *);
/* The same of one that the state has under that UID. */
bool stubs_is_at(struct session *, struct box *, uint32_t uid);

#endif
