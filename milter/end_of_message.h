/* end_of_message - what becomes of a mail whose message is complete. */
#ifndef DOVELANE_MILTER_END_OF_MESSAGE_H
#define DOVELANE_MILTER_END_OF_MESSAGE_H

#include <stdbool.h>

#include "milter/session.h"

/* The message is complete. */
void divert_begin(struct milter_session *);
/* told: Postfix has the answer. */
void divert_answered(struct milter_session *, bool told);
/* The answer was not given in time: whether it still holds. If not, there is another, or none. */
bool divert_late(struct milter_session *);
/* Postfix is gone before the answer: everything is taken back as far as that goes. */
void divert_gone(struct milter_session *);

#endif
