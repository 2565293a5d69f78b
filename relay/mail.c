#include "mail.h"

#include <stdlib.h>
#include <string.h>

#include "bounce.h"
#include "clock.h"
#include "delivery_log.h"
#include "destination.h"
#include "log.h"
#include "mem.h"
#include "metrics.h"
#include "owners.h"
#include "retry.h"
#include "smtp_compose.h"

static void go_on(struct entry *);

static struct retry_policy policy(const struct relay *r)
{
    return (struct retry_policy){r->config->retry_first * 1000, r->config->retry_most * 1000};
}

/* ---- results ---- */

static void set_state(struct entry *e, struct recipient *to, const struct smtp_rcpt *from)
{
    to->attempts++;
    to->last_attempt = clock_wall();
    to->code = (uint32_t)from->code;
    free(to->text);
    switch (from->verdict) {
    case SMTP_SENT:
        to->state = RECIPIENT_SENT;
        to->text = mem_strdup(from->text);
        metric_add(relay_sent, 1);
        break;
    case SMTP_FAILED:
        to->state = RECIPIENT_FAILED;
        to->text = mem_printf("%s %s", from->dsn, from->text);
        metric_add(relay_failed, 1);
        break;
    case SMTP_UNKNOWN:
        /* The word stands in the envelope, so that whoever tries next, here or after a takeover, can say why.
         */
        to->text = mem_printf("%s " DELIVERY_UNKNOWN "%s", from->dsn, from->text);
        metric_add(relay_unknown, 1);
        break;
    default: to->text = mem_printf("%s %s", from->dsn, from->text); metric_add(relay_deferred, 1);
    }
    e->dirty = e->attempted = true;
}

/* Also after a part of the recipients was untried: the next hop went away, or we stop. */
static void on_delivered(struct smtp_mail *m, const char *relay)
{
    struct entry *e = m->owner;
    for (size_t i = 0; i < m->nrcpt; i++) {
        const struct smtp_rcpt *from = &m->rcpt[i];
        struct recipient *to = &e->envelope.recipient[from->index];
        if (from->verdict == SMTP_UNTRIED) {
            if (e->at->down)
                delivery_log_away(e, to, e->at->trouble);
            e->leave = true;
            continue;
        }
        const char *why = delivery_why(e, to);
        set_state(e, to, from);
        delivery_log(e, m, to, from, relay, why);
    }
    go_on(e);
}

static void on_bounced(struct smtp_mail *m, const char *relay)
{
    bounce_results(m->owner, relay);
    go_on(m->owner);
}

/* ---- the next thing to do ---- */

static bool deliver_batch(struct entry *e)
{
    struct smtp_rcpt *rcpt = NULL;
    size_t n = 0;
    for (size_t i = 0; i < e->envelope.nrecipients && n < SMTP_RECIPIENTS_MAX; i++) {
        if (e->envelope.recipient[i].state != RECIPIENT_WAITING || (e->tried[i] & TRIED_DELIVERY))
            continue;
        if (!rcpt)
            rcpt = mem_alloc((e->envelope.nrecipients < SMTP_RECIPIENTS_MAX ? e->envelope.nrecipients
                                                                            : SMTP_RECIPIENTS_MAX) *
                             sizeof *rcpt);
        rcpt[n++] = (struct smtp_rcpt){.index = i};
        e->tried[i] |= TRIED_DELIVERY;
    }
    if (!n)
        return false;
    e->state = ENTRY_DELIVERING;
    entry_set_mail(e, rcpt, n, on_delivered);
    e->at = e->lane->destination;
    destination_submit(e->at, &e->mail);
    return true;
}

static bool anyone_open(const struct entry *e)
{
    for (size_t i = 0; i < e->envelope.nrecipients; i++)
        if (e->envelope.recipient[i].state == RECIPIENT_WAITING ||
            e->envelope.recipient[i].state == RECIPIENT_FAILED)
            return true;
    return false;
}

static void give_back(struct entry *e)
{
    struct retry_policy p = policy(e->relay);
    int64_t left = e->attempted ? retry_left(&p, e->id, &e->envelope, clock_wall()) : 0;
    owners_return(e, e->attempted, (left + 999) / 1000);
}

/* Nothing of the entry may be touched after a call that begins something: that may have ended it. */
static void go_on(struct entry *e)
{
    if (!e->leave && deliver_batch(e))
        return;
    if (!e->leave && bounce_wanted(e)) {
        if (e->dirty) {
            owners_record(e);
            return;
        }
        if (bounce_submit(e, on_bounced))
            return;
    }
    if (!anyone_open(e))
        owners_ack(e);
    else if (e->dirty)
        owners_record(e);
    else
        give_back(e);
}

/* ---- interface ---- */

void mail_begin(struct entry *e, const char *meta, size_t len)
{
    struct relay *r = e->relay;
    const char *wrong = envelope_decode(meta, len, &e->envelope);
    /* No milter stores such a mail: somebody wrote into Redis. */
    if (!wrong)
        wrong = envelope_unfit(&e->envelope);
    if (wrong) {
        /* Never dropped: an admin can read it with LANE.GET, and a newer relay may understand it. */
        char hex[ENTRYID_HEX];
        entryid_hex(e->id, hex);
        log_error("lane=%s, id=%s: the envelope cannot be read (%s); left in its lane", e->lane->name, hex,
                  wrong);
        metric_add(relay_unreadable, 1);
        owners_return(e, false, r->config->retry_most);
        return;
    }
    /* After a takeover, or when a NACK was lost, it comes before its time. */
    struct retry_policy p = policy(r);
    int64_t left = retry_left(&p, e->id, &e->envelope, clock_wall());
    if (left) {
        owners_return(e, false, (left + 999) / 1000);
        return;
    }
    e->tried = mem_zero(e->envelope.nrecipients);
    go_on(e);
}

void mail_recorded(struct entry *e, bool held)
{
    /* Not held: revoked, or acked by another relay. */
    if (held)
        go_on(e);
    else
        hand_release(e);
}

void mail_leave(struct entry *e)
{
    e->leave = true;
    if ((e->state == ENTRY_DELIVERING || e->state == ENTRY_BOUNCING) && destination_withdraw(e->at, &e->mail))
        go_on(e);
}
