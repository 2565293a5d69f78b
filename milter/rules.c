/* Disk first: a mail goes to lanes only when nothing that Postfix would do with it is lost by that. */
#include "postfix.h"
#include "session.h"
#include "switch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* RFC 3461 section 4.1: the relay cannot report success or delay, Postfix can. */
static bool wants_notice(const char *args)
{
    char *notify = envelope_arg(args, "NOTIFY");
    if (!notify)
        return false;
    bool wants = false;
    for (char *save, *word = strtok_r(notify, ",", &save); word; word = strtok_r(NULL, ",", &save))
        wants |= !strcasecmp(word, "SUCCESS") || !strcasecmp(word, "DELAY");
    free(notify);
    return wants;
}

const char *rules_queue_reason(const struct mail *m, char *detail, size_t size)
{
    const struct config *c = milter.config;
    detail[0] = '\0';
    if (!switch_on())
        return "divert-off";
    if (postfix_forbids(detail, size))
        return "postfix";
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
    for (size_t i = 0; i < m->nrecipients; i++) {
        const struct mail_recipient *r = &m->recipient[i];
        if (!config_list_has(&c->divert, r->destination)) {
            snprintf(detail, size, "%.200s to=<%.256s>", r->destination, r->r.address);
            return "not-in-divert";
        }
        if (wants_notice(r->r.args)) {
            snprintf(detail, size, "to=<%.256s>", r->r.address);
            return "notify";
        }
    }
    return NULL;
}

static bool changes(enum maps_of of, const char *address, char *detail, size_t size)
{
    if (postfix_knows(of, address))
        return postfix_changes(of, address, 0, detail, size); /* 0: what was forgotten meanwhile is not asked for here, on the loop */
    snprintf(detail, size, "slow");
    return true;
}

const char *rules_maps(const struct mail *m, char *detail, size_t size)
{
    detail[0] = '\0';
    if (changes(MAPS_SENDER, m->envelope.sender, detail, size))
        return "map";
    for (size_t i = 0; i < m->nrecipients; i++)
        if (!m->recipient[i].again && changes(MAPS_RECIPIENT, m->recipient[i].r.address, detail, size))
            return "map";
    return NULL;
}
