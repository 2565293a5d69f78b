#include "relay/delivery/bounce.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/delivery/delivery_log.h"
#include "relay/delivery/connections.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"

/* of one transaction: what our own Postfix takes (smtpd_recipient_limit) */
#define RECIPIENTS_MOST 1000
/* transactions for one mail that differ in no more than what a next hop says */
#define BOUNCES_APART 8
#define REASON_MOST 400 /* with the name well below the 998 of RFC 5322 section 2.1.1 */

char *bounce_header(const char *text)
{
    bool dsn = text && text[0] == '5' && smtp_dsn_length(text);
    struct buf out = {0};
    buf_adds(&out, dsn ? "Dovelane-Bounce: " : "Dovelane-Bounce: 5.0.0 ");
    if (!text || !*text)
        text = "delivery failed";
    for (size_t n = 0; text[n] && n < REASON_MOST; n++)
        buf_addc(&out, text[n] >= ' ' && text[n] <= '~' ? text[n] : '?');
    buf_adds(&out, "\r\n");
    return out.data;
}

char *bounce_body(const char *message, size_t len)
{
    static const char name[] = "Dovelane-Bounce:";
    const char *end = message + len;
    char *copy = NULL;
    for (const char *line = message; line < end;) {
        const char *lf = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((lf ? lf : end) - line);
        if (!n || (n == 1 && *line == '\r'))
            break; /* the end of the header */
        /* Postfix's tables compare without case. */
        if (n >= strlen(name) && !strncasecmp(line, name, strlen(name))) {
            if (!copy)
                copy = mem_dup(message, len);
            copy[line - message] = 'X';
        }
        line += n + 1;
    }
    return copy;
}

static bool due(const struct entry *e, size_t i)
{
    return e->envelope.recipient[i].state == RECIPIENT_FAILED && !(e->tried[i] & TRIED_BOUNCE);
}

static size_t next_due(const struct entry *e, size_t from)
{
    while (from < e->envelope.nrecipients && !due(e, from))
        from++;
    return from;
}

bool bounce_wanted(const struct entry *e)
{
    return next_due(e, 0) < e->envelope.nrecipients;
}

/* Still failed, still not bounced: tried again by the schedule. */
static void count_try(struct entry *e, size_t i)
{
    e->envelope.recipient[i].attempts++;
    e->envelope.recipient[i].last_attempt = clock_wall();
    e->dirty = e->attempted = true;
}

static void without_port(struct entry *e)
{
    for (size_t i = 0; i < e->envelope.nrecipients; i++) {
        if (!due(e, i))
            continue;
        e->tried[i] |= TRIED_BOUNCE;
        count_try(e, i);
        log_mail(LOG_LEVEL_WARNING, entry_queue_id(e),
                 "to=<%s>: cannot be bounced, bounce_port is not set; stays in lane=%s",
                 e->envelope.recipient[i].address, e->lane->name);
    }
}

/* What is said without whom it is said of: next hops name the address (Postfix: "<a@b>:
 * Recipient address rejected"), and a transaction for each recipient would carry the message as
 * often. */
static char *plain_reason(const struct recipient *r)
{
    const char *text = r->text ? r->text : "", *address = r->address;
    size_t n = address ? strlen(address) : 0;
    struct buf out = {0};
    while (*text) {
        const char *at = n ? strcasestr(text, address) : NULL;
        buf_add(&out, text, at ? (size_t)(at - text) : strlen(text));
        if (at)
            buf_adds(&out, "recipient");
        text = at ? at + n : text + strlen(text);
    }
    buf_addc(&out, '\0');
    return out.data;
}

/* The first word: the enhanced status code. */
static bool same_code(const char *a, const char *b)
{
    size_t n = strcspn(a, " ");
    return n && n == strcspn(b, " ") && !strncmp(a, b, n);
}

/* After so many in one round, what else was refused with one code goes together: a next hop that
 * says something of its own for each recipient (an id of its session) must not cost a
 * transaction for each. */
static bool goes_along(const struct entry *e, const char *reason, const struct recipient *r)
{
    char *other = plain_reason(r);
    bool along =
        !strcmp(reason, other) || (e->bounces >= BOUNCES_APART && same_code(reason, other));
    free(other);
    return along;
}

bool bounce_submit(struct entry *e, void (*done)(struct smtp_mail *, const char *relay))
{
    e->at = destination_bounce(e->relay);
    if (!e->at) {
        without_port(e);
        return false;
    }
    size_t first = next_due(e, 0), n = 0,
           most = e->envelope.nrecipients < RECIPIENTS_MOST ? e->envelope.nrecipients
                                                            : RECIPIENTS_MOST;
    ASSERT(first < e->envelope.nrecipients);
    struct smtp_rcpt *rcpt = mem_alloc(most * sizeof *rcpt);
    char *reason = plain_reason(&e->envelope.recipient[first]);
    for (size_t i = first; i < e->envelope.nrecipients && n < most; i = next_due(e, i + 1)) {
        if (!goes_along(e, reason, &e->envelope.recipient[i]))
            continue;
        rcpt[n++] = (struct smtp_rcpt){.index = i};
        e->tried[i] |= TRIED_BOUNCE;
    }
    e->bounces++;
    e->state = ENTRY_BOUNCING;
    entry_set_mail(e, rcpt, n, done);
    free(e->head);
    e->head = bounce_header(n > 1 ? reason : e->envelope.recipient[first].text);
    free(reason);
    if (!e->body)
        e->body = bounce_body(e->mail.body, e->mail.body_len);
    if (e->body)
        e->mail.body = e->body;
    e->mail.head = e->head;
    e->mail.head_len = strlen(e->head);
    destination_submit(e->at, &e->mail);
    return true;
}

const char *bounce_cure(const char *reason)
{
    if (strcasestr(reason, "too many hops"))
        return "; it has gone in circles. Add -o hopcount_limit=1000 to that port's smtpd, and to "
               "a cleanup service of its own, as examples/master.cf has it";
    if (strstr(reason, "5.3.4"))
        return "; it is larger than this Postfix takes. Add -o message_size_limit=0 to that port's "
               "smtpd, and to a cleanup service of its own, as examples/master.cf has it";
    return "";
}

void bounce_results(struct entry *e, const char *relay)
{
    for (size_t i = 0; i < e->mail.nrcpt; i++) {
        const struct smtp_rcpt *from = &e->mail.rcpt[i];
        struct recipient *to = &e->envelope.recipient[from->index];
        if (from->verdict == SMTP_SENT) {
            to->state = RECIPIENT_BOUNCED;
            e->dirty = true;
            metric_add(relay_bounced, 1);
            delivery_log_bounced(e, to, relay, from->text);
            continue;
        }
        if (from->verdict == SMTP_UNTRIED && e->leave)
            continue; /* we stop */
        count_try(e, from->index);
        const char *reason = from->text       ? from->text
                             : e->at->trouble ? e->at->trouble
                                              : "no connection";
        delivery_log_stays(e, to, relay, "the bounce port", reason, bounce_cure(reason));
    }
}
