#include "relay/delivery/reinject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/delivery/bounce.h"
#include "relay/delivery/delivery_log.h"
#include "relay/tables/destinations.h"

#define PAUSE 5. /* seconds after Postfix did not take one */
/* refusals for good, none taken between them: then it is the port and not the mails */
#define ROW 20
#define REFUSED 1000    /* mails of which it is known that Postfix refused them */
#define REFUSED_FOR 60. /* seconds for which that counts */

struct refusal {
    unsigned char id[ENTRYID_LEN];
    double until; /* clock_monotonic */
};

/* What Postfix takes never must not keep back what lies behind it. */
struct reinject {
    struct refusal refused[REFUSED];
    size_t next_refusal, row;
    double refused_until; /* the latest of them */
    double pause_until;
};

bool reinject_able(const struct relay *r)
{
    return *r->config->reinject_port && clock_monotonic() >= r->reinject->pause_until;
}

/* ---- what Postfix refused ---- */

static void remember_refusal(struct reinject *j, const struct entry *e)
{
    struct refusal *r = &j->refused[j->next_refusal++ % REFUSED];
    memcpy(r->id, e->id, ENTRYID_LEN);
    j->refused_until = r->until = clock_monotonic() + REFUSED_FOR;
}

bool reinject_refused(const struct relay *relay, const void *id)
{
    const struct reinject *j = relay->reinject;
    double now = clock_monotonic();
    for (size_t i = 0; now < j->refused_until && i < REFUSED; i++)
        if (now < j->refused[i].until && !memcmp(j->refused[i].id, id, ENTRYID_LEN))
            return true;
    return false;
}

/* ---- results ---- */

static void log_refused(const struct entry *e, const struct recipient *to, const char *relay,
                        const struct smtp_rcpt *from, const char *reason)
{
    char hint[400];
    snprintf(hint, sizeof hint, "%s%s",
             from->verdict == SMTP_UNKNOWN ? ", may be sent more than once" : "",
             bounce_cure(reason));
    delivery_log_stays(e, to, relay, "reinject_port", reason, hint);
}

void reinject_results(struct entry *e, const char *relay)
{
    struct reinject *j = e->relay->reinject;
    for (size_t i = 0; i < e->mail.nrcpt; i++) {
        const struct smtp_rcpt *from = &e->mail.rcpt[i];
        struct recipient *to = &e->envelope.recipient[from->index];
        if (from->verdict == SMTP_SENT) {
            delivery_log_spilled(e, to, relay, from->text);
            to->state = RECIPIENT_SENT;
            free(to->text);
            to->text = mem_strdup(from->text);
            e->dirty = e->sent = true;
            j->row = 0;
            metric_add(relay_spilled, 1);
            if (e->spill == SPILL_POISON) {
                metric_add(relay_poison_held, 1);
                log_mail(LOG_LEVEL_WARNING, entry_queue_id(e),
                         "to=<%.256s>: relays died %lld times with this mail in hand; given "
                         "to Postfix's hold queue (%.300s): see postqueue -p, "
                         "let it go with postsuper -H",
                         to->address, e->failed_leases, from->text);
            }
            continue;
        }
        if (from->verdict == SMTP_UNKNOWN) {
            free(to->text);
            to->text = mem_printf("%s " DELIVERY_UNKNOWN "%s", from->dsn, from->text);
            e->dirty = e->sent = true;
        }
        const char *reason = from->text       ? from->text
                             : e->at->trouble ? e->at->trouble
                                              : "no connection";
        bool this_one = from->verdict == SMTP_FAILED && ++j->row < ROW;
        if (from->verdict == SMTP_FAILED)
            remember_refusal(j, e);
        /* Once per pause, unless it is for the mail's own sake. */
        if (this_one || clock_monotonic() >= j->pause_until)
            log_refused(e, to, relay, from, reason);
        if (!this_one)
            j->pause_until = clock_monotonic() + PAUSE;
        e->leave = true;
    }
}

struct reinject *reinject_open(void)
{
    return mem_zero(sizeof(struct reinject));
}

void reinject_close(struct reinject *j)
{
    free(j);
}
