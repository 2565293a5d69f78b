#include "relay/delivery/mail.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "relay/delivery/bounce.h"
#include "lib/base/clock.h"
#include "relay/smtp/delivery_id.h"
#include "relay/delivery/delivery_log.h"
#include "relay/delivery/delivery_metrics.h"
#include "relay/delivery/connections.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"
#include "relay/tables/poison.h"
#include "relay/delivery/reinject.h"
#include "relay/delivery/retry.h"
#include "relay/tables/lane_pause.h"
#include "relay/shape/gate.h"
#include "relay/tables/retained.h"
#include "relay/smtp/smtp_compose.h"

#define RETAINED_MOST 600000 /* milliseconds until one that is retained is taken again, at most */
/* milliseconds until one that is to be deleted is looked at again: an owner could not be told */
#define DELETE_AGAIN 10000

static void go_on(struct entry *);

/* d: NULL: the lane is not ours any more, and nobody knows its next hop. */
static struct retry_policy policy(const struct relay *r, struct destination *d)
{
    const struct shape *s = d ? shape_for(d) : NULL;
    int64_t first = s && s->retry_first ? s->retry_first : r->config->retry_first,
            most = s && s->retry_most ? s->retry_most : r->config->retry_most;
    return (struct retry_policy){(first < most ? first : most) * 1000, most * 1000};
}

/* ---- results ---- */

static bool is_redo(const struct entry *e, size_t i, unsigned char what)
{
    return e->redo && e->redo[i] == what;
}

/* Delivered, as today; or kept until other sites have it as well. */
static void set_sent(const struct entry *e, struct recipient *to)
{
    uint32_t site = retained_can_ask(to->address) ? destination_site(e->at) : 0;
    to->state = site ? RECIPIENT_RETAINED : RECIPIENT_SENT;
    to->site = site;
}

/* Of one that another site has already: what this one says counts only when it has it, too. */
static bool stays_where_it_is(const struct entry *e, const struct smtp_rcpt *from)
{
    return is_redo(e, from->index, REDO_AWAY) && from->verdict != SMTP_SENT;
}

static void set_state(struct entry *e, struct recipient *to, const struct smtp_rcpt *from)
{
    unsigned char *tried = &e->tried[from->index];
    to->attempts += !(*tried & TRIED_COUNTED);
    *tried |= TRIED_COUNTED;
    to->last_attempt = clock_wall();
    if (from->verdict == SMTP_SENT || from->verdict == SMTP_FAILED || !recipient_was_delivered(to))
        to->code = (uint32_t)from->code;
    free(to->text);
    switch (from->verdict) {
    case SMTP_SENT:
        set_sent(e, to);
        to->text = mem_strdup(from->text);
        e->sent = true;
        metric_add(relay_sent, 1);
        break;
    case SMTP_FAILED:
        to->state = RECIPIENT_FAILED;
        to->text = mem_printf("%s %s", from->dsn, from->text);
        metric_add(relay_failed, 1);
        break;
    case SMTP_UNKNOWN:
        /* The word stands in the envelope, so that whoever tries next, here or after a takeover,
         * can say why.
         */
        to->text = mem_printf("%s " DELIVERY_UNKNOWN "%s", from->dsn, from->text);
        e->sent = true;
        break;
    default: to->text = mem_printf("%s %s", from->dsn, from->text);
    }
    e->dirty = e->attempted = true;
}

/* The next hop lacks 8BITMIME, and Postfix can convert the mail (smtp(8) does): it goes that
 * way. While reinject_port takes nothing it waits. False: not now, or there is no such port, and
 * the mail fails. */
static bool convert(struct entry *e, struct smtp_mail *m)
{
    if (!*e->relay->config->reinject_port)
        return false;
    bool able = reinject_able(e->relay);
    for (size_t i = 0; i < m->nrcpt; i++) {
        m->rcpt[i].verdict = SMTP_DEFERRED;
        m->rcpt[i].dsn[0] = '4';
        if (able)
            e->tried[m->rcpt[i].index] &= (unsigned char)~TRIED_DELIVERY;
    }
    if (able)
        inflight_spill(e, SPILL_8BITMIME);
    return able;
}

/* A fallback relay is no site that could be asked. */
static bool may_be_site(const struct entry *e, struct destination *at)
{
    return !destination_site(e->lane->destination) || destination_site(at);
}

/* As smtp(8), which goes on after a 4xx, and when the connection was lost; not after a 5xx. False:
 * there is no other host to be tried. */
static bool try_next(struct entry *e, const struct smtp_rcpt *from)
{
    struct destination *at;
    if (from->verdict == SMTP_SENT || from->verdict == SMTP_FAILED || e->at->closing || e->leave ||
        e->mail.convert)
        return false;
    for (unsigned n = e->hop[from->index] + 1u; (at = destination_hop(e->lane->destination, n));
         n++)
        if (destination_may_answer(at) && may_be_site(e, at)) {
            e->hop[from->index] = (unsigned char)n;
            e->tried[from->index] &= (unsigned char)~TRIED_DELIVERY;
            return true;
        }
    return false;
}

/* Nobody was asked at the last one that it could be tried at. */
static void not_tried(struct entry *e, const struct smtp_rcpt *from, const struct recipient *to)
{
    if (e->at->down)
        delivery_log_away(e, to, e->at->trouble_dsn, e->at->trouble);
    if (e->tried[from->index] & TRIED_COUNTED)
        metric_add(relay_deferred, 1);
    else
        e->leave = true;
}

static void take_result(struct entry *e, const double phase[DELIVERY_PHASES],
                        const struct smtp_rcpt *from, const char *relay)
{
    struct recipient *to = &e->envelope.recipient[from->index];
    const char *why = delivery_why(e, to);
    if (stays_where_it_is(e, from)) {
        struct smtp_rcpt stays = *from;
        stays.verdict = SMTP_DEFERRED;
        if (!try_next(e, from))
            delivery_log(e, phase, to, &stays, relay, why);
        return;
    }
    set_state(e, to, from);
    if (try_next(e, from)) {
        log_mail(LOG_LEVEL_INFO, entry_queue_id(e), "%s", from->text);
        return;
    }
    if (from->verdict == SMTP_UNKNOWN)
        metric_add(relay_unknown, 1);
    else if (from->verdict == SMTP_DEFERRED)
        metric_add(relay_deferred, 1);
    delivery_count(e, from);
    delivery_log(e, phase, to, from, relay, why);
}

/* Also after a part of the recipients was untried: the next hop went away, or we stop. */
static void on_delivered(struct smtp_mail *m, const char *relay)
{
    struct entry *e = m->owner;
    ASSERT(e->state == ENTRY_DELIVERING && !m->waiting);
    if (m->convert && convert(e, m)) {
        go_on(e);
        return;
    }
    double phase[DELIVERY_PHASES];
    delivery_phases(e, m, phase);
    delivery_measure(e, m, phase);
    for (size_t i = 0; i < m->nrcpt; i++) {
        const struct smtp_rcpt *from = &m->rcpt[i];
        if (from->verdict == SMTP_DEFERRED || from->verdict == SMTP_FAILED)
            gate_heard(e->at, from->dsn, from->text);
        if (from->verdict != SMTP_UNTRIED)
            take_result(e, phase, from, relay);
        else if (!try_next(e, from))
            not_tried(e, from, &e->envelope.recipient[from->index]);
    }
    go_on(e);
}

static void on_spilled(struct smtp_mail *m, const char *relay)
{
    struct entry *e = m->owner;
    ASSERT(e->state == ENTRY_DELIVERING && e->spill);
    reinject_results(e, relay);
    go_on(e);
}

static void on_bounced(struct smtp_mail *m, const char *relay)
{
    struct entry *e = m->owner;
    ASSERT(e->state == ENTRY_BOUNCING && !e->spill);
    bounce_results(e, relay);
    go_on(e);
}

/* ---- the next thing to do ---- */

/* What the next hop refused goes to Postfix, too: it tries once more, and bounces. */
static bool due(const struct entry *e, size_t i)
{
    enum recipient_state s = e->envelope.recipient[i].state;
    if (s == RECIPIENT_RETAINED)
        return is_redo(e, i, REDO_AWAY) && !e->spill && !(e->tried[i] & TRIED_DELIVERY);
    return (s == RECIPIENT_WAITING || (e->spill && s == RECIPIENT_FAILED)) &&
           !(e->tried[i] & TRIED_DELIVERY);
}

/* Also on the way through Postfix's queue: it may have been delivered before that. */
static void add_delivery_id(struct entry *e)
{
    const struct smtp_policy *there = destination_policy(e->lane->destination);
    if (!there->key)
        return;
    const char *address[SMTP_RECIPIENTS_MAX];
    for (size_t i = 0; i < e->mail.nrcpt; i++)
        address[i] = e->envelope.recipient[e->mail.rcpt[i].index].address;
    free(e->head);
    e->head = delivery_id_header(there->key, e->id, e->mail.body, e->mail.body_len, address,
                                 e->mail.nrcpt);
    e->mail.head = e->head;
    e->mail.head_len = strlen(e->head);
}

/* ---- what is not to be delivered any more ---- */

/* All who wait fail, without being asked about; but not who had the mail already. False: nobody
 * waited. */
static bool give_up(struct entry *e, const char *dsn, char *why)
{
    double phase[DELIVERY_PHASES] = {clock_boottime() - e->stored_at};
    bool any = false;
    for (size_t i = 0; i < e->envelope.nrecipients; i++) {
        struct recipient *to = &e->envelope.recipient[i];
        struct smtp_rcpt said = {.index = i, .verdict = SMTP_FAILED, .text = why};
        if (to->state != RECIPIENT_WAITING || recipient_was_delivered(to))
            continue;
        snprintf(said.dsn, sizeof said.dsn, "%s", dsn);
        const char *how = delivery_why(e, to);
        to->state = RECIPIENT_FAILED;
        free(to->text);
        to->text = mem_printf("%s %s", dsn, why);
        any = e->dirty = true;
        metric_add(relay_failed, 1);
        delivery_count(e, &said);
        delivery_log(e, phase, to, &said, "none", how);
    }
    free(why);
    return any;
}

static const char *last_error(const struct entry *e)
{
    for (size_t i = 0; i < e->envelope.nrecipients; i++)
        if (e->envelope.recipient[i].state == RECIPIENT_WAITING && e->envelope.recipient[i].text)
            return e->envelope.recipient[i].text;
    return "it was never tried";
}

/* By the rules of its next hop (docs/shape.md): too large, or waiting for too long. True: it was
 * given up now. What was given up before has the schedule of its bounce. */
static bool is_over(struct entry *e)
{
    const struct shape *s = shape_for(e->lane->destination);
    if (e->spill || (e->envelope.marks & ENVELOPE_ADMIN) || e->bodyless)
        return false;
    if (s->size_most && (int64_t)e->holder->len > s->size_most)
        return give_up(e, "5.3.4",
                       mem_printf("message size %zu exceeds size limit %lld of next hop %s",
                                  (size_t)e->holder->len, (long long)s->size_most,
                                  destination_named(e->lane->destination)));
    return e->expired &&
           give_up(e, "5.4.7",
                   mem_printf("delivery time expired; the last error was: %s", last_error(e)));
}

static bool anyone_due(const struct entry *e)
{
    for (size_t i = 0; i < e->envelope.nrecipients; i++)
        if (due(e, i))
            return true;
    return false;
}

/* The first one that a recipient is to be tried at. */
static unsigned next_hop(const struct entry *e)
{
    unsigned hop = UINT_MAX;
    for (size_t i = 0; i < e->envelope.nrecipients; i++)
        if (due(e, i) && e->hop[i] < hop)
            hop = e->hop[i];
    return hop;
}

/* Not behind the one mail that shows whether a host is back, which may take long. */
static unsigned past_proving(const struct entry *e, unsigned hop)
{
    struct destination *all = e->lane->destination, *at = destination_hop(all, hop);
    if (!at || !destination_is_proving(at))
        return hop;
    for (unsigned n = hop + 1; (at = destination_hop(all, n)); n++)
        if (destination_may_answer(at) && !at->further && !destination_is_proving(at) &&
            may_be_site(e, at))
            return n;
    return hop;
}

static bool deliver_batch(struct entry *e)
{
    unsigned hop = next_hop(e), from = hop;
    if (hop == UINT_MAX)
        return false;
    if (!e->spill)
        hop = past_proving(e, from);
    struct destination *at = e->spill == SPILL_POISON ? destination_hold(e->relay)
                             : e->spill               ? destination_reinject(e->relay)
                                                      : destination_hop(e->lane->destination, hop);
    struct smtp_rcpt *rcpt = NULL;
    if (!at) { /* the config was read again, without the port or the host */
        e->leave = true;
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i < e->envelope.nrecipients && n < SMTP_RECIPIENTS_MAX; i++) {
        if (!due(e, i) || (!e->spill && e->hop[i] != from))
            continue;
        if (!e->spill)
            e->hop[i] = (unsigned char)hop;
        if (!rcpt)
            rcpt =
                mem_alloc((e->envelope.nrecipients < SMTP_RECIPIENTS_MAX ? e->envelope.nrecipients
                                                                         : SMTP_RECIPIENTS_MAX) *
                          sizeof *rcpt);
        rcpt[n++] = (struct smtp_rcpt){.index = i};
        e->tried[i] |= TRIED_DELIVERY;
    }
    e->state = ENTRY_DELIVERING;
    entry_set_mail(e, rcpt, n, e->spill ? on_spilled : on_delivered);
    add_delivery_id(e);
    e->at = at;
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

static const char *site_name(const struct relay *r, uint32_t site)
{
    for (size_t i = 0; i < r->config->nreplicas; i++)
        if (r->config->replica[i].id == site)
            return r->config->replica[i].name;
    return "unknown";
}

static void tell_let_go(const struct entry *e)
{
    const struct retained *k = retained_find(e->relay, e->id);
    const char *why = k ? retained_let_go(k) : NULL;
    if (!why)
        return;
    delivery_log_let_go(e, why);
    metric_add(relay_let_go, 1);
}

/* It stays in its lane, delivered. Nobody can be told that it is not to be taken again: a delay does
 * it, which no other server knows of. The longer it is there, the rarer. */
static void retain(struct entry *e)
{
    bool unknown;
    struct retained *k = retained_keep(e, &unknown);
    if (!k && !unknown) {
        tell_let_go(e);
        owners_ack(e);
        return;
    }
    if (k && !k->told)
        delivery_log_retained(e, site_name(e->relay, k->recipient[0].site));
    if (k)
        k->told = true;
    if (e->envelope.marks & ENVELOPE_DELETED)
        lanes_mark(e->relay, e->lane);
    int64_t delay = k ? 2000 * (int64_t)(clock_monotonic() - k->since) : 0,
            least = k ? (int64_t)(1000. * retained_interval(config_destination(
                                              e->relay->config, e->lane->parsed.destination)))
                      : 0;
    owners_return(e, delay < least ? least : delay > RETAINED_MOST ? RETAINED_MOST : delay);
}

/* The head of an ordered lane was waited for long enough. Every owner is to know that first: who
 * takes over need not wait again, and what has a higher generation need not wait at all. */
static void step_aside(struct entry *e)
{
    delivery_log_aside(e, "it was waited for as long as head_hold says");
    metric_add(relay_aside, 1);
    e->envelope.marks |= ENVELOPE_ASIDE;
    e->dirty = e->leave = true;
    owners_record(e);
}

static void give_back(struct entry *e)
{
    struct retry_policy p = policy(e->relay, e->lane->destination);
    ASSERT(!e->dirty); /* every owner is told first */
    if (e->envelope.marks & ENVELOPE_ADMIN) {
        if (entry_keeps_place(e) && !(e->envelope.marks & ENVELOPE_DELETED))
            delivery_log_aside(e, e->envelope.marks & ENVELOPE_HELD ? "an admin holds it"
                                                                    : "it goes to Postfix's queue");
        owners_remind(e);
        if (e->envelope.marks & (ENVELOPE_DELETED | ENVELOPE_REQUEUE))
            lanes_mark(e->relay, e->lane);
        owners_return(e, e->envelope.marks & ENVELOPE_DELETED ? DELETE_AGAIN : p.most / 1000);
        return;
    }
    if (e->spill == SPILL_POISON) {
        if (entry_keeps_place(e))
            delivery_log_aside(e, "relays died of it, and it goes to Postfix's hold queue");
        owners_return(e, p.first / 1000);
        return;
    }
    int64_t left = e->attempted || e->lane->parsed.generation
                       ? retry_left(&p, e->id, &e->envelope, clock_wall())
                       : 0;
    if (!entry_keeps_place(e))
        owners_return(e, (left + 999) / 1000);
    else if (lane_wait_for(e, left))
        owners_return(e, 0);
    else
        step_aside(e);
}

/* An admin's marks come before everything else. True when the entry is done with. */
static bool obey(struct entry *e)
{
    uint32_t marks = e->envelope.marks;
    if ((marks & ENVELOPE_DELETED) && !e->dirty && owners_all_reachable(e)) {
        delivery_log_deleted(e);
        owners_ack(e);
        return true;
    }
    if ((marks & (ENVELOPE_DELETED | ENVELOPE_HELD)) || ((marks & ENVELOPE_REQUEUE) && !e->spill))
        e->leave = true;
    return false;
}

/* Nothing of the entry may be touched after a call that begins something: that may have ended
 * it. */
static void go_on(struct entry *e)
{
    if ((e->envelope.marks & ENVELOPE_ADMIN) && obey(e))
        return;
    /* Between two transactions of a mail with many recipients: who dies in the second must not
     * repeat the first. Where that delivered nothing, it may be repeated: a META is the whole
     * envelope, and 4,000 recipients who are refused would be 40 of them. */
    if (!e->leave && e->dirty && e->sent && anyone_due(e)) {
        owners_record(e);
        return;
    }
    if (!e->leave && deliver_batch(e))
        return;
    if (!e->leave && !e->spill && bounce_wanted(e)) {
        if (e->dirty) {
            owners_record(e);
            return;
        }
        if (bounce_submit(e, on_bounced))
            return;
    }
    bool open = anyone_open(e);
    if (e->dirty && (open || envelope_is_retained(&e->envelope)))
        owners_record(e);
    else if (open)
        give_back(e);
    else if (envelope_is_retained(&e->envelope))
        retain(e);
    else
        owners_ack(e);
}

/* ---- interface ---- */

static void on_recorded(struct entry *e, bool held)
{
    /* Not held: revoked, or acked by another relay. */
    if (held) {
        go_on(e);
        return;
    }
    retained_forget(e->relay, e->id);
    inflight_release(e);
}

static void on_removed(const struct entry *e)
{
    delivery_measure_end(e);
    delivery_log_removed(e);
    retained_forget(e->relay, e->id);
}

static const struct entry_calls calls = {on_recorded, on_removed};

/* What was delivered is to be delivered anew. The mail that its site lost waits again, as if
 * nobody had it; one whose site is away has to stay where it is until another one has it. */
static void begin_redo(struct entry *e)
{
    if (e->nredo != e->envelope.nrecipients) {
        free(e->redo);
        free(e->hop);
        e->redo = e->hop = NULL;
    }
    if (!e->hop)
        e->hop = mem_zero(e->envelope.nrecipients);
    for (size_t i = 0; e->redo && i < e->envelope.nrecipients; i++) {
        struct recipient *to = &e->envelope.recipient[i];
        if (to->state != RECIPIENT_RETAINED)
            e->redo[i] = REDO_NONE;
        if (is_redo(e, i, REDO_LOST)) {
            to->state = RECIPIENT_WAITING;
            to->site = 0;
            if (!recipient_was_delivered(to)) /* memory was short: the code was left out */
                to->code = 250;
            e->dirty = true;
        }
    }
}

void mail_begin(struct entry *e, const char *meta, size_t len)
{
    struct relay *r = e->relay;
    ASSERT(!e->calls && !e->tried);
    e->calls = &calls;
    const char *wrong = envelope_decode(meta, len, &e->envelope);
    /* No milter stores such a mail: somebody wrote into Redis. */
    if (!wrong)
        wrong = envelope_unfit(&e->envelope);
    if (wrong) {
        /* Never dropped: an admin can read it with LANE.GET, and a newer relay may understand
         * it. */
        char hex[ENTRYID_HEX];
        entryid_hex(e->id, hex);
        log_error("lane=%s, id=%s: the envelope cannot be read (%s); left in its lane",
                  e->lane->name, hex, wrong);
        metric_add(relay_unreadable, 1);
        owners_return(e, r->config->retry_most);
        return;
    }
    bool retained = envelope_is_retained(&e->envelope);
    e->leave |= e->bodyless;
    if (retained || e->bodyless)
        ; /* nothing of it goes to Postfix */
    else if (poison_judge(r, e->id, e->failed_leases) == POISON_HOLD && *r->config->reinject_port)
        inflight_spill(e, SPILL_POISON);
    else if ((e->envelope.marks & ENVELOPE_REQUEUE) && !e->spill && reinject_able(r))
        inflight_spill(e, SPILL_REQUEUE);
    /* After a takeover, or when a NACK was lost, it comes before its time. */
    struct retry_policy p = policy(r, e->lane->destination);
    int64_t left = e->spill || (e->envelope.marks & ENVELOPE_ADMIN)
                       ? 0
                       : retry_left(&p, e->id, &e->envelope, clock_wall());
    e->tried = mem_zero(e->envelope.nrecipients);
    begin_redo(e);
    if (is_over(e))
        left = 0;
    if (left && e->lane->parsed.generation) {
        give_back(e);
        return;
    }
    if (left) {
        owners_return(e, (left + 999) / 1000);
        return;
    }
    go_on(e);
}

bool mail_due(struct relay *r, struct destination *d, const unsigned char id[ENTRYID_LEN],
              const struct envelope *env)
{
    struct retry_policy p = policy(r, d);
    return !retry_left(&p, id, env, clock_wall());
}

void mail_leave(struct entry *e)
{
    e->leave = true;
    if ((e->state == ENTRY_DELIVERING || e->state == ENTRY_BOUNCING) &&
        destination_withdraw(e->at, &e->mail))
        go_on(e);
}
