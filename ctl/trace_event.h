/* trace_event - what a line of a log says of a mail, as a row (ctl/row.h) with the names of
 * docs/log-fields.md, and:
 *
 *   at, host, program, text     when, who, and the line itself
 *   event                       one of the words below
 *   next_queue_id               under which it goes on, or was a bounce of it
 *   session                     LMTP's, in the reply and in Dovecot's line
 *   user, mailbox, uid, site    where it was put; the site is where it came in
 *
 * The words of event:
 *
 *   accepted, headers, split, refused, delivered, deferred, bounced, handed_over, stays,
 *   out_of_order, deleted, let_go, removed, note
 *   queued      Postfix has it in its queue     stored    in lanes
 *   left        to Postfix's queue              notified  a bounce was written
 *   retained    delivered, and kept until enough sites have it on disk
 *   saved       into a mailbox, by Dovecot      placed    the same, by a replica */
#ifndef DOVELANE_CTL_TRACE_EVENT_H
#define DOVELANE_CTL_TRACE_EVENT_H

#include <jansson.h>

#include "ctl/trace_line.h"

/* The row is the caller's. */
json_t *trace_event_make(const struct trace_line *);

#endif
