/* trace_recipients - what became of each recipient of a mail, and where the mail was put, out of
 * its events (trace_story.h). */
#ifndef DOVELANE_CTL_TRACE_RECIPIENTS_H
#define DOVELANE_CTL_TRACE_RECIPIENTS_H

#include <jansson.h>

#include "lib/config/config.h"
#include "ctl/trace_source.h"

/* Adds to the mail's row:
 *
 *   recipients   address, state (delivered, deferred, bounced, handed_over, in_lane), at, attempts,
 *                reply
 *   places       user, mailbox, uid, host, node (its site, where that is known), at, by
 *   unseen       replicas of the configuration that no line of a place is of
 *
 * lanes: of the mail, as they are now. */
void trace_recipients_add(json_t *mail, const json_t *lanes, const struct config *,
                          const struct trace_sources *);

#endif
