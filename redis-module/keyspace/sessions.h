/* sessions - transaction numbers that make a PUSH safe to repeat. The number must be the next one
 * of its session, and the last 1,024 replies are given again. In module memory only. A session
 * belongs to one life of a server, never to a lane, which may vanish between a push and its
 * repetition. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_SESSIONS_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_SESSIONS_H

#include "redis-module/server/server.h"

#define SESSION_NAME_MAX 64

/* An answer per entry of a PUSH: the sequence, or one of these. */
enum answer {
    ANSWER_DONE = -1,
    ANSWER_REVOKED = -2,
    ANSWER_FULL = -3,
    ANSWER_MEMORY = -4,
    ANSWER_POLICY = -5,
    ANSWER_WRONGTYPE = -6
};

struct session;

enum session_state { SESSION_NEXT, SESSION_AGAIN, SESSION_OLD, SESSION_AHEAD };

/* Where a number stands; makes the session when there is none. *number_r: what is expected
 * (AHEAD), or the oldest remembered (OLD). */
enum session_state session_look(const char *name, size_t len, uint64_t txn,
                                struct session **session_r, uint64_t *number_r);

/* Uses the next number up and remembers its reply. */
void session_remember(struct session *, const int64_t *answer, size_t n, uint64_t acked);

/* Gives the reply of a remembered number (SESSION_AGAIN): calls begin, then answer for each, and
 * returns what was acked. */
uint64_t session_again(const struct session *, uint64_t txn, void (*begin)(void *, size_t n),
                       void (*answer)(void *, int64_t), void *arg);

uint64_t sessions_count(void);
void sessions_trim(int64_t now); /* those over time, and above lane.max-sessions */

#endif
