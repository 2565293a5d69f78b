/* exchange - one replica takes over what another's state has and its own has not, without the ops
 * in between. This is for a new replica, a lost state or lane, or a long absence. It is also for an
 * origin that died before its ops came to everybody (F18, F19, F34).
 *
 *     asker                                            giver
 *     orset_ask_hello ───────────────────────────────▶ orset_answer: vector, what is remembered, a digest per folder
 *     orset_take      ◀───────────────────────────────
 *                     ──▶ for each folder that differs: digests of ranges of messages (by a hash of the dot), then of
 *                         finer ranges, then the messages; subscriptions and attributes where they differ      ◀──
 *     orset_take says ORSET_KNOWN when all is merged and the vector is raised. Each question is
 *     answered from the state as it is then.
 *
 * Cost follows the differences. One direction: both sides ask, in any order or at once; merging is
 * idempotent. Messages on the wire are at most ORSET_EXCHANGE_MAX bytes, whatever the size of the
 * states. Larger may be the hello (about 30 bytes a folder, and what is remembered), and a range or
 * a list that cannot be divided.
 *
 * WHEN "COVERED AND ABSENT" MEANS REMOVED. The asker drops a dot that the giver's vector covers and
 * the giver does not have. That is sound only because (tests/unit/orset/unit_exchange.c breaks
 * each)
 *  (a) an answer's vector and its elements come from one read transaction of the giver
 *      (orset_answer reads nothing else; its caller opens one transaction around it), and each
 *      answer is merged with its own vector;
 *  (b) a vector means "in the state", unplaced messages included (F14): apply never skips an op,
 *      and what no mailbox can hold stays in the state;
 *  (c) no number is ever given twice (F11, F12, F20): state, ops and counter are one commit, a
 *      restored state gets a new epoch, and two contents under one number are found by the running
 *      hash and refused (ORSET_E_FORKED);
 *  (d) both sides hold the same namespaces (F15): one struct orset is one user and namespace, and
 *      the caller stamps the exchange with both; a site that leaves a namespace out does not
 *      exchange it;
 *  (e) the asker raises its vector in the transaction in which the last differing folder was
 *      merged, and only to the vector of the *first* answer, the hello: everything merged later is
 *      at least as new, which is checked.
 *  (f) what came to the asker since its folder was compared, by an op or another exchange, and is
 *      covered by that vector, is compared too before the vector is raised: the giver may have
 *      removed it (unit_meanwhile.c).
 * What is merged above that vector (the giver went on meanwhile) is in the asker's state before its
 * op comes. Ops then find their dots there already. A remove of such a dot is remembered, because
 * its add still comes. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_EXCHANGE_EXCHANGE_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_EXCHANGE_EXCHANGE_H

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"

/* bytes of one message; one attribute always fits */
#define ORSET_EXCHANGE_MAX (1024 * 1024 + ORSET_ATTRIBUTE_MAX)

/* An exchange in the making, kept by the asker; it does not survive a restart and need not. */
struct orset_exchange;

/* Begins an exchange with site. The question goes to it. */
int orset_ask_hello(struct orset *, uint64_t site, struct orset_exchange **x_r,
                    struct orset_buf *question);
void orset_exchange_free(struct orset *, struct orset_exchange *);

/* The giver's side: answers a question of site from its state as it is now. Stateless: questions
 * may be lost, repeated or reordered. Changes nothing but the table of origins, so it too stands
 * between begin and commit. ORSET_E_ROLLED_BACK: the asker knows more of this replica than it
 * does itself. ORSET_E_ABSENT: this state was restored since the hello; the asker begins anew. */
int orset_answer(struct orset *, uint64_t site, const uint8_t *question, size_t len,
                 struct orset_buf *answer);

/* Merges an answer, between begin and commit. ORSET_OK: question holds the next one.
 * ORSET_KNOWN: done, the vector is raised. ORSET_E_ABSENT: the giver's state is older than at
 * the hello. An error (any but ORSET_E_MEMORY and _STORAGE leave the transaction usable) ends
 * the exchange: free it, begin anew. */
int orset_take(struct orset *, struct orset_exchange *, const uint8_t *answer, size_t len,
               struct orset_buf *question);

/* It answers a question of an exchange before this one, with the same site: this one waits on. */
bool orset_is_stale(const struct orset_exchange *, const uint8_t *answer, size_t len);

#endif
