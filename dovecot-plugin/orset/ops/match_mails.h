/* match_mails - mailboxes that were full before this state knew of them (F36). They are of a
 * replica that lost its state, of two stores that were filled apart, or of a folder whose index was
 * rebuilt (F6).
 *
 * After an exchange the state holds the peers' messages, unplaced. The caller then gives each mail
 * of a mailbox once:
 *
 *     GUID of an unplaced message        bound, no new dot
 *     else its SHA-256 of one            bound, no new dot; the mail's GUID becomes an alias of the message's
 *     else                               a new dot, as orset_local_add
 *
 * Mails are matched as multisets: each message takes one mail, so two equal ones stay two. A GUID
 * cannot be changed in Dovecot, so an alias is remembered here. By it a copy of the mail speaks of
 * the message's GUID, and a rebuilt index finds it again. INTERNALDATE may differ between the
 * sites; the message's is what the state says.
 *
 * Where both sites ingested before they met, both have dots. orset_join_end pairs this site's own
 * messages with unplaced foreign ones of equal SHA-256, in the order of their GUIDs. Of a pair the
 * greater GUID gives way at its own site. The mail there is bound to the other message and keeps
 * its flags. So never both, and of equal mails at least one stays whatever the sites knew. Both
 * sites join, one after the other. While they do it at once, of several *equal* mails in one folder
 * fewer may stay than either had.
 *
 * WHAT MAY COME BACK. A mail that no asked peer has alive keeps its place and gets a new dot. Had
 * it been expunged elsewhere, and that had not reached this mailbox before the state was lost, it
 * comes back everywhere. Nothing else does: what had been expunged here is not in the mailbox, what
 * is expunged elsewhere later finds its message. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_MATCH_MAILS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_MATCH_MAILS_H

#include "dovecot-plugin/orset/orset.h"

struct orset_join;

/* Begins with the mailbox of folder (a home), in a transaction; memory: about 100 bytes per
 * unplaced message. What is exchanged or applied after this is not matched. */
int orset_join_begin(struct orset *, uint32_t folder, struct orset_join **j_r);
/* One mail. ORSET_OK: an op was made; ORSET_KNOWN: bound, or bound before. Between begin and
 * commit; several transactions may follow each other. */
int orset_join_add(struct orset *, struct orset_join *, uint32_t uid, const struct orset_facts *,
                   const struct orset_flags *, struct orset_dot *dot_r);
/* All mails were given. *united_r: messages of this site that gave way. *left_r: pairs in which the
 * other site has to give way. Placing their messages now would show those mails twice until it
 * has. */
int orset_join_end(struct orset *, struct orset_join *, unsigned *united_r, unsigned *left_r);
void orset_join_free(struct orset *, struct orset_join *);

#endif
