#include "deposit.h"

#include <stdlib.h>
#include <string.h>

#include "holds.h"
#include "log.h"

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

static void encode_entry(struct deposit *d, const struct envelope *envelope, const struct mail_recipient *recipient, size_t n, const char *destination,
                         struct buf *out)
{
    struct envelope e = *envelope; /* borrows its texts */
    e.size = d->request.body_len;
    e.recipient = mem_alloc(n * sizeof *e.recipient);
    e.nrecipients = 0;
    for (size_t i = 0; i < n; i++)
        if (!recipient[i].again && recipient[i].destination && !strcmp(recipient[i].destination, destination))
            e.recipient[e.nrecipients++] = recipient[i].r;
    const char *unfit = envelope_unfit(&e);
    if (holds_fit(&(struct match_facts){.envelope = &e, .destination = destination, .arg = d, .message = message_of})) {
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

void deposit_make(struct deposit *d, const struct envelope *e, const struct mail_recipient *recipient, size_t n, const char *body, size_t len)
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
    return e->outcome == STORE_HELD || e->outcome == STORE_DELIVERED;
}

size_t deposit_count_done(const struct deposit *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->request.nentries; i++)
        n += deposit_done(&d->request.entry[i]);
    return n;
}

size_t deposit_count_delivered(const struct deposit *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->request.nentries; i++)
        n += d->request.entry[i].outcome == STORE_DELIVERED;
    return n;
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
        if (e->outcome == STORE_HELD)
            log_debug("%s: id=%s, dest=%s, store=held", d->request.queue_id, hex, e->destination);
        else
            log_warning("%s: id=%s, dest=%s, store=%s (%s)", d->request.queue_id, hex, e->destination, outcome_word(e), e->reason);
    }
}
