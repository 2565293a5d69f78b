#include "lib/ingress/mail_entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/ingress/class_rules.h"
#include "lib/ingress/hold_rules.h"
#include "lib/base/log.h"
#include "lib/base/logline.h"
#include "lib/ingress/receipt.h"

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
    const struct mail_entries *m = arg;
    *data = m->request.body;
    *len = m->request.body_len;
    return true;
}

/* The envelope of one entry, and of which class it is. */
static void encode_entry(struct mail_entries *m, const struct envelope *envelope,
                         const struct mail_recipient *recipient, size_t n,
                         struct store_entry *entry, struct buf *out)
{
    const char *destination = entry->destination;
    struct envelope e = *envelope; /* borrows its texts */
    e.size = m->request.body_len;
    e.recipient = mem_alloc(n * sizeof *e.recipient);
    e.nrecipients = 0;
    for (size_t i = 0; i < n; i++)
        if (!recipient[i].again && recipient[i].destination &&
            !strcmp(recipient[i].destination, destination))
            e.recipient[e.nrecipients++] = recipient[i].r;
    const char *unfit = envelope_unfit(&e);
    const struct match_facts facts = {
        .envelope = &e, .destination = destination, .arg = m, .message = message_of};
    entry->class = class_rules_fit(&facts);
    if (hold_rules_fit(&facts)) {
        e.marks |= ENVELOPE_HELD;
        m->held++;
    }
    if (unfit)
        m->unfit = unfit;
    else
        envelope_encode(&e, out);
    if (out->len > ENVELOPE_SIZE_MAX)
        m->unfit = "an envelope of more than 1 MiB";
    free(e.recipient);
}

size_t mail_entries_find(const struct mail_entries *m, const char *destination)
{
    size_t i = 0;
    while (i < m->request.nentries && strcmp(m->request.entry[i].destination, destination))
        i++;
    return i;
}

void mail_entries_make(struct mail_entries *m, const struct envelope *e,
                       const struct mail_recipient *recipient, size_t n, const char *body,
                       size_t len)
{
    m->request.queue_id = e->queue_id;
    m->request.body = body;
    m->request.body_len = len;
    m->request.entry = mem_zero(n * sizeof *m->request.entry);
    m->meta = mem_zero(n * sizeof *m->meta);
    for (size_t i = 0; i < n; i++) {
        if (!recipient[i].destination || recipient[i].again)
            continue;
        size_t k = mail_entries_find(m, recipient[i].destination);
        if (k < m->request.nentries)
            continue;
        m->request.nentries++;
        m->request.entry[k].destination = recipient[i].destination;
        encode_entry(m, e, recipient, n, &m->request.entry[k], &m->meta[k]);
        m->request.entry[k].meta = m->meta[k].data;
        m->request.entry[k].meta_len = m->meta[k].len;
    }
}

void mail_entries_free(struct mail_entries *m)
{
    receipt_over(m);
    for (size_t i = 0; i < m->request.nentries; i++)
        buf_free(&m->meta[i]);
    free(m->meta);
    free(m->request.entry);
    m->meta = NULL;
    m->request.entry = NULL;
    m->request.nentries = 0;
}

/* ---- outcomes ---- */

bool mail_entries_done(const struct store_entry *e)
{
    return e->outcome == STORE_STORED || e->outcome == STORE_DELIVERED;
}

size_t mail_entries_count_done(const struct mail_entries *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->request.nentries; i++)
        n += mail_entries_done(&m->request.entry[i]);
    return n;
}

static size_t count_delivered(const struct mail_entries *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->request.nentries; i++)
        n += m->request.entry[i].outcome == STORE_DELIVERED;
    return n;
}

enum verdict mail_entries_verdict(const struct mail_entries *m, const struct config *c,
                                  bool revoked, bool queued)
{
    return verdict_of(&(struct verdict_facts){
        .entries = m->request.nentries,
        .done = mail_entries_count_done(m),
        .delivered = count_delivered(m),
        .tempfail = c->on_store_failure == ON_STORE_FAILURE_TEMPFAIL,
        .revoked = revoked,
        .queued = queued,
    });
}

const char *mail_entries_misfit(const struct mail_entries *m, const struct config *c, size_t body,
                                const char **detail_r, size_t *bytes_r)
{
    size_t all = body * m->request.nentries;
    *bytes_r = all * (size_t)c->copies;
    *detail_r = m->unfit ? m->unfit : "max_entry";
    return m->unfit ? "address" : all > (size_t)c->max_entry ? "too-large" : NULL;
}

static const char *outcome_word(const struct store_entry *e)
{
    static const char *const word[] = {"pending", "held", "delivered", "refused", "unsure"};
    return word[e->outcome];
}

static void log_entry(const struct mail_entries *m, const struct store_entry *e)
{
    char hex[ENTRYID_HEX];
    struct logline l;
    entryid_hex(e->id, hex);
    logline_begin(&l, LOG_EVENT_store, m->request.queue_id);
    LOGLINE(&l, ": id=");
    logline_field(&l, LOG_FIELD_entry_id, hex, sizeof hex);
    LOGLINE(&l, ", dest=");
    logline_field(&l, LOG_FIELD_destination, e->destination, 300);
    LOGLINE(&l, ", store=");
    logline_field(&l, LOG_FIELD_store, outcome_word(e), 16);
    LOGLINE(&l, " (");
    logline_field(&l, LOG_FIELD_reason, e->reason, 300);
    LOGLINE(&l, ")");
    logline_warn(&l);
}

void mail_entries_log(const struct mail_entries *m)
{
    char hex[ENTRYID_HEX];
    for (size_t i = 0; i < m->request.nentries; i++) {
        const struct store_entry *e = &m->request.entry[i];
        entryid_hex(e->id, hex);
        if (e->outcome == STORE_STORED)
            log_mail(LOG_LEVEL_DEBUG, m->request.queue_id, "id=%s, dest=%s, store=held", hex,
                     e->destination);
        else
            log_entry(m, e);
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

static bool said_before(const struct mail_entries *m, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        const char *before = failure_of(&m->request.entry[k]);
        if (before && !strcmp(before, failure_of(&m->request.entry[i])))
            return true;
    }
    return false;
}

void mail_entries_why(const struct mail_entries *m, char out[MAIL_ENTRIES_WHY])
{
    struct buf why = {0};
    for (size_t i = 0; i < m->request.nentries && why.len < MAIL_ENTRIES_WHY; i++) {
        const struct store_entry *e = &m->request.entry[i];
        if (!failure_of(e) || said_before(m, i))
            continue;
        buf_printf(&why, "%s%s%s%s", why.len ? "; " : "",
                   m->request.nentries > 1 ? e->destination : "",
                   m->request.nentries > 1 ? " " : "", failure_of(e));
    }
    snprintf(out, MAIL_ENTRIES_WHY, "store (%.*s)", MAIL_ENTRIES_WHY - 10,
             why.data ? why.data : "the time was over");
    tell(why.data ? why.data : "the time was over");
    buf_free(&why);
}
