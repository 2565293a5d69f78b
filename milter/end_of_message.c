/* End of message: one entry per destination, all on the same owners; then what Postfix is told
 * (docs/design.md, "Mail in" 5).
 *
 *   every entry stored or delivered          DISCARD: ours
 *   none                                     the policy: ACCEPT (Postfix's queue) or TEMPFAIL
 *   some, policy queue                       their recipients are deleted from Postfix's copy,
 *                                            ACCEPT for the rest
 *   some, policy tempfail                    what is stored is revoked, TEMPFAIL; unless something
 *                                            was delivered already: a client's retry would deliver
 *                                            it twice, so the rest goes to Postfix's queue as with
 *                                            the policy queue
 *
 * Before anything is stored the limits of its next hops are asked (receipt.h): over one of them
 * the mail goes to Postfix's queue as a whole, or gets 4xx.
 *
 * What is stored is promised only as long as store_check says so: it is asked right before the
 * answer, and what it takes back is looked at again. When nobody waits for the answer any more,
 * Postfix has done something else with the mail: everything is taken back. Both are asked behind
 * the log, which blocks while syslog or a disk hang. */
#include "lib/base/assert.h"
#include "milter/end_of_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/ingress/ingress_metrics.h"
#include "lib/ingress/mailline.h"
#include "lib/ingress/receipt.h"
#include "lib/postfix/postfix.h"
#include "milter/received.h"
#include "milter/divert_rules.h"

#define WHY_MOST 1024 /* bytes of a reason with its details */
/* that are deleted: for each Postfix looks through the header from its beginning */
#define FOREIGN_IDS_MOST 32

/* ---- log ---- */

static void log_outcome(const struct milter_session *s, const char *action, const char *reason)
{
    const struct envelope *e = &s->mail.envelope;
    mailline_say(&(struct mailline){.id = e->queue_id,
                                    .sender = e->sender,
                                    .size = s->body.len,
                                    .nrecipients = s->mail.nrecipients,
                                    .message_id = e->message_id,
                                    .client_name = s->client_name,
                                    .client_addr = s->client_addr,
                                    .held = !*reason && s->entries.held > 0,
                                    .began = s->stored ? s->began : 0,
                                    .stored = &s->entries.request},
                 action, reason);
}

static const char *name_of(const struct milter_session *s)
{
    return s->mail.envelope.queue_id ? s->mail.envelope.queue_id : "NOQUEUE";
}

/* Without its size: Postfix's qmgr is going to log that. */
static void log_left(const struct milter_session *s, const char *action, const char *reason)
{
    mailline_say_left(&(struct mailline){.id = name_of(s),
                                         .sender = s->mail.envelope.sender,
                                         .nrecipients = s->mail.nrecipients},
                      action, reason);
}

/* ---- answers ---- */

/* Postfix is gone, or may be: what is stored is taken back, then the session ends. */
static void take_back(struct milter_session *s)
{
    if (s->stored && !s->revoked && store_revoke(milter.store, &s->entries.request)) {
        s->revoked = true;
        s->stage = STAGE_REVOKE;
        return;
    }
    if (s->stored && mail_entries_count_done(&s->entries))
        log_mail(LOG_LEVEL_WARNING, name_of(s),
                 "some recipients have it already: they may be sent it more than once");
    milter_session_mail_over(s);
}

static void leave_it(struct milter_session *s, const char *why)
{
    log_mail(LOG_LEVEL_WARNING, name_of(s), "%s: what is stored is taken back", why);
    milter_session_gone(s);
    take_back(s);
}

static void answer(struct milter_session *s, enum engine_answer answer, const char *reply)
{
    if (answer == ENGINE_ACCEPT) /* Postfix may deliver it to the same Dovecot */
        for (unsigned n = s->mail.foreign_ids; n; n--)
            s->engine->delete_header(s->peer, ENTRYID_HEADER, n);
    milter_session_answer(s, answer, reply);
}

void divert_answered(struct milter_session *s, bool told)
{
    if (told)
        milter_session_mail_over(s);
    else
        leave_it(s, milter_session_waits(s) ? "Postfix hung up before the answer"
                                            : "Postfix may not wait for the answer any more");
}

static void measure(const struct milter_session *s, enum answer_result result)
{
    ingress_answered(result, clock_monotonic() - s->ended);
}

static void to_queue(struct milter_session *s, const char *reason, const char *detail)
{
    metric_add(mails_queued, 1);
    measure(s, ANSWER_QUEUE);
    ingress_queued(reason);
    char text[WHY_MOST];
    snprintf(text, sizeof text, "%s%s%s", reason, *detail ? " " : "", detail);
    log_left(s, "queue", text);
    answer(s, ENGINE_ACCEPT, NULL);
}

static void refuse(struct milter_session *s)
{
    metric_add(mails_refused, 1);
    measure(s, ANSWER_REFUSE);
    char reason[64];
    snprintf(reason, sizeof reason, ENTRYID_HEADER " lines: %u", s->mail.foreign_ids);
    log_left(s, "refuse", reason);
    answer(s, ENGINE_REPLY, "550 5.6.0 Too many " ENTRYID_HEADER " header lines");
}

/* The line of a mail that was not stored as a whole says why. */
static void log_failed(const struct milter_session *s, const char *action)
{
    char why[MAIL_ENTRIES_WHY];
    mail_entries_why(&s->entries, why);
    log_outcome(s, action, why);
}

static bool promised(struct milter_session *);

/* Once one was deleted nothing may be revoked: Postfix's copy may be without it by now. */
static void split(struct milter_session *s)
{
    log_failed(s, "split");
    if (!milter_session_waits(s)) {
        leave_it(s, "Postfix may not wait for the answer any more");
        return;
    }
    if (!promised(s))
        return;
    for (size_t i = 0; i < s->mail.nrecipients; i++) {
        const struct mail_recipient *r = &s->mail.recipient[i];
        size_t k = mail_entries_find(&s->entries, r->destination);
        ASSERT(k < s->entries.request.nentries);
        if (mail_entries_done(&s->entries.request.entry[k]))
            s->engine->delete_recipient(s->peer, r->given);
    }
    metric_add(mails_split, 1);
    measure(s, ANSWER_SPLIT);
    s->revoked = true;
    answer(s, ENGINE_ACCEPT, NULL);
}

/* ---- storing ---- */

/* False: it is too late for that, what was stored is being taken back, and on_stored is called
 * again. */
static bool promised(struct milter_session *s)
{
    bool good = store_check(milter.store, &s->entries.request);
    if (!good)
        s->stage = STAGE_STORE;
    return good;
}

static enum verdict verdict(const struct milter_session *s)
{
    return mail_entries_verdict(&s->entries, milter.config, s->revoked, false);
}

static void decide(struct milter_session *s)
{
    switch (verdict(s)) {
    case VERDICT_LANES:
        log_outcome(s, "lane", "");
        if (!promised(s))
            return;
        metric_add(mails_diverted, 1);
        measure(s, ANSWER_LANES);
        answer(s, ENGINE_DISCARD, NULL);
        return;
    case VERDICT_REVOKE: /* there is nothing to take back */
    case VERDICT_TEMPFAIL:
        metric_add(mails_tempfailed, 1);
        measure(s, ANSWER_TEMPFAIL);
        log_failed(s, "tempfail");
        answer(s, ENGINE_REPLY,
               "451 4.3.0 Mail could not be stored on enough hosts, try again later");
        return;
    case VERDICT_SPLIT: split(s); return;
    case VERDICT_QUEUE:
        metric_add(mails_failed_over, 1);
        measure(s, ANSWER_FAILOVER);
        log_failed(s, "queue");
        answer(s, ENGINE_ACCEPT, NULL);
    }
}

static void on_stored(struct store_request *r)
{
    struct milter_session *s = r->arg;
    ASSERT(s->stored && (s->stage == STAGE_STORE || s->stage == STAGE_REVOKE));
    if (s->gone) {
        if (mail_entries_count_done(&s->entries) < r->nentries)
            mail_entries_log(&s->entries);
        take_back(s);
        return;
    }
    if (!milter_session_waits(s)) {
        leave_it(s, "Postfix may not wait for the answer any more");
        return;
    }
    if (verdict(s) == VERDICT_REVOKE) {
        s->revoked = true;
        if (store_revoke(milter.store, r)) {
            s->stage = STAGE_REVOKE;
            return;
        }
    }
    if (promised(s))
        decide(s);
}

static void make_entries(struct milter_session *s)
{
    struct mail *m = &s->mail;
    received_line(s, m, &s->body);
    buf_add(&s->body, m->headers_body.data, m->headers_body.len);
    mail_entries_make(&s->entries, &m->envelope, m->recipient, m->nrecipients, s->body.data,
                      s->body.len);
}

static const char *cannot_store(struct milter_session *s, const char **detail_r)
{
    size_t bytes;
    const char *reason =
        mail_entries_misfit(&s->entries, milter.config, s->body.len, detail_r, &bytes);
    if (reason || mail_claim(&s->mail, s->body.len + bytes))
        return reason;
    *detail_r = "milter_memory";
    return "busy";
}

/* The mail was read, and is Postfix's all the same. */
static void entries_to_queue(struct milter_session *s, const char *reason, const char *detail)
{
    char text[WHY_MOST];
    metric_add(mails_queued, 1);
    measure(s, ANSWER_QUEUE);
    ingress_queued(reason);
    snprintf(text, sizeof text, "%s %s", reason, detail);
    log_outcome(s, "queue", text);
    answer(s, ENGINE_ACCEPT, NULL);
}

static void put_off(struct milter_session *s, const char *detail)
{
    char text[WHY_MOST];
    metric_add(mails_over_limit, 1);
    measure(s, ANSWER_LIMIT);
    snprintf(text, sizeof text, RECEIPT_REASON " %s", detail);
    log_outcome(s, "tempfail", text);
    answer(s, ENGINE_REPLY, RECEIPT_REPLY);
}

static void store(struct milter_session *s)
{
    s->began = clock_monotonic();
    make_entries(s);
    char over[600];
    const char *detail, *reason = cannot_store(s, &detail);
    enum receipt receipt = reason ? RECEIPT_OPEN : receipt_judge(&s->entries, over, sizeof over);
    if (reason || receipt == RECEIPT_QUEUE) {
        entries_to_queue(s, reason ? reason : RECEIPT_REASON, reason ? detail : over);
        return;
    }
    if (receipt == RECEIPT_DEFER) {
        put_off(s, over);
        return;
    }
    ASSERT(!s->stored && s->entries.request.nentries);
    s->stage = STAGE_STORE;
    s->stored = true;
    s->entries.request.done = on_stored;
    s->entries.request.arg = s;
    store_submit(milter.store, &s->entries.request);
}

/* ---- whose is it ---- */

static void choose(struct milter_session *s)
{
    char detail[600];
    const char *reason = rules_maps(&s->mail, detail, sizeof detail);
    if (!milter_session_waits(s))
        leave_it(s, "Postfix may not wait for the answer any more");
    else if (reason)
        to_queue(s, reason, detail);
    else
        store(s);
}

static void on_looked_up(void *arg)
{
    struct milter_session *s = arg;
    s->lookup = NULL;
    choose(s);
}

/* Asks Postfix's maps what they are going to be asked. */
static void look_up(struct milter_session *s)
{
    const struct mail *m = &s->mail;
    const char **address = mem_alloc(m->nrecipients * sizeof *address);
    size_t n = 0;
    for (size_t i = 0; i < m->nrecipients; i++)
        if (!m->recipient[i].again)
            address[n++] = m->recipient[i].r.address;
    s->stage = STAGE_MAPS;
    s->lookup = lookup_start(m->envelope.sender, address, n, on_looked_up, s);
    free(address);
}

/* Of a mail that was split, Postfix's copy and what is stored would have to be looked at again. */
bool divert_late(struct milter_session *s)
{
    bool stored = s->stored && mail_entries_count_done(&s->entries);
    if (!milter_session_waits(s) || (stored && verdict(s) != VERDICT_LANES)) {
        divert_answered(s, false);
        return false;
    }
    return !stored || promised(s);
}

void divert_begin(struct milter_session *s)
{
    struct mail *m = &s->mail;
    char detail[600];
    mail_end_header(m);
    m->envelope.arrived = clock_wall();
    s->ended = clock_monotonic();
    const char *reason = rules_queue_reason(m, detail, sizeof detail);
    if (!milter_session_waits(s)) {
        leave_it(s, "this process stood still, and Postfix may not wait for the answer any more");
        return;
    }
    if (m->foreign_ids > FOREIGN_IDS_MOST) {
        refuse(s);
        return;
    }
    if (reason) {
        to_queue(s, reason, detail);
        return;
    }
    mail_note_encoding(m);
    look_up(s);
    if (!s->lookup)
        choose(s);
}

void divert_gone(struct milter_session *s)
{
    log_mail(LOG_LEVEL_WARNING, name_of(s),
             "Postfix hung up before the answer, or may not wait for it any more: what is "
             "stored is taken back");
    if (s->stage == STAGE_MAPS) {
        ASSERT(s->lookup);
        lookup_forget(s->lookup);
        s->lookup = NULL;
        milter_session_mail_over(s);
    } /* else on_stored sees it */
}
