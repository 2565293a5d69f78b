#include "lib/ingress/deposit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/ingress/hold_rules.h"
#include "lib/base/log.h"

void mail_recipient_free(struct mail_recipient *r)
{
    free(r->given);
    free(r->destination);
    free(r->r.address);
    free(r->r.args);
    free(r->r.text);
}

/* ---- entries ---- */

static bool message_of(void *arg, const char **data, size_t *len)
{
    const struct deposit *d = arg;
    *data = d->request.body;
    *len = d->request.body_len;
    return true;
}

static void encode_entry(struct deposit *d, const struct envelope *envelope,
                         const struct mail_recipient *recipient, size_t n, const char *destination,
                         struct buf *out)
{
    struct envelope e = *envelope; /* borrows its texts */
    e.size = d->request.body_len;
    e.recipient = mem_alloc(n * sizeof *e.recipient);
    e.nrecipients = 0;
    for (size_t i = 0; i < n; i++)
        if (!recipient[i].again && recipient[i].destination &&
            !strcmp(recipient[i].destination, destination))
            e.recipient[e.nrecipients++] = recipient[i].r;
    const char *unfit = envelope_unfit(&e);
    if (hold_rules_fit(&(struct match_facts){
            .envelope = &e, .destination = destination, .arg = d, .message = message_of})) {
        e.marks |= ENVELOPE_HELD;
        d->held++;
    }
    if (unfit)
        d->unfit = unfit;
    else
        envelope_encode(&e, out);
    if (out->len > ENVELOPE_SIZE_MAX)
        d->unfit = "an envelope of more than 1 MiB";
    free(e.recipient);
}

size_t deposit_entry(const struct deposit *d, const char *destination)
{
    size_t i = 0;
    while (i < d->request.nentries && strcmp(d->request.entry[i].destination, destination))
        i++;
    return i;
}

void deposit_make(struct deposit *d, const struct envelope *e,
                  const struct mail_recipient *recipient, size_t n, const char *body, size_t len)
{
    d->request.queue_id = e->queue_id;
    d->request.body = body;
    d->request.body_len = len;
    d->request.entry = mem_zero(n * sizeof *d->request.entry);
    d->meta = mem_zero(n * sizeof *d->meta);
    for (size_t i = 0; i < n; i++) {
        if (!recipient[i].destination || recipient[i].again)
            continue;
        size_t k = deposit_entry(d, recipient[i].destination);
        if (k < d->request.nentries)
            continue;
        d->request.nentries++;
        d->request.entry[k].destination = recipient[i].destination;
        encode_entry(d, e, recipient, n, recipient[i].destination, &d->meta[k]);
        d->request.entry[k].meta = d->meta[k].data;
        d->request.entry[k].meta_len = d->meta[k].len;
    }
}

void deposit_free(struct deposit *d)
{
    for (size_t i = 0; i < d->request.nentries; i++)
        buf_free(&d->meta[i]);
    free(d->meta);
    free(d->request.entry);
    d->meta = NULL;
    d->request.entry = NULL;
    d->request.nentries = 0;
}

/* ---- outcomes ---- */

bool deposit_done(const struct store_entry *e)
{
    return e->outcome == STORE_STORED || e->outcome == STORE_DELIVERED;
}

size_t deposit_count_done(const struct deposit *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->request.nentries; i++)
        n += deposit_done(&d->request.entry[i]);
    return n;
}

static size_t count_delivered(const struct deposit *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->request.nentries; i++)
        n += d->request.entry[i].outcome == STORE_DELIVERED;
    return n;
}

enum verdict deposit_verdict(const struct deposit *d, const struct config *c, bool revoked,
                             bool queued)
{
    return verdict_of(&(struct verdict_facts){
        .entries = d->request.nentries,
        .done = deposit_count_done(d),
        .delivered = count_delivered(d),
        .tempfail = c->on_store_failure == ON_STORE_FAILURE_TEMPFAIL,
        .revoked = revoked,
        .queued = queued,
    });
}

const char *deposit_misfit(const struct deposit *d, const struct config *c, size_t body,
                           const char **detail_r, size_t *bytes_r)
{
    size_t all = body * d->request.nentries;
    *bytes_r = all * (size_t)c->copies;
    *detail_r = d->unfit ? d->unfit : "max_entry";
    return d->unfit ? "address" : all > (size_t)c->max_entry ? "too-large" : NULL;
}

static const char *outcome_word(const struct store_entry *e)
{
    static const char *const word[] = {"pending", "held", "delivered", "refused", "unsure"};
    return word[e->outcome];
}

void deposit_log(const struct deposit *d)
{
    char hex[ENTRYID_HEX];
    for (size_t i = 0; i < d->request.nentries; i++) {
        const struct store_entry *e = &d->request.entry[i];
        entryid_hex(e->id, hex);
        if (e->outcome == STORE_STORED)
            log_debug("%s: id=%s, dest=%s, store=held", d->request.queue_id, hex, e->destination);
        else
            log_warning("%s: id=%s, dest=%s, store=%s (%s)", d->request.queue_id, hex,
                        e->destination, outcome_word(e), e->reason);
    }
}

/* ---- one line a mail ---- */

#define TELL_EVERY 60. /* seconds */

/* Once a minute, in words for whoever reads warnings alone. */
static void tell(const char *why)
{
    static double told;
    static unsigned long failed;
    failed++;
    double now = clock_monotonic();
    if (told > 0. && now - told < TELL_EVERY)
        return;
    log_warning("mail cannot be stored on enough nodes (%s): %lu mails since %s; each mail's "
                "action= says what became of it",
                why, failed, told > 0. ? "the last such line" : "the start");
    told = now;
    failed = 0;
}

/* NULL: nothing is to be said of it. */
static const char *failure_of(const struct store_entry *e)
{
    if (e->outcome == STORE_STORED || (e->outcome != STORE_DELIVERED && !*e->reason))
        return NULL;
    return e->outcome == STORE_DELIVERED ? "delivered already" : e->reason;
}

static bool said_before(const struct deposit *d, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        const char *before = failure_of(&d->request.entry[k]);
        if (before && !strcmp(before, failure_of(&d->request.entry[i])))
            return true;
    }
    return false;
}

void deposit_why(const struct deposit *d, char out[DEPOSIT_WHY])
{
    struct buf why = {0};
    for (size_t i = 0; i < d->request.nentries && why.len < DEPOSIT_WHY; i++) {
        const struct store_entry *e = &d->request.entry[i];
        if (!failure_of(e) || said_before(d, i))
            continue;
        buf_printf(&why, "%s%s%s%s", why.len ? "; " : "",
                   d->request.nentries > 1 ? e->destination : "",
                   d->request.nentries > 1 ? " " : "", failure_of(e));
    }
    snprintf(out, DEPOSIT_WHY, "store (%.*s)", DEPOSIT_WHY - 10,
             why.data ? why.data : "the time was over");
    tell(why.data ? why.data : "the time was over");
    buf_free(&why);
}
