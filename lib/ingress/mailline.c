/* mailline - formats the line. */
#include "lib/ingress/mailline.h"

#include "lib/base/clock.h"
#include "lib/base/logline.h"

#define TEXT_MOST 256 /* bytes of what a client chooses */
#define ADDRESS_MOST 64
#define REPLY_MOST 300

static void add_client(struct logline *l, const struct mailline *m)
{
    LOGLINE(l, ", client=");
    logline_field(l, LOG_FIELD_client_name, m->client_name ? m->client_name : "unknown", TEXT_MOST);
    LOGLINE(l, "[");
    logline_field(l, LOG_FIELD_client_address, m->client_addr, ADDRESS_MOST);
    LOGLINE(l, "]");
}

static void add_milliseconds(struct logline *l, double began)
{
    uint64_t tenths = began != 0 ? (uint64_t)((clock_monotonic() - began) * 1e4 + 0.5) : 0;
    LOGLINE(l, ", store=");
    size_t from = l->len;
    logline_number(l, tenths / 10);
    LOGLINE(l, ".");
    logline_number(l, tenths % 10);
    logline_mark(l, LOG_FIELD_store_ms, from);
    LOGLINE(l, "ms");
}

static void add_from(struct logline *l, const char *sender)
{
    LOGLINE(l, ": from=<");
    logline_field(l, LOG_FIELD_from, sender, TEXT_MOST);
    LOGLINE(l, ">");
}

static void add_action(struct logline *l, const struct mailline *m, const char *action,
                       const char *reason)
{
    LOGLINE(l, ", action=");
    logline_field(l, LOG_FIELD_action, action, TEXT_MOST);
    if (*reason) {
        LOGLINE(l, " reason=");
        logline_field(l, LOG_FIELD_reason, reason, LOG_TEXT_MAX);
    }
    if (m->next) {
        LOGLINE(l, ", next=");
        logline_field(l, LOG_FIELD_next, m->next, REPLY_MOST);
    }
}

void mailline_say(const struct mailline *m, const char *action, const char *reason)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_mail, m->id);
    add_from(&l, m->sender);
    LOGLINE(&l, ", size=");
    logline_field_number(&l, LOG_FIELD_size, m->size);
    LOGLINE(&l, ", nrcpt=");
    logline_field_number(&l, LOG_FIELD_nrcpt, m->nrecipients);
    LOGLINE(&l, ", message-id=");
    logline_field(&l, LOG_FIELD_message_id, m->message_id ? m->message_id : "<>", TEXT_MOST);
    add_client(&l, m);
    add_action(&l, m, action, reason);
    if (m->held) {
        LOGLINE(&l, ", hold=");
        logline_field(&l, LOG_FIELD_hold, "rule", TEXT_MOST);
    }
    LOGLINE(&l, ", entries=");
    logline_field_number(&l, LOG_FIELD_entries, m->stored->nentries);
    LOGLINE(&l, ", nodes=");
    logline_field(&l, LOG_FIELD_nodes, m->stored->owners[0] ? m->stored->owners : "none",
                  sizeof m->stored->owners);
    add_milliseconds(&l, m->began);
    logline_say(&l);
}

void mailline_say_left(const struct mailline *m, const char *action, const char *reason)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_mail, m->id);
    add_from(&l, m->sender);
    LOGLINE(&l, ", nrcpt=");
    logline_field_number(&l, LOG_FIELD_nrcpt, m->nrecipients);
    if (m->client_name || m->client_addr)
        add_client(&l, m);
    add_action(&l, m, action, reason);
    logline_say(&l);
}
