/* uid - one UID for one mail on all replicas, without anybody waiting for it (F31).
 *
 * Hard rule (RFC 9051 2.3.1.1): once replicas have each other's ops, no (UIDVALIDITY, UID) names
 * two mails. A foreign mail is placed at its claim if that is at least UIDNEXT, else at UIDNEXT.
 * Where claims clash, one site per folder, its keeper, settles them in rounds:
 *
 *     any site    a UID differs from the agreed one: orset_uid_dirty(); it tells the keeper
 *     keeper      folder dirty and quiet for a moment: orset_uid_ask(), sent to all sites it reaches
 *     each site   orset_uid_answer(): UIDNEXT, and the mails whose UID is not the agreed one
 *     keeper      orset_uid_settle(): base = highest UIDNEXT + gap; base, base + 1, ... go to the union of those
 *                 mails in the order (agreed or claimed UID, dot). That is an op like any other
 *     each site   applies it: RENUMBER rows if its UIDNEXT is not above base, else it is dirty
 *                 again. Mails that wait to be placed get their UIDs first: orset_uid_follow()
 *
 * A round fails at a site only if more than gap mails came there meanwhile; gap doubles while
 * rounds fail. A dirty that comes during a round survives it. Asks and answers may be lost: the
 * keeper starts another round; a round that nobody settles changes nothing. A keeper of a higher
 * term overrides: agreed values are ordered by (term, round, site). */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_UID_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_UID_H

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"

#define ORSET_ROUND_MAX 100000 /* messages settled by one round; more take several */

/* The site that settles this folder: the register's, or the lowest of the given sites while it
 * is unset. */
uint64_t orset_keeper(const struct orset *, uint32_t folder, const uint64_t *sites, size_t n);
/* Makes site the folder's keeper, with a higher term. */
int orset_local_keeper(struct orset *, uint32_t folder, uint64_t site);

/* A UID of the mailbox is not the agreed one and no RENUMBER row will end that; for the keeper
 * also: a peer said so. A keeper starts a round then. Another site tells the keeper, again and
 * again until it is settled. Such a message may be lost, or go to one that is not the keeper any
 * more. */
bool orset_uid_dirty(struct orset *, uint32_t folder, bool keeper);
/* How many UIDs of this mailbox are not the agreed ones. */
int orset_uid_mismatches(struct orset *, uint32_t folder);
/* A peer told the keeper (transaction needed). */
int orset_uid_mark_dirty(struct orset *, uint32_t folder);

/* The keeper's question, as bytes for all sites; the folder is not dirty after it until something
 * new comes.
 */
int orset_uid_ask(struct orset *, uint32_t folder, struct orset_buf *ask);
/* A site's answer to it. The caller puts the mailbox's UIDNEXT into the state first
 * (orset_local_uid_next).
 */
int orset_uid_answer(struct orset *, const uint8_t *ask, size_t ask_len, struct orset_buf *answer);

struct orset_answer {
    const uint8_t *bytes;
    size_t len;
};
/* The keeper has the answers of the sites it reached (its own is made here). ORSET_OK: an op was
 * made; ORSET_KNOWN: nothing to settle. Answers to another round are ORSET_E_MALFORMED: leave
 * them out. */
int orset_uid_settle(struct orset *, uint32_t folder, const struct orset_answer *, size_t n);
/* The question of a site that wants to know of another one what UIDNEXT it has: that of no round,
 * answered as one. */
int orset_uid_next_ask(struct orset *, uint32_t folder, struct orset_buf *ask);
/* 1: an answer to that; 0: to another one, or of a folder that is not known here. */
int orset_uid_next_read(struct orset *, const uint8_t *answer, size_t len, uint32_t *folder_r,
                        uint32_t *uid_next_r);
/* That site gave all UIDs below (orset_folder_get: uid_given), within the bounds of a claim. */
int orset_uid_next_given(struct orset *, uint32_t folder, uint64_t site, uint32_t uid_next);
/* Where mails lacked when a round came, its UIDs were not followed: UIDNEXT would have passed those
 * of the mails that lack. Now nothing is waited for any more: RENUMBER rows for those that the
 * mailbox can still give (transaction needed). ORSET_KNOWN: there are none. */
int orset_uid_follow(struct orset *, uint32_t folder);
/* No round is followed until this ends: what the mailboxes have is not known yet. In memory
 * only. */
void orset_uid_hold(struct orset *, bool);
/* An answer's UIDNEXT was more than ORSET_UID_STEP above the one here, and the settle that was
 * last followed it by that much only. Further rounds follow it on: not one at once after the
 * other, or a peer could use up the UIDs. */
bool orset_uid_stepped(const struct orset *, uint32_t folder);

#endif
