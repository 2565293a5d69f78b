/* lookup - Postfix's maps, asked by threads of their own: postmap(1) takes milliseconds, and a
 * slow map must not hold up other mails. */
#ifndef DOVELANE_LIB_POSTFIX_LOOKUP_H
#define DOVELANE_LIB_POSTFIX_LOOKUP_H

#include <ev.h>
#include <stddef.h>

#include "lib/postfix/maps.h"

struct lookup;

/* On the loop, when all are known (maps.h keeps the answers) or the time for a mail's maps is
 * over. */
typedef void lookup_fn(void *arg);

void lookup_open(struct ev_loop *);

/* NULL: nothing has to be asked, go on. The addresses are copied. */
struct lookup *lookup_start(const char *sender, const char *const *recipient, size_t n, lookup_fn *,
                            void *arg);

/* Nobody waits for it any more. */
void lookup_forget(struct lookup *);

#endif
