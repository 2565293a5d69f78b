/* mailline - formats the line. */
#include "lib/ingress/mailline.h"

#include "lib/base/clock.h"
#include "lib/base/logline.h"

#define TEXT_MOST 256 /* bytes of what a client chooses */
#define ADDRESS_MOST 64

static void add_client(struct logline *l, const struct mailline *m)
{
    LOGLINE(l, ", client=");
    logline_add(l, m->client_name ? m->client_name : "unknown", TEXT_MOST);
    LOGLINE(l, "[");
    logline_add(l, m->client_addr, ADDRESS_MOST);
    LOGLINE(l, "]");
}

static void add_milliseconds(struct logline *l, double began)
{
    uint64_t tenths = began != 0 ? (uint64_t)((clock_monotonic() - began) * 1e4 + 0.5) : 0;
    LOGLINE(l, ", store=");
    logline_number(l, tenths / 10);
    LOGLINE(l, ".");
    logline_number(l, tenths % 10);
    LOGLINE(l, "ms");
}

void mailline_say(const struct mailline *m, const char *action)
{
    struct logline l;
    l.len = 0;
    logline_add(&l, m->id, TEXT_MOST);
    LOGLINE(&l, ": from=<");
    logline_add(&l, m->sender, TEXT_MOST);
    LOGLINE(&l, ">, size=");
    logline_number(&l, m->size);
    LOGLINE(&l, ", nrcpt=");
    logline_number(&l, m->nrecipients);
    LOGLINE(&l, ", message-id=");
    logline_add(&l, m->message_id ? m->message_id : "<>", TEXT_MOST);
    add_client(&l, m);
    LOGLINE(&l, ", action=");
    logline_add(&l, action, LOG_TEXT_MAX);
    LOGLINE(&l, ", entries=");
    logline_number(&l, m->stored->nentries);
    LOGLINE(&l, ", nodes=");
    logline_add(&l, m->stored->owners[0] ? m->stored->owners : "none", sizeof m->stored->owners);
    add_milliseconds(&l, m->began);
    logline_say(&l);
}
