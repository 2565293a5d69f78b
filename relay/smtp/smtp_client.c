/* The protocol's table: every command, what we hope to hear, how long we wait, and what then. A
 * mail's part of it is
 *
 *   XFORWARD 2xx*  MAIL 2xx  RCPT 2xx..  ┬ DATA 3xx ─ message ┬─ 2xx (LMTP: one for each accepted RCPT)
 *                                        └ BDAT message ──────┘
 *   anything refused: its recipients have their result; RSET when MAIL was accepted, and ready
 *   again */
#include "lib/base/assert.h"
#include "relay/smtp/smtp_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name;  /* "(in reply to ...)", as Postfix words it */
    const char *doing; /* "lost connection with ... while ..." */
    enum smtp_limit limit;
    int good; /* the first digit that we hope for; 4 and 5 refuse; anything else is nonsense */
    void (*then)(struct smtp_session *, const struct smtp_step *);
} command[] = {
    [STEP_GREETING] = {"connection", "receiving the initial server greeting", SMTP_LIMIT_HELO, 2,
                       smtp_greeting_reply},
    [STEP_HELLO] = {"EHLO command", "performing the EHLO handshake", SMTP_LIMIT_HELO, 2,
                    smtp_ehlo_reply},
    [STEP_HELO] = {"HELO command", "performing the HELO handshake", SMTP_LIMIT_HELO, 2,
                   smtp_helo_reply},
    [STEP_STARTTLS] = {"STARTTLS command", "sending STARTTLS", SMTP_LIMIT_STARTTLS, 2,
                       smtp_starttls_reply},
    [STEP_XCLIENT] = {"XCLIENT command", "sending XCLIENT", SMTP_LIMIT_XFORWARD, 2,
                      smtp_xclient_reply},
    [STEP_XFORWARD] = {"XFORWARD command", "sending XFORWARD", SMTP_LIMIT_XFORWARD, 2,
                       smtp_xforward_reply},
    [STEP_MAIL] = {"MAIL FROM command", "sending MAIL FROM", SMTP_LIMIT_MAIL, 2, smtp_mail_reply},
    [STEP_RCPT] = {"RCPT TO command", "sending RCPT TO", SMTP_LIMIT_RCPT, 2, smtp_rcpt_reply},
    [STEP_DATA] = {"DATA command", "sending DATA command", SMTP_LIMIT_DATA_INIT, 3,
                   smtp_data_reply},
    [STEP_BDAT] = {"BDAT command", "sending BDAT", SMTP_LIMIT_DATA_DONE, 2, smtp_message_reply},
    [STEP_MESSAGE] = {"end of DATA command", "sending end of data", SMTP_LIMIT_DATA_DONE, 2,
                      smtp_message_reply},
    [STEP_RSET] = {"RSET command", "sending RSET", SMTP_LIMIT_RSET, 2, smtp_rset_reply},
};

const char *smtp_client_command(enum smtp_step_kind kind)
{
    return command[kind].name;
}

/* The step that the next reply is for. */
static const struct smtp_step *awaited(const struct smtp_session *s)
{
    ASSERT(s->got < s->nsteps);
    return &s->step[s->got];
}

/* ---- saying ---- */

bool smtp_client_our_turn(struct smtp_session *s)
{
    if (!s->input_left && !smtp_reply_begun(&s->reply))
        return true;
    smtp_client_lost(s, "replies out of turn");
    return false;
}

void smtp_client_block(struct smtp_session *s)
{
    /* What of the last block has left is answered. */
    ASSERT(s->got == s->nsteps || s->step[s->got].end > s->out_done);
    buf_consume(&s->out, s->out.len);
    s->out_done = s->out_allowed = 0;
    s->nsteps = s->got = 0;
    s->phase = SMTP_TALKING;
}

void smtp_client_step(struct smtp_session *s, enum smtp_step_kind kind, size_t rcpt)
{
    if (s->nsteps == s->step_size) {
        s->step_size = s->step_size ? 2 * s->step_size : 8;
        s->step = mem_grow(s->step, s->step_size * sizeof *s->step);
    }
    s->step[s->nsteps++] = (struct smtp_step){kind, rcpt, s->out.len};
}

void smtp_client_await(struct smtp_session *s)
{
    const struct smtp_step *step = awaited(s);
    enum smtp_limit limit = command[step->kind].limit;
    if (step->kind == STEP_MESSAGE && !s->message_out)
        limit = SMTP_LIMIT_DATA_XFER;
    else if (step->kind == STEP_MESSAGE && step->rcpt == STEP_NOBODY)
        limit = SMTP_LIMIT_RSET;
    smtp_session_wait(s, s->policy->limit[limit]);
}

void smtp_client_say(struct smtp_session *s, enum smtp_step_kind kind, const char *verb,
                     const char *arg)
{
    if (!smtp_client_our_turn(s))
        return;
    smtp_client_block(s);
    buf_printf(&s->out, "%s%s%s\r\n", verb, *arg ? " " : "", arg);
    smtp_client_step(s, kind, STEP_NOBODY);
    s->out_allowed = s->out.len;
    smtp_client_await(s);
    smtp_session_flush(s);
}

/* ---- hearing ---- */

void smtp_client_connected(struct smtp_session *s)
{
    smtp_client_block(s);
    smtp_client_step(s, STEP_GREETING, STEP_NOBODY);
    smtp_client_await(s);
}

void smtp_client_written(struct smtp_session *s)
{
    s->message_out = true;
    smtp_client_await(s);
}

static void said_while_idle(struct smtp_session *s)
{
    char flat[200], text[300];
    smtp_reply_flat(&s->reply, flat, sizeof flat);
    snprintf(text, sizeof text, "said while idle: %d %s", s->reply.code, flat);
    smtp_session_close(s, text);
}

void smtp_client_reply(struct smtp_session *s)
{
    if (s->phase == SMTP_READY) {
        said_while_idle(s);
        return;
    }
    if (s->phase != SMTP_TALKING)
        return;
    const struct smtp_step step = *awaited(s);
    int class = s->reply.code / 100;
    bool sane = class == command[step.kind].good || class == 4 || class == 5;
    if (!sane || step.end > s->out_done) {
        smtp_client_lost(s, "replies out of turn");
    } else if (step.kind == STEP_MESSAGE && !s->message_out) {
        smtp_transaction_early(s);
    } else if (s->reply.code != 421 || !s->mail || !smtp_transaction_busy(s)) {
        s->got++;
        command[step.kind].then(s, &step);
    }
}

/* ---- losing ---- */

static void doing(const struct smtp_session *s, char *out, size_t size)
{
    const char *what = s->phase == SMTP_HANDSHAKE ? "performing the TLS handshake" : "waiting";
    bool open = false;
    if (s->phase == SMTP_TALKING && s->got < s->nsteps) {
        enum smtp_step_kind kind = awaited(s)->kind;
        what = kind == STEP_HELLO && s->lmtp             ? "performing the LHLO handshake"
               : kind == STEP_MESSAGE && !s->message_out ? "sending message body"
                                                         : command[kind].doing;
    }
    for (size_t i = 0; s->mail && s->message_out && i < s->mail->nrcpt; i++)
        open = open || s->mail->rcpt[i].verdict == SMTP_UNTRIED;
    snprintf(out, size, "%s%s", what, open ? " -- message may be sent more than once" : "");
}

void smtp_client_lost(struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CLOSED)
        return;
    smtp_session_enter(s);
    char what[128], *text;
    doing(s, what, sizeof what);
    if (s->phase != SMTP_CONNECTING)
        smtp_session_trouble(s, "4.4.2");
    if (s->phase == SMTP_CONNECTING && s->policy->unusable) {
        smtp_session_trouble(s, "4.7.5");
        text = mem_printf("cannot start TLS with %s: %s", s->name, why);
    } else if (s->phase == SMTP_CONNECTING)
        text = mem_printf("connect to %s: %s", s->name, why);
    else if (s->phase == SMTP_READY)
        text = mem_printf("%s with %s while idle", why, s->name);
    else
        text = mem_printf("%s with %s while %s", why, s->name, what);
    smtp_transaction_lost(s, text);
    smtp_session_close(s, text);
    free(text);
    smtp_session_leave(s);
}
