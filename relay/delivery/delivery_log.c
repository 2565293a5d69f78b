#include "relay/delivery/delivery_log.h"

#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/logline.h"
#include "relay/acks/owners.h"
#include "relay/cluster/whole_sets.h"

static bool was_unknown(const struct recipient *r)
{
    const char *text = r->text ? r->text : "";
    size_t dsn = smtp_dsn_length(text);
    return dsn && text[dsn] && !strncmp(text + dsn + 1, DELIVERY_UNKNOWN, strlen(DELIVERY_UNKNOWN));
}

const char *delivery_why(const struct entry *e, const struct recipient *r)
{
    size_t i = (size_t)(r - e->envelope.recipient);
    if (e->redo && e->redo[i])
        return e->redo[i] == REDO_LOST ? "site-lost" : "site-away";
    if (was_unknown(r))
        return "unknown-reply";
    if (e->lane->place || e->stored_at <= e->lane->moved_at)
        return "takeover";
    /* It comes from the disk of the own Redis, or was there when a return ended, which brought
     * it maybe: it may have been delivered before. A server tells ages in whole milliseconds, as
     * of the begin of its turn; nobody stores new mail within a beat of a return's end. */
    double stored_at = e->stored_at - (double)e->relay->config->beat / 1000.;
    if (stored_at <= owners_loaded(e->relay) ||
        whole_sets_brought(e->relay, &e->lane->parsed, stored_at))
        return "return";
    /* A lease that failed without leaving a trace in the envelope: a relay ended in the middle
     * of it. */
    return r->attempts || e->failed_leases ? "retry" : "first";
}

/* ---- a line ---- */

char *delivery_seconds(double s, char out[16])
{
    char *p = out + 15;
    *p = '\0';
    if (!(s >= 0.01))
        return memcpy(--p, "0", 1);
    unsigned long n = (unsigned long)(s < 1.    ? s * 100. + 0.5
                                      : s < 10. ? s * 10. + 0.5
                                      : s < 1e9 ? s + 0.5
                                                : 1e9);
    size_t digits = s < 1. ? 2 : s < 10. ? 1 : 0;
    while (s >= 0.1 && digits && n % 10 == 0)
        n /= 10, digits--;
    for (size_t i = 0; i < digits; i++, n /= 10)
        *--p = (char)('0' + n % 10);
    if (digits)
        *--p = '.';
    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    return p;
}

static void add_seconds(struct logline *l, enum log_field field, double s)
{
    char out[16];
    logline_field(l, field, delivery_seconds(s, out), sizeof out);
}

static void add_place(struct logline *l, const struct entry *e)
{
    char hex[ENTRYID_HEX];
    entryid_hex(e->id, hex);
    LOGLINE(l, ", lane=");
    logline_field(l, LOG_FIELD_lane, e->lane->name, 300);
    LOGLINE(l, ", id=");
    logline_field(l, LOG_FIELD_entry_id, hex, sizeof hex);
}

/* Who, and by which relay, after how long in all. */
static void begin(struct logline *l, enum log_event event, const struct entry *e,
                  const struct recipient *to, const char *relay)
{
    logline_begin(l, event, entry_queue_id(e));
    LOGLINE(l, ": to=<");
    logline_field(l, LOG_FIELD_to, to->address, 256);
    LOGLINE(l, ">, relay=");
    logline_field(l, LOG_FIELD_relay, relay, 300);
    LOGLINE(l, ", delay=");
    add_seconds(l, LOG_FIELD_delay, (double)(clock_wall() - e->envelope.arrived) / 1e6);
}

void delivery_phases(const struct entry *e, const struct smtp_mail *m,
                     double phase[DELIVERY_PHASES])
{
    double now = clock_monotonic(), all = (double)(clock_wall() - e->envelope.arrived) / 1e6;
    double before = m->begun - e->taken_at, setup = m->setup < before ? m->setup : before;
    phase[DELIVERY_LANE] = all - (now - e->taken_at);
    phase[DELIVERY_WAIT] = before - setup;
    phase[DELIVERY_CONNECT] = setup;
    phase[DELIVERY_TRANSFER] = now - m->begun;
}

/* ---- the lines ---- */

static const char *status(enum smtp_verdict verdict)
{
    switch (verdict) {
    case SMTP_SENT: return "sent";
    case SMTP_FAILED: return "bounced";
    default: return "deferred";
    }
}

void delivery_log(const struct entry *e, const double phase[DELIVERY_PHASES],
                  const struct recipient *to, const struct smtp_rcpt *from, const char *relay,
                  const char *why)
{
    struct logline l;
    begin(&l, LOG_EVENT_delivery, e, to, relay);
    LOGLINE(&l, ", delays=");
    for (int i = 0; i < DELIVERY_PHASES; i++) {
        if (i)
            LOGLINE(&l, "/");
        add_seconds(&l, LOG_FIELD_delay_lane + (unsigned)i, phase[i]);
    }
    LOGLINE(&l, ", dsn=");
    logline_field(&l, LOG_FIELD_dsn, from->dsn, SMTP_DSN_MAX);
    LOGLINE(&l, ", status=");
    logline_field(&l, LOG_FIELD_status, status(from->verdict), 16);
    LOGLINE(&l, " (");
    logline_field(&l, LOG_FIELD_reply, from->text, 512);
    LOGLINE(&l, "), why=");
    logline_field(&l, LOG_FIELD_why, why, 32);
    add_place(&l, e);
    logline_say(&l);
}

void delivery_log_away(const struct entry *e, const struct recipient *to, const char *dsn,
                       const char *reason)
{
    struct logline l;
    begin(&l, LOG_EVENT_delivery, e, to, "none");
    LOGLINE(&l, ", dsn=");
    logline_field(&l, LOG_FIELD_dsn, dsn, SMTP_DSN_MAX);
    LOGLINE(&l, ", status=");
    logline_field(&l, LOG_FIELD_status, "deferred", 16);
    LOGLINE(&l, " (");
    logline_field(&l, LOG_FIELD_reply, reason, 512);
    LOGLINE(&l, "), why=");
    logline_field(&l, LOG_FIELD_why, delivery_why(e, to), 32);
    add_place(&l, e);
    logline_say(&l);
}

/* Not "status=sent": Postfix logs that, under the new id that its reply names. */
void delivery_log_spilled(const struct entry *e, const struct recipient *to, const char *relay,
                          const char *reply)
{
    static const char *const why[] = {"none",   "requeue", "drain",   "lane_time",
                                      "memory", "poison",  "8bitmime"};
    struct logline l;
    begin(&l, LOG_EVENT_handed_over, e, to, relay);
    LOGLINE(&l, ": given to Postfix's queue (");
    logline_field(&l, LOG_FIELD_reply, reply, 512);
    LOGLINE(&l, "), why=");
    logline_field(&l, LOG_FIELD_why, why[e->spill], 32);
    add_place(&l, e);
    logline_say(&l);
}

void delivery_log_aside(const struct entry *e, const char *why)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_out_of_order, entry_queue_id(e));
    LOGLINE(&l, ": out of order: ");
    logline_field(&l, LOG_FIELD_reply, why, 200);
    LOGLINE(&l, "; those behind it go first");
    add_place(&l, e);
    logline_say(&l);
}

void delivery_log_retained(const struct entry *e, const char *site)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_retained, entry_queue_id(e));
    LOGLINE(&l, ": retained until enough sites have it on disk, site=");
    logline_field(&l, LOG_FIELD_at_site, site, 65);
    add_place(&l, e);
    logline_say(&l);
}

void delivery_log_let_go(const struct entry *e, const char *why)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_let_go, entry_queue_id(e));
    LOGLINE(&l, ": let go before enough sites had it on disk, why=");
    logline_field(&l, LOG_FIELD_why, why, 32);
    add_place(&l, e);
    logline_warn(&l);
}

void delivery_log_removed(const struct entry *e)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_removed, entry_queue_id(e));
    LOGLINE(&l, ": removed");
    logline_say(&l);
}

void delivery_log_deleted(const struct entry *e)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_deleted, entry_queue_id(e));
    LOGLINE(&l, ": deleted, as an admin's mark says");
    add_place(&l, e);
    logline_say(&l);
}

void delivery_log_bounced(const struct entry *e, const struct recipient *to, const char *relay,
                          const char *reply)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_bounce, entry_queue_id(e));
    LOGLINE(&l, ": to=<");
    logline_field(&l, LOG_FIELD_to, to->address, 256);
    LOGLINE(&l, ">, relay=");
    logline_field(&l, LOG_FIELD_relay, relay, 300);
    LOGLINE(&l, ": given to the bounce port (");
    logline_field(&l, LOG_FIELD_reply, reply, 512);
    LOGLINE(&l, ")");
    logline_say(&l);
}

void delivery_log_stays(const struct entry *e, const struct recipient *to, const char *relay,
                        const char *port, const char *reply, const char *hint)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_stays, entry_queue_id(e));
    LOGLINE(&l, ": to=<");
    logline_field(&l, LOG_FIELD_to, to->address, 256);
    LOGLINE(&l, ">, relay=");
    logline_field(&l, LOG_FIELD_relay, relay, 300);
    LOGLINE(&l, ": ");
    logline_add(&l, port, 32);
    LOGLINE(&l, " did not take it (");
    logline_field(&l, LOG_FIELD_reply, reply, 512);
    LOGLINE(&l, "); stays in lane=");
    logline_field(&l, LOG_FIELD_lane, e->lane->name, 300);
    logline_add(&l, hint, 400);
    logline_warn(&l);
}
