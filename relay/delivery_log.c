#include "delivery_log.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "owners.h"

const char *delivery_queue_id(const struct entry *e)
{
    const char *id = e->envelope.queue_id;
    return id && *id ? id : "NOQUEUE";
}

static bool was_unknown(const struct recipient *r)
{
    const char *text = r->text ? r->text : "";
    size_t dsn = smtp_dsn_length(text);
    return dsn && text[dsn] && !strncmp(text + dsn + 1, DELIVERY_UNKNOWN, strlen(DELIVERY_UNKNOWN));
}

const char *delivery_why(const struct entry *e, const struct recipient *r)
{
    if (was_unknown(r))
        return "unknown-reply";
    if (e->lane->place)
        return "takeover";
    /* Stored before this Redis was started, so it comes from its disk: it may have been delivered since that was written. */
    if (e->envelope.arrived < owners_born(e->relay))
        return "return";
    /* A lease that failed without leaving a trace in the envelope: a relay ended in the middle of it. */
    return r->attempts || e->failed_leases ? "retry" : "first";
}

/* Two significant digits, not below 10 ms, as Postfix prints delays. */
static const char *seconds(double s, char out[16])
{
    if (s < 0.01)
        snprintf(out, 16, "0");
    else if (s < 0.1)
        snprintf(out, 16, "%.2f", s);
    else if (s < 10.)
        snprintf(out, 16, "%.2g", s);
    else
        snprintf(out, 16, "%.0f", s);
    return out;
}

static const char *status(enum smtp_verdict verdict)
{
    switch (verdict) {
    case SMTP_SENT: return "sent";
    case SMTP_FAILED: return "bounced";
    default: return "deferred";
    }
}

void delivery_log(const struct entry *e, const struct smtp_mail *m, const struct recipient *to,
                  const struct smtp_rcpt *from, const char *relay, const char *why)
{
    char total[16], a[16], b[16], c[16], d[16], hex[ENTRYID_HEX];
    double now = clock_monotonic(), all = (double)(clock_wall() - e->envelope.arrived) / 1e6;
    /* a: until it was taken; b: until a connection had it; c: for setting that up; d: for the transfer. */
    double in_hand = now - e->taken_at, transfer = now - m->begun, before = m->begun - e->taken_at;
    double setup = m->setup < before ? m->setup : before;
    entryid_hex(e->id, hex);
    log_info(
        "%s: to=<%.256s>, relay=%s, delay=%s, delays=%s/%s/%s/%s, dsn=%s, status=%s (%.512s), why=%s, lane=%.300s, id=%s",
        delivery_queue_id(e), to->address, relay, seconds(all, total), seconds(all - in_hand, a),
        seconds(before - setup, b), seconds(setup, c), seconds(transfer, d), from->dsn, status(from->verdict),
        from->text, why, e->lane->name, hex);
}

void delivery_log_away(const struct entry *e, const struct recipient *to, const char *reason)
{
    char total[16], hex[ENTRYID_HEX];
    entryid_hex(e->id, hex);
    log_info("%s: to=<%.256s>, relay=none, delay=%s, dsn=4.4.1, status=deferred (%.512s), why=%s, lane=%.300s, id=%s",
             delivery_queue_id(e), to->address,
             seconds((double)(clock_wall() - e->envelope.arrived) / 1e6, total), reason, delivery_why(e, to),
             e->lane->name, hex);
}

void delivery_log_removed(const struct entry *e)
{
    log_info("%s: removed", delivery_queue_id(e));
}
