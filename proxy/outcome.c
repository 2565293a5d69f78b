/* The content is complete, and some of it is for lanes: who gets what, and what Postfix is
 * answered. There is one answer for all recipients.
 *
 *   none is Postfix's:  STORE ─ all stored ─▶ 250
 *   some are:           PREPARE (proxy_next takes them all, all but the last dot is there) ─▶ STORE ─ all stored ─▶ DOT ─▶ 250
 *   not all are stored:   policy queue: REST (a mail to proxy_next for what is nowhere) ─▶ 250
 *                       policy tempfail: REVOKE ─▶ 451; unless something was delivered already: a client's retry would deliver it twice, so as with queue
 *   proxy_next refuses: REVOKE ─▶ its answer. What is delivered by then cannot be taken back: a retry may send it more than once, and the log says so.
 *
 * Before any of that the limits of the next hops are asked (receipt.h): over one of them the mail
 * goes to proxy_next as a whole, or gets 4xx.
 *
 * What is stored is promised only as long as store_check says so: it is asked right before the
 * 250, and what it takes back goes to proxy_next (LATE, then REST). So each recipient is stored
 * by all its owners, or was delivered, or is in Postfix's queue when 250 is said. */
#include "lib/base/assert.h"
#include "proxy/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/logline.h"
#include "lib/base/metrics.h"
#include "lib/ingress/ingress_metrics.h"
#include "lib/ingress/mailline.h"
#include "lib/ingress/receipt.h"
#include "lib/mail/mime.h"
#include "proxy/proxy.h"

static void step(struct proxy_session *s);

/* ---- log ---- */

static void log_outcome(const struct proxy_session *s, const char *action, const char *reason)
{
    const struct engine *e = &s->engine;
    mailline_say(&(struct mailline){.id = s->id,
                                    .sender = e->sender.address,
                                    .size = e->content.size,
                                    .nrecipients = e->nrecipients,
                                    .message_id = e->content.message_id,
                                    .client_name = e->xforward[XFORWARD_NAME],
                                    .client_addr = e->xforward[XFORWARD_ADDR],
                                    .next = *reason && *s->handed_next ? s->handed_next : NULL,
                                    .held = !*reason && s->entries.held > 0,
                                    .began = s->started,
                                    .stored = &s->entries.request},
                 action, reason);
}

/* Why it is not, or not all, in lanes. */
static void say_why(const struct proxy_session *s, char out[MAIL_ENTRIES_WHY])
{
    const char *rule = s->reason ? s->reason : "store";
    if (*s->unstored)
        snprintf(out, MAIL_ENTRIES_WHY, "%s", s->unstored);
    else
        snprintf(out, MAIL_ENTRIES_WHY, "%s%s%s", rule, s->reason && *s->detail ? " " : "",
                 s->reason ? s->detail : "");
}

static void warn_twice(const struct proxy_session *s)
{
    log_mail(LOG_LEVEL_WARNING, s->id,
             "some recipients have it although it is answered %.3s: they may be sent it "
             "more than once",
             s->refusal);
}

/* ---- whose is what ---- */

/* Marks in which[] whoever is nowhere yet. Before anything is stored: who has no destination. */
static bool mark_missing(struct proxy_session *s, bool stored)
{
    const struct engine *e = &s->engine;
    bool any = false;
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct mail_recipient *r = &e->recipient[i];
        bool lane = r->destination && s->entries.request.nentries;
        bool done =
            lane &&
            (!stored ||
             mail_entries_done(
                 &s->entries.request.entry[mail_entries_find(&s->entries, r->destination)]));
        s->which[i] = !s->passed[i] && !done;
        any |= s->which[i];
    }
    return any;
}

static size_t mark_passed(struct proxy_session *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->engine.nrecipients; i++) {
        s->passed[i] |= s->which[i];
        n += s->which[i];
    }
    return n;
}

static bool any_passed(const struct proxy_session *s)
{
    for (size_t i = 0; i < s->engine.nrecipients; i++)
        if (s->passed[i])
            return true;
    return false;
}

static void drop_next(struct proxy_session *s)
{
    next_close(s->next);
    s->next = NULL;
}

static void on_next(void *arg, enum next_event event, const char *reply, bool unsure)
{
    outcome_next(arg, event, reply, unsure);
}

static void open_next(struct proxy_session *s, enum outcome why)
{
    drop_next(s);
    s->outcome = why;
    s->next = next_open(&s->engine, s->which, s->id, on_next, s);
}

/* ---- the answer ---- */

/* Each recipient is held by all its owners, or delivered, or in Postfix's queue. */
static bool all_have_it(const struct proxy_session *s)
{
    for (size_t i = 0; i < s->engine.nrecipients; i++) {
        const char *destination = s->engine.recipient[i].destination;
        size_t k = destination ? mail_entries_find(&s->entries, destination) : 0;
        bool lane = destination && k < s->entries.request.nentries;
        if (!s->passed[i] && !(lane && mail_entries_done(&s->entries.request.entry[k])))
            return false;
    }
    return true;
}

static void over(struct proxy_session *s, const char *reply)
{
    ASSERT(*reply != '2' || all_have_it(s));
    bool told = !s->gone && proxy_session_answer(s, reply);
    if (!told && *reply == '2' && !s->gone)
        log_mail(LOG_LEVEL_WARNING, s->id,
                 "Postfix did not hear the answer: it may be sent more than once");
    s->gone |= !told;
    proxy_session_mail_over(s);
}

static void accept_mail(struct proxy_session *s)
{
    bool split = any_passed(s), all_passed = split && !mail_entries_count_done(&s->entries);
    char reply[64];
    if (s->stored && !store_check(proxy.store, &s->entries.request)) {
        s->outcome = OUTCOME_LATE;
        return;
    }
    snprintf(reply, sizeof reply, "250 2.0.0 Ok: queued as %s", s->id);
    if (!split)
        metric_add(mails_diverted, 1);
    else if (!all_passed)
        metric_add(mails_split, 1);
    else if (s->entries.request.nentries)
        metric_add(mails_failed_over, 1);
    else {
        metric_add(mails_queued, 1);
        ingress_queued(s->reason);
    }
    ingress_answered(!split                        ? ANSWER_LANES
                     : !all_passed                 ? ANSWER_SPLIT
                     : s->entries.request.nentries ? ANSWER_FAILOVER
                                                   : ANSWER_QUEUE,
                     clock_monotonic() - s->ended);
    log_outcome(s, all_passed ? "queue" : split ? "split" : "lane", all_passed ? s->handed : "");
    over(s, reply);
}

static void refuse_mail(struct proxy_session *s)
{
    if (mail_entries_count_done(&s->entries) || any_passed(s))
        warn_twice(s);
    if (*s->refusal == '4')
        metric_add(mails_tempfailed, 1);
    ingress_answered(*s->refusal == '4' ? ANSWER_TEMPFAIL : ANSWER_REFUSE,
                     clock_monotonic() - s->ended);
    char reason[1024], why[MAIL_ENTRIES_WHY];
    say_why(s, why);
    snprintf(reason, sizeof reason, "%.650s (%.300s)", why, s->refusal);
    *s->handed_next = '\0';
    log_outcome(s, *s->refusal == '4' ? "tempfail" : "refuse", reason);
    over(s, s->refusal);
}

/* Takes back what is stored, then answers. */
static void revoke_and_refuse(struct proxy_session *s, const char *reply)
{
    if (reply != s->refusal)
        snprintf(s->refusal, sizeof s->refusal, "%s", reply);
    drop_next(s);
    s->outcome = OUTCOME_REVOKE;
    if (!s->stored || !store_revoke(proxy.store, &s->entries.request))
        refuse_mail(s);
}

/* ---- storing ---- */

static void on_stored(struct store_request *);

/* A client that tries again gets it all anew. */
static void tempfail(struct proxy_session *s)
{
    *s->refusal = '\0';
    drop_next(s);
    s->outcome = OUTCOME_REVOKE;
    if (!store_revoke(proxy.store, &s->entries.request))
        on_stored(&s->entries.request);
}

static void on_revoked(struct proxy_session *s)
{
    if (s->gone)
        mail_entries_log(&s->entries);
    bool tempfails = *s->refusal == '\0'; /* else proxy_next has refused it, or Postfix is gone */
    bool refused =
        mail_entries_verdict(&s->entries, proxy.config, true, any_passed(s)) == VERDICT_TEMPFAIL;
    if (tempfails && !refused && !s->gone) {
        step(s);
        return;
    }
    if (tempfails)
        snprintf(s->refusal, sizeof s->refusal,
                 "451 4.3.0 Mail could not be stored on enough hosts, try again later");
    refuse_mail(s);
}

static void on_stored(struct store_request *r)
{
    struct proxy_session *s = r->arg;
    ASSERT(s->stored && s->course == COURSE_OUTCOME);
    if (s->outcome == OUTCOME_REVOKE) {
        on_revoked(s);
        return;
    }
    if (s->gone) {
        snprintf(s->refusal, sizeof s->refusal, "421 Postfix is gone");
        revoke_and_refuse(s, s->refusal);
        return;
    }
    enum verdict verdict = mail_entries_verdict(&s->entries, proxy.config, false, any_passed(s));
    if (verdict != VERDICT_LANES)
        mail_entries_why(&s->entries, s->unstored);
    if (verdict == VERDICT_REVOKE || verdict == VERDICT_TEMPFAIL) {
        tempfail(s);
    } else if (verdict == VERDICT_LANES && s->next && s->outcome == OUTCOME_STORE) {
        s->outcome = OUTCOME_DOT;
        next_end(s->next);
    } else {
        step(s);
    }
}

/* The store has said all it has to say: what is nowhere goes to proxy_next; nothing is left:
 * 250. */
static void step(struct proxy_session *s)
{
    if (mark_missing(s, true))
        open_next(s, OUTCOME_REST);
    else
        accept_mail(s);
}

static void submit(struct proxy_session *s)
{
    ASSERT(!s->stored && s->entries.request.nentries);
    s->outcome = OUTCOME_STORE;
    s->stored = true;
    s->entries.request.done = on_stored;
    s->entries.request.arg = s;
    store_submit(proxy.store, &s->entries.request);
}

/* ---- proxy_next ---- */

static void log_passed(const struct proxy_session *s, size_t n, const char *why, const char *reply)
{
    struct logline l;
    logline_begin(&l, LOG_EVENT_passed_on, s->id);
    LOGLINE(&l, ": recipients passed on: ");
    logline_number(&l, n);
    LOGLINE(&l, " of ");
    logline_field_number(&l, LOG_FIELD_nrcpt, s->engine.nrecipients);
    LOGLINE(&l, ", reason=");
    logline_field(&l, LOG_FIELD_reason, why, MAIL_ENTRIES_WHY);
    LOGLINE(&l, ", next=");
    logline_field(&l, LOG_FIELD_next, reply, 300);
    logline_say(&l);
}

/* Of a mail that is proxy_next's as a whole the last line says it all. */
static void passed_on(struct proxy_session *s, const char *reply)
{
    char why[MAIL_ENTRIES_WHY];
    size_t n = mark_passed(s);
    say_why(s, why);
    if (n < s->engine.nrecipients) {
        log_passed(s, n, why, reply);
        return;
    }
    snprintf(s->handed, sizeof s->handed, "%s", why);
    snprintf(s->handed_next, sizeof s->handed_next, "%s", reply);
}

void outcome_next(struct proxy_session *s, enum next_event event, const char *reply, bool unsure)
{
    switch (event) {
    case NEXT_READY:
        next_add(s->next, s->engine.body.data, s->engine.body.len);
        if (s->outcome == OUTCOME_PREPARE)
            submit(s);
        else
            next_end(s->next);
        return;
    case NEXT_DRAINED: return;
    case NEXT_DONE:
        passed_on(s, reply);
        drop_next(s);
        step(s);
        return;
    case NEXT_REFUSED:
        if (unsure)
            log_mail(LOG_LEVEL_WARNING, s->id,
                     "proxy_next was lost behind the last dot: it may be sent more than once");
        /* What it refuses for good is refused for all; before anything is stored that is all
         * there is to it. While the store is at work, its outcome is awaited: it asks then. */
        if (s->outcome == OUTCOME_STORE) {
            drop_next(s);
            return;
        }
        revoke_and_refuse(s, reply);
        return;
    }
}

/* ---- begin and end ---- */

static void make_envelope(struct proxy_session *s)
{
    const struct engine *e = &s->engine;
    s->envelope = (struct envelope){
        .arrived = clock_wall(),
        .queue_id = s->id,
        .host = *proxy.config->host_name ? proxy.config->host_name : e->helo,
        .sender = e->sender.address,
        .sender_args = e->sender.args ? mem_strdup(e->sender.args) : NULL,
        .client_name = e->xforward[XFORWARD_NAME] ? e->xforward[XFORWARD_NAME] : (char *)"unknown",
        .client_addr = e->xforward[XFORWARD_ADDR],
        .client_port = e->xforward[XFORWARD_PORT],
        .helo = e->xforward[XFORWARD_HELO],
        .protocol = e->xforward[XFORWARD_PROTO],
        .message_id = e->content.message_id,
    };
    if (s->envelope.client_addr && !strncasecmp(s->envelope.client_addr, "IPv6:", 5))
        s->envelope.client_addr += 5;
    mime_note_8bit(&s->envelope.sender_args, e->body.data, e->body.len);
}

static const char *cannot_store(struct proxy_session *s)
{
    const char *detail;
    size_t bytes;
    const char *reason =
        mail_entries_misfit(&s->entries, proxy.config, s->engine.body.len, &detail, &bytes);
    if (!reason && proxy_session_claim(s, bytes))
        return NULL;
    snprintf(s->detail, sizeof s->detail, "%s", reason ? detail : "proxy_memory");
    return reason ? reason : "busy";
}

/* Nothing of it is anywhere yet. */
static void put_off(struct proxy_session *s)
{
    char reason[RULES_DETAIL + sizeof RECEIPT_REASON];
    metric_add(mails_over_limit, 1);
    ingress_answered(ANSWER_LIMIT, clock_monotonic() - s->ended);
    snprintf(reason, sizeof reason, RECEIPT_REASON " %s", s->detail);
    mail_entries_free(&s->entries);
    log_outcome(s, "tempfail", reason);
    over(s, RECEIPT_REPLY);
}

/* NULL: it goes to lanes, or is put off. */
static const char *beyond_limits(struct proxy_session *s, bool *put_off_r)
{
    char detail[sizeof s->detail];
    enum receipt receipt = receipt_judge(&s->entries, detail, sizeof detail);
    *put_off_r = receipt == RECEIPT_DEFER;
    if (receipt != RECEIPT_OPEN)
        snprintf(s->detail, sizeof s->detail, "%s", detail);
    return receipt == RECEIPT_QUEUE ? RECEIPT_REASON : NULL;
}

void outcome_begin(struct proxy_session *s)
{
    bool defer = false;
    struct engine *e = &s->engine;
    ASSERT(s->course == COURSE_OUTCOME && !s->which && !s->passed && !s->next);
    s->which = mem_zero(e->nrecipients * sizeof *s->which);
    s->passed = mem_zero(e->nrecipients * sizeof *s->passed);
    s->started = clock_monotonic();
    const char *reason = rules_content(e);
    if (reason)
        *s->detail = '\0';
    if (!reason) {
        make_envelope(s);
        mail_entries_make(&s->entries, &s->envelope, e->recipient, e->nrecipients, e->body.data,
                          e->body.len);
        reason = cannot_store(s);
        if (!reason)
            reason = beyond_limits(s, &defer);
    }
    if (defer) {
        put_off(s);
    } else if (reason) {
        s->reason = reason;
        mail_entries_free(&s->entries);
        mark_missing(s, true);
        open_next(s, OUTCOME_REST);
    } else if (mark_missing(s, false)) {
        open_next(s, OUTCOME_PREPARE);
    } else {
        submit(s);
    }
}

/* Its client is told 4xx by Postfix. What is under way in the store is awaited; what was given
 * to proxy_next may be there. */
void outcome_gone(struct proxy_session *s)
{
    bool dotted = (s->outcome == OUTCOME_DOT || s->outcome == OUTCOME_REST) && s->next;
    log_mail(LOG_LEVEL_WARNING, s->id, "Postfix hung up before the answer%s",
             dotted || any_passed(s) ? ": it may be sent more than once" : "");
    switch (s->outcome) {
    case OUTCOME_STORE:
    case OUTCOME_LATE:
    case OUTCOME_REVOKE: drop_next(s); return; /* on_stored sees it */
    case OUTCOME_PREPARE:
    case OUTCOME_DOT:
    case OUTCOME_REST: revoke_and_refuse(s, "421 Postfix is gone"); return;
    }
}
