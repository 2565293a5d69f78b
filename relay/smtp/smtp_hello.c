/* Greeting, EHLO or LHLO (HELO for a server that knows no EHLO, RFC 5321 section 3.2), STARTTLS
 * (RFC 3207) and EHLO again, as nothing that was said before it may be believed; XCLIENT and
 * EHLO again, too. */
#include "relay/smtp/smtp_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/config/config.h"
#include "lib/base/log.h"

#define REFUSED "host %s refused to talk to me"
/* seconds without TLS to a server whose handshake failed, where TLS may but need not be */
#define PLAIN_FOR 60.

/* EHLO or LHLO. */
static void hello(struct smtp_session *s)
{
    smtp_client_say(s, STEP_HELLO, s->lmtp ? "LHLO" : "EHLO", s->helo);
}

/* XCLIENT made us a client who may not say it again, as it does with Postfix's smtpd: another
 * client's mail would count as this one's. */
static bool taken_for_another(const struct smtp_session *s)
{
    return s->xclient && !(s->features.set & SMTP_XCLIENT);
}

void smtp_hello_ready(struct smtp_session *s)
{
    if (s->closing || taken_for_another(s)) {
        smtp_session_close(s, s->closing ? "421, the server closes the connection"
                                         : "XCLIENT works only once");
        return;
    }
    if (!smtp_client_our_turn(s))
        return;
    if (!s->was_ready) {
        s->was_ready = true;
        s->setup = clock_monotonic() - s->opened;
    }
    s->phase = SMTP_READY;
    s->events->ready(s);
    if (s->phase == SMTP_READY)
        smtp_session_wait(s, s->policy->limit[SMTP_LIMIT_IDLE]);
}

/* The connection is of no use: what was to be said on it, maybe a mail, waits. */
static void give_up(struct smtp_session *s, const char *dsn, const char *text)
{
    smtp_session_trouble(s, dsn);
    smtp_transaction_lost(s, text);
    smtp_session_close(s, text);
}

/* By the reply; dsn: NULL for the reply's own; format: what was refused, with a %s for the host. */
static void refused(struct smtp_session *s, const char *dsn, const char *format)
{
    char flat[200], what[400], text[700], own[SMTP_DSN_MAX];
    smtp_reply_flat(&s->reply, flat, sizeof flat);
    smtp_reply_dsn(&s->reply, own);
    snprintf(what, sizeof what, format, s->name);
    snprintf(text, sizeof text, "%s: %d %s", what, s->reply.code, flat);
    give_up(s, dsn ? dsn : own, text);
}

static bool good(const struct smtp_session *s)
{
    return s->reply.code / 100 == 2;
}

void smtp_greeting_reply(struct smtp_session *s, const struct smtp_step *step)
{
    if (good(s))
        hello(s);
    else
        refused(s, NULL, REFUSED);
}

/* ---- TLS ---- */

static bool tls_wanted(const struct smtp_session *s)
{
    return s->policy->tls != TLS_NONE && !s->tls &&
           (s->policy->tls != TLS_MAY || clock_monotonic() >= s->policy->plain_until);
}

/* All that is to be settled before the first mail is. */
static void settled(struct smtp_session *s)
{
    char text[400];
    if (tls_wanted(s) && (s->features.set & SMTP_STARTTLS)) {
        smtp_client_say(s, STEP_STARTTLS, "STARTTLS", "");
    } else if (s->policy->tls >= TLS_ENCRYPT && !s->tls) {
        snprintf(text, sizeof text, "TLS is required, but was not offered by host %s", s->name);
        give_up(s, "4.7.4", text);
    } else if (s->mail) {
        smtp_transaction_again(s);
    } else {
        smtp_hello_ready(s);
    }
}

void smtp_starttls_reply(struct smtp_session *s, const struct smtp_step *step)
{
    if (good(s)) {
        /* What came behind the 220 came without TLS: from whom, nobody knows (RFC 3207 section
         * 6). */
        if (smtp_client_our_turn(s))
            smtp_session_tls(s);
    } else if (s->policy->tls == TLS_MAY && s->reply.code != 421) {
        s->policy->plain_until = clock_monotonic() + PLAIN_FOR;
        settled(s);
    } else if (s->policy->tls == TLS_MAY) {
        refused(s, "4.4.2", REFUSED);
    } else {
        refused(s, NULL, "TLS is required, but STARTTLS was refused by host %s");
    }
}

void smtp_hello_handshake(struct smtp_session *s, const char *failure)
{
    char text[400];
    if (!failure) {
        tls_describe(s->tls, s->name, text, sizeof text);
        log_info("%s", text);
        hello(s);
        return;
    }
    snprintf(text, sizeof text, "cannot start TLS with %s: %s", s->name, failure);
    if (s->policy->tls != TLS_MAY) {
        give_up(s, "4.7.5", text);
        return;
    }
    log_warning("%s; going on without", text);
    s->policy->plain_until = clock_monotonic() + PLAIN_FOR;
    smtp_session_again(s);
}

/* ---- EHLO ---- */

void smtp_ehlo_reply(struct smtp_session *s, const struct smtp_step *step)
{
    s->features = (struct smtp_features){0};
    if (good(s)) {
        smtp_features_parse(&s->reply, &s->features);
        s->features.set &= ~s->policy->discard;
        settled(s);
    } else if (!s->lmtp && s->reply.code != 421) {
        smtp_client_say(s, STEP_HELO, "HELO", s->helo);
    } else {
        refused(s, NULL, REFUSED);
    }
}

void smtp_helo_reply(struct smtp_session *s, const struct smtp_step *step)
{
    if (good(s))
        settled(s);
    else
        refused(s, NULL, REFUSED);
}

/* ---- XCLIENT ---- */

void smtp_xclient_reply(struct smtp_session *s, const struct smtp_step *step)
{
    /* As after a new connection: what it offers may differ (XCLIENT_README). Refused: it knows
     * us as the client, no more. */
    if (good(s))
        hello(s);
    else
        smtp_transaction_begin(s);
}
