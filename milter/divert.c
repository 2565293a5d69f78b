/* End of message: one entry per destination, all on the same owners; then what Postfix is told (docs/design.md, "Mail in" 5).
 *
 *   every entry held or delivered            DISCARD: ours
 *   none                                     the policy: ACCEPT (Postfix's queue) or TEMPFAIL
 *   some, policy queue                       their recipients are deleted from Postfix's copy, ACCEPT for the rest
 *   some, policy tempfail                    what is held is revoked, TEMPFAIL; unless something was delivered already: a client's retry would
 *                                            deliver it twice, so the rest goes to Postfix's queue as with the policy queue */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "metrics.h"

struct diversion {
    struct session *s;
    struct mail *m;
    struct store_request request;
    struct buf body;
    struct buf *meta; /* per entry */
    const char *unfit; /* why an envelope cannot be kept, or NULL */
    double ms;         /* storing took */
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- entries ---- */

static void encode_entry(struct diversion *d, const char *destination, struct buf *out)
{
    struct envelope e = d->m->envelope; /* borrows its texts */
    e.size = d->body.len;
    e.recipient = mem_alloc(d->m->nrecipients * sizeof *e.recipient);
    e.nrecipients = 0;
    for (size_t i = 0; i < d->m->nrecipients; i++)
        if (!d->m->recipient[i].again && !strcmp(d->m->recipient[i].destination, destination))
            e.recipient[e.nrecipients++] = d->m->recipient[i].r;
    const char *unfit = envelope_unfit(&e);
    if (unfit)
        d->unfit = unfit;
    else
        envelope_encode(&e, out);
    if (out->len > ENVELOPE_SIZE_MAX)
        d->unfit = "an envelope of more than 1 MiB";
    free(e.recipient);
}

static size_t entry_for(const struct diversion *d, const char *destination)
{
    size_t i = 0;
    while (i < d->request.nentries && strcmp(d->request.entry[i].destination, destination))
        i++;
    return i;
}

static void make_entries(struct diversion *d)
{
    struct mail *m = d->m;
    received_line(d->s, m, &d->body);
    buf_add(&d->body, m->headers_body.data, m->headers_body.len);
    d->request.queue_id = m->envelope.queue_id;
    d->request.body = d->body.data;
    d->request.body_len = d->body.len;
    d->request.entry = mem_zero(m->nrecipients * sizeof *d->request.entry);
    d->meta = mem_zero(m->nrecipients * sizeof *d->meta);
    for (size_t i = 0; i < m->nrecipients; i++) {
        size_t k = entry_for(d, m->recipient[i].destination);
        if (k < d->request.nentries || m->recipient[i].again)
            continue;
        d->request.nentries++;
        d->request.entry[k].destination = m->recipient[i].destination;
        encode_entry(d, m->recipient[i].destination, &d->meta[k]);
        d->request.entry[k].meta = d->meta[k].data;
        d->request.entry[k].meta_len = d->meta[k].len;
    }
}

/* Each entry has the whole body, and each copy of it waits as a request of its own until its connection has taken it. */
static const char *cannot_store(struct diversion *d)
{
    const struct config *c = milter.config;
    size_t all = d->body.len * d->request.nentries;
    if (d->unfit)
        return "address";
    if (all > (size_t)c->max_entry)
        return "too-large";
    return mail_claim(d->m, d->body.len + all * (size_t)c->copies) ? NULL : "busy";
}

static void free_entries(struct diversion *d)
{
    for (size_t i = 0; i < d->request.nentries; i++)
        buf_free(&d->meta[i]);
    free(d->meta);
    free(d->request.entry);
    buf_free(&d->body);
}

/* ---- outcomes ---- */

static bool done(const struct store_entry *e)
{
    return e->outcome == STORE_HELD || e->outcome == STORE_DELIVERED;
}

static size_t count(const struct diversion *d, bool (*which)(const struct store_entry *))
{
    size_t n = 0;
    for (size_t i = 0; i < d->request.nentries; i++)
        n += which(&d->request.entry[i]);
    return n;
}

static bool delivered(const struct store_entry *e)
{
    return e->outcome == STORE_DELIVERED;
}

static const char *outcome_word(const struct store_entry *e)
{
    static const char *const word[] = {"pending", "held", "delivered", "refused", "unsure"};
    return word[e->outcome];
}

static void log_entries(const struct diversion *d)
{
    char hex[ENTRYID_HEX];
    for (size_t i = 0; i < d->request.nentries; i++) {
        const struct store_entry *e = &d->request.entry[i];
        entryid_hex(e->id, hex);
        if (e->outcome == STORE_HELD)
            log_debug("%s: id=%s, dest=%s, store=held", d->request.queue_id, hex, e->destination);
        else
            log_warning("%s: id=%s, dest=%s, store=%s (%s)", d->request.queue_id, hex, e->destination, outcome_word(e), e->reason);
    }
}

static void log_mail(const struct diversion *d, const char *action)
{
    const struct envelope *e = &d->m->envelope;
    log_info("%s: from=<%.256s>, size=%zu, nrcpt=%zu, message-id=%.256s, client=%.256s[%s], action=%s, entries=%zu, nodes=%s, store=%.1fms", e->queue_id,
             e->sender, d->body.len, d->m->nrecipients, e->message_id ? e->message_id : "<>", d->s->client_name ? d->s->client_name : "unknown",
             d->s->client_addr ? d->s->client_addr : "", action, d->request.nentries, d->request.owners[0] ? d->request.owners : "none", d->ms);
}

/* Once one was deleted nothing may be revoked: Postfix's copy may be without it by now. What cannot be deleted comes twice, and the log says so. */
static enum verdict split(struct diversion *d, delete_recipient_fn *delete, void *arg)
{
    for (size_t i = 0; i < d->m->nrecipients; i++) {
        const struct mail_recipient *r = &d->m->recipient[i];
        if (done(&d->request.entry[entry_for(d, r->destination)]) && !delete(arg, r->given))
            log_error("%s: to=<%.256s>: Postfix does not let it be deleted from its copy, it may be sent more than once", d->request.queue_id,
                      r->r.address);
    }
    metric_add(mails_split, 1);
    log_mail(d, "split");
    return VERDICT_ACCEPT;
}

static enum verdict decide(struct diversion *d, delete_recipient_fn *delete, void *arg)
{
    size_t n = d->request.nentries, ndone = count(d, done);
    if (ndone == n) {
        metric_add(mails_diverted, 1);
        log_mail(d, "lane");
        return VERDICT_DISCARD;
    }
    log_entries(d);
    bool tempfail = milter.config->on_store_failure == ON_STORE_FAILURE_TEMPFAIL;
    if (ndone && tempfail && !count(d, delivered)) {
        store_revoke(milter.store, &d->request);
        log_entries(d);
        ndone = count(d, done);
        if (ndone == n) {
            log_mail(d, "lane");
            return VERDICT_DISCARD;
        }
    }
    if (ndone)
        return split(d, delete, arg);
    if (tempfail) {
        metric_add(mails_tempfailed, 1);
        log_mail(d, "tempfail");
        return VERDICT_TEMPFAIL;
    }
    metric_add(mails_failed_over, 1);
    log_mail(d, "queue");
    return VERDICT_ACCEPT;
}

enum verdict divert(struct session *s, delete_recipient_fn *delete, void *arg)
{
    struct diversion d = {.s = s, .m = &s->mail};
    enum verdict v = VERDICT_ACCEPT;
    double start = now_ms();
    make_entries(&d);
    const char *reason = cannot_store(&d);
    if (!reason) {
        store_submit(milter.store, &d.request);
        store_wait(milter.store, &d.request);
        d.ms = now_ms() - start;
        v = decide(&d, delete, arg);
        store_finish(milter.store, &d.request);
    } else {
        char action[200];
        metric_add(mails_queued, 1);
        snprintf(action, sizeof action, "queue reason=%s%s%s", reason, d.unfit ? " " : "", d.unfit ? d.unfit : "");
        log_mail(&d, action);
    }
    free_entries(&d);
    return v;
}
