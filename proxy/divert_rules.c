#include "proxy/divert_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/mail/address.h"
#include "lib/postfix/postfix.h"
#include "proxy/proxy.h"
#include "lib/ingress/reasons.h"
#include "lib/ingress/divert_switch.h"

static bool too_large(const struct engine *e)
{
    char *size = envelope_arg(e->sender.args, "SIZE");
    bool large = size && strtoull(size, NULL, 10) > (unsigned long long)proxy.config->max_entry;
    free(size);
    return large;
}

/* Why this recipient is Postfix's; sets its destination when it is not. */
static const char *judge(const struct engine *e, struct mail_recipient *r, const char *delimiter,
                         char detail[RULES_DETAIL])
{
    const char *address = r->r.address, *why = NULL;
    bool plain = address && address_plain(address, e->utf8);
    const char *hop = plain ? route_of(proxy.route, address, delimiter) : NULL;
    if (!hop) {
        why = plain ? "no-route" : "rewritten";
        snprintf(detail, RULES_DETAIL, "to=<%.256s>", address ? address : r->given);
    } else {
        why = reasons_of_recipient(proxy.config, hop, address, r->r.args, detail, RULES_DETAIL);
    }
    if (!why)
        r->destination = mem_strdup(hop);
    return why;
}

static const char *of_all(const struct engine *e, char detail[RULES_DETAIL])
{
    const char *source = e->xforward[XFORWARD_SOURCE];
    const char *reason = reasons_of_all(divert_switch_on(), detail, RULES_DETAIL);
    if (reason)
        return reason;
    if (!e->sender.plain || (*e->sender.address && !address_plain(e->sender.address, e->utf8))) {
        snprintf(detail, RULES_DETAIL, "%.300s", e->mail_line);
        return "rewritten";
    }
    /* Postfix completes the header of such a mail: missing lines, addresses without domains
     * (local_header_rewrite_clients). */
    if (source && !strcasecmp(source, "LOCAL") &&
        !config_list_has(&proxy.config->ignore, "local_header_rewrite_clients"))
        return "local";
    if (too_large(e)) {
        snprintf(detail, RULES_DETAIL, "max_entry");
        return "too-large";
    }
    return NULL;
}

size_t rules_diverted(const struct engine *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->nrecipients; i++)
        n += e->recipient[i].destination != NULL;
    return n;
}

static void take_away(struct mail_recipient *r)
{
    free(r->destination);
    r->destination = NULL;
}

/* An address that was given more than once: when Postfix has to do with one giving (it asks for
 * a notice, is written otherwise), all are Postfix's, else both would deliver. */
static void share_fate(struct engine *e)
{
    for (size_t i = 0; i < e->nrecipients; i++) {
        const char *address = e->recipient[i].r.address;
        bool postfix = false;
        if (!e->recipient[i].again)
            continue;
        for (size_t k = 0; k < e->nrecipients; k++)
            postfix |= engine_same(&e->recipient[k], address) && !e->recipient[k].destination;
        for (size_t k = 0; k < e->nrecipients && postfix; k++)
            if (engine_same(&e->recipient[k], address))
                take_away(&e->recipient[k]);
    }
}

const char *rules_envelope(struct engine *e, char detail[RULES_DETAIL])
{
    const char *reason = of_all(e, detail), *first = NULL;
    char about[RULES_DETAIL], delimiter[POSTFIX_DELIMITER];
    postfix_delimiter(delimiter);
    for (size_t i = 0; i < e->nrecipients && !reason; i++) {
        const char *why = judge(e, &e->recipient[i], delimiter, about);
        if (why && !first) {
            first = why;
            memcpy(detail, about, sizeof about);
        }
    }
    share_fate(e);
    return reason ? reason : first;
}

const char *rules_maps(struct engine *e, char detail[RULES_DETAIL])
{
    char about[400];
    /* 0: what is not known by now could not be found out in time, and is not asked for here, on
     * the loop. */
    bool sender = reasons_of_maps(MAPS_SENDER, e->sender.address, 0, about, sizeof about),
         first = true;
    for (size_t i = 0; i < e->nrecipients; i++) {
        struct mail_recipient *r = &e->recipient[i];
        if (!r->destination || r->again ||
            !(sender || reasons_of_maps(MAPS_RECIPIENT, r->r.address, 0, about, sizeof about)))
            continue;
        take_away(r);
        if (first)
            snprintf(detail, RULES_DETAIL, "%s", about);
        first = false;
    }
    share_fate(e);
    return first ? NULL : "map";
}

const char *rules_content(const struct engine *e)
{
    const struct content *c = &e->content;
    return c->long_line                                                    ? "long-line"
           : c->bare_cr                                                    ? "bare-cr"
           : c->odd_header || content_odd_parts(e->body.data, e->body.len) ? "odd-header"
           : c->hops >= c->header->hops                                    ? "hops"
                                                                           : NULL;
}
