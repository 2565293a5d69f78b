/* divert_rules - disk first: a mail goes to lanes only when nothing that Postfix would do with it
 * is lost by that. */
#include "lib/ingress/reasons.h"
#include "milter/milter.h"
#include "milter/received.h"
#include "milter/divert_rules.h"
#include "lib/ingress/divert_switch.h"

#include <stdio.h>

const char *rules_queue_reason(const struct mail *m, char *detail, size_t size)
{
    const char *reason = reasons_of_all(divert_switch_on(), detail, size);
    if (reason)
        return reason;
    if (!m->nrecipients)
        return "no-recipient";
    if (!m->envelope.queue_id || !*m->envelope.queue_id)
        return "no-queue-id";
    if (m->too_large) {
        snprintf(detail, size, "max_entry");
        return "too-large";
    }
    if (m->no_memory) {
        snprintf(detail, size, "milter_memory");
        return "busy";
    }
    if (m->long_line)
        return "long-line";
    if (m->rewritten)
        return "rewritten";
    if ((reason = reasons_of_sender(m->envelope.sender_args, detail, size)))
        return reason;
    if (received_is_postfixs(&m->envelope, detail, size))
        return "postfix";
    for (size_t i = 0; i < m->nrecipients; i++) {
        const struct mail_recipient *r = &m->recipient[i];
        reason = reasons_of_recipient(milter.config, r->destination, r->r.address, r->r.args,
                                      detail, size);
        if (reason)
            return reason;
    }
    return NULL;
}

/* What is not known by now could not be found out in time, and is not asked for here, on the
 * loop. */
const char *rules_maps(const struct mail *m, char *detail, size_t size)
{
    const char *reason = reasons_of_maps(MAPS_SENDER, m->envelope.sender, 0, detail, size);
    for (size_t i = 0; i < m->nrecipients && !reason; i++)
        if (!m->recipient[i].again)
            reason = reasons_of_maps(MAPS_RECIPIENT, m->recipient[i].r.address, 0, detail, size);
    return reason;
}
