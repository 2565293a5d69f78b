/* stub_session - stands in for milter/session.c: writes down what an engine says, and answers by
 * the queue id.
 *
 *   A   accept, with changes    D   discard    T   451    R   550    M   discard after progress    G   no answer */
#ifndef DOVELANE_TESTS_UNIT_MILTER_STUB_SESSION_H
#define DOVELANE_TESTS_UNIT_MILTER_STUB_SESSION_H

#include <stdbool.h>

#include "lib/base/mem.h"

/* Forgets what was heard. */
void stub_begin(void);
/* Waits until no session is left; what was heard since stub_begin. The caller's. */
struct buf stub_heard(void);
/* Whether a message gets no answer. Waits until the last message that was said has come to a
 * session. */
bool stub_unanswered(void);

#endif
