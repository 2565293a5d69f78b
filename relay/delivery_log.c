#include "delivery_log.h"

#include <string.h>

#include "clock.h"
#include "log.h"
#include "owners.h"
#include "whole.h"

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
    if (e->lane->place || e->stored_at <= e->lane->moved_at)
        return "takeover";
    /* It comes from the disk of the own Redis, or was there when a return ended, which brought it maybe: it may have been delivered before. A server tells ages in whole
     * milliseconds, as of the begin of its turn; nobody stores new mail within a beat of a return's end. */
    double stored_at = e->stored_at - (double)e->relay->config->beat / 1000.;
    if (stored_at <= owners_loaded(e->relay) || whole_brought(e->relay, &e->lane->parsed, stored_at))
        return "return";
    /* A lease that failed without leaving a trace in the envelope: a relay ended in the middle of it. */
    return r->attempts || e->failed_leases ? "retry" : "first";
}

/* ---- a line ---- */

struct line {
    char text[LOG_TEXT_MAX + 1];
    size_t len;
};

static void add_bytes(struct line *l, const char *s, size_t n)
{
    size_t room = LOG_TEXT_MAX - l->len;
    if (n > room)
        n = room;
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

static void add(struct line *l, const char *s, size_t most)
{
    size_t n = s ? strlen(s) : 0;
    add_bytes(l, s ? s : "", n < most ? n : most);
}

#define ADD(line, literal) add_bytes(line, literal, sizeof literal - 1)

char *delivery_seconds(double s, char out[16])
{
    char *p = out + 15;
    *p = '\0';
    if (!(s >= 0.01))
        return memcpy(--p, "0", 1);
    unsigned long n = (unsigned long)(s < 1. ? s * 100. + 0.5 : s < 10. ? s * 10. + 0.5 : s < 1e9 ? s + 0.5 : 1e9);
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

static void add_seconds(struct line *l, double s)
{
    char out[16];
    add(l, delivery_seconds(s, out), sizeof out);
}

static void add_place(struct line *l, const struct entry *e)
{
    char hex[ENTRYID_HEX];
    entryid_hex(e->id, hex);
    ADD(l, ", lane=");
    add(l, e->lane->name, 300);
    ADD(l, ", id=");
    add(l, hex, sizeof hex);
}

/* Who, and by which relay, after how long in all. */
static void begin(struct line *l, const struct entry *e, const struct recipient *to, const char *relay)
{
    l->len = 0;
    add(l, delivery_queue_id(e), 100);
    ADD(l, ": to=<");
    add(l, to->address, 256);
    ADD(l, ">, relay=");
    add(l, relay, 300);
    ADD(l, ", delay=");
    add_seconds(l, (double)(clock_wall() - e->envelope.arrived) / 1e6);
}

static void say(struct line *l)
{
    l->text[l->len] = '\0';
    log_text(LOG_LEVEL_INFO, l->text);
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

void delivery_log(const struct entry *e, const struct smtp_mail *m, const struct recipient *to,
                  const struct smtp_rcpt *from, const char *relay, const char *why)
{
    struct line l;
    double now = clock_monotonic(), all = (double)(clock_wall() - e->envelope.arrived) / 1e6;
    /* a: until it was taken; b: until a connection had it; c: for setting that up; d: for the transfer. */
    double in_hand = now - e->taken_at, before = m->begun - e->taken_at;
    double setup = m->setup < before ? m->setup : before;
    begin(&l, e, to, relay);
    ADD(&l, ", delays=");
    add_seconds(&l, all - in_hand);
    ADD(&l, "/");
    add_seconds(&l, before - setup);
    ADD(&l, "/");
    add_seconds(&l, setup);
    ADD(&l, "/");
    add_seconds(&l, now - m->begun);
    ADD(&l, ", dsn=");
    add(&l, from->dsn, SMTP_DSN_MAX);
    ADD(&l, ", status=");
    add(&l, status(from->verdict), 16);
    ADD(&l, " (");
    add(&l, from->text, 512);
    ADD(&l, "), why=");
    add(&l, why, 32);
    add_place(&l, e);
    say(&l);
}

void delivery_log_away(const struct entry *e, const struct recipient *to, const char *dsn, const char *reason)
{
    struct line l;
    begin(&l, e, to, "none");
    ADD(&l, ", dsn=");
    add(&l, dsn, SMTP_DSN_MAX);
    ADD(&l, ", status=deferred (");
    add(&l, reason, 512);
    ADD(&l, "), why=");
    add(&l, delivery_why(e, to), 32);
    add_place(&l, e);
    say(&l);
}

/* Not "status=sent": Postfix logs that, under the new id that its reply names. */
void delivery_log_spilled(const struct entry *e, const struct recipient *to, const char *relay, const char *reply)
{
    static const char *const why[] = {"none", "requeue", "drain", "lane_time", "memory", "poison", "8bitmime"};
    struct line l;
    begin(&l, e, to, relay);
    ADD(&l, ": given to Postfix's queue (");
    add(&l, reply, 512);
    ADD(&l, "), why=");
    add(&l, why[e->spill], 32);
    add_place(&l, e);
    say(&l);
}

void delivery_log_aside(const struct entry *e, const char *why)
{
    struct line l = {.len = 0};
    add(&l, delivery_queue_id(e), 100);
    ADD(&l, ": out of order: ");
    add(&l, why, 200);
    ADD(&l, "; those behind it go first");
    add_place(&l, e);
    say(&l);
}

void delivery_log_removed(const struct entry *e)
{
    struct line l = {.len = 0};
    add(&l, delivery_queue_id(e), 100);
    ADD(&l, ": removed");
    say(&l);
}
