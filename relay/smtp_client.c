/* The protocol. A mail's commands are written as one block; each has a step that says what the reply with its
 * number answers. With PIPELINING the block leaves at once, else only up to the next command; the rest is the
 * same. */
#include "smtp_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smtp_compose.h"

/* ---- results ---- */

static void set_result(struct smtp_rcpt *r, enum smtp_verdict verdict, int code, const char *dsn,
                       const char *text)
{
    r->verdict = verdict;
    r->code = code;
    memcpy(r->dsn, dsn, strlen(dsn) + 1);
    free(r->text);
    r->text = mem_strndup(text, strnlen(text, SMTP_TEXT_MAX));
}

void smtp_rcpts_clear(struct smtp_rcpt *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(r[i].text);
}

void smtp_mail_refuse(struct smtp_mail *m, enum smtp_verdict verdict, const char *dsn, const char *reason)
{
    for (size_t i = 0; i < m->nrcpt; i++)
        if (m->rcpt[i].verdict == SMTP_UNTRIED)
            set_result(&m->rcpt[i], verdict, 0, dsn, reason);
}

static enum smtp_verdict verdict_of(int code)
{
    return code < 300 ? SMTP_SENT : code < 500 ? SMTP_DEFERRED : SMTP_FAILED;
}

/* "host mx[192.0.2.1]:25 said: 550 5.1.1 unknown (in reply to RCPT TO command)"; a success is the reply
 * alone. */
static void reply_text(const struct smtp_session *s, const char *to, char *out, size_t size)
{
    char flat[SMTP_TEXT_MAX];
    smtp_reply_flat(&s->reply, flat, sizeof flat);
    const char *blank = *flat ? " " : "";
    if (s->reply.code < 300)
        snprintf(out, size, "%d%s%s", s->reply.code, blank, flat);
    else
        snprintf(out, size, "host %s said: %d%s%.300s (in reply to %s)", s->name, s->reply.code, blank, flat,
                 to);
}

static void answer_one(const struct smtp_session *s, struct smtp_rcpt *r, const char *to)
{
    char text[2 * SMTP_TEXT_MAX], dsn[SMTP_DSN_MAX];
    reply_text(s, to, text, sizeof text);
    smtp_reply_dsn(&s->reply, dsn);
    set_result(r, verdict_of(s->reply.code), s->reply.code, dsn, text);
}

static void answer_all(const struct smtp_session *s, const char *to)
{
    for (size_t i = 0; i < s->mail->nrcpt; i++)
        if (s->mail->rcpt[i].verdict == SMTP_UNTRIED)
            answer_one(s, &s->mail->rcpt[i], to);
}

/* ---- end of a session ---- */

static const char *doing(const struct smtp_session *s)
{
    static const char *const step[] = {"XFORWARD", "MAIL FROM", "RCPT TO", "DATA command"};
    switch (s->phase) {
    case SMTP_GREETING: return "receiving the initial server greeting";
    case SMTP_HELLO: return s->lmtp ? "performing the LHLO handshake" : "performing the EHLO handshake";
    case SMTP_HELO: return "performing the HELO handshake";
    case SMTP_COMMANDS: return s->got < s->nsteps ? step[s->step[s->got].kind] : "DATA command";
    case SMTP_BODY: return "message body";
    case SMTP_FINAL: return "end of data -- message may be sent more than once";
    case SMTP_EMPTY: return "end of data";
    case SMTP_RESET: return "RSET";
    default: return "nothing";
    }
}

/* The text for a loss, as Postfix words it. */
static char *loss_text(const struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CONNECTING)
        return mem_printf("connect to %s: %s", s->name, why);
    if (s->phase == SMTP_READY)
        return mem_printf("%s with %s while idle", why, s->name);
    bool command = s->phase == SMTP_COMMANDS || s->phase == SMTP_BODY || s->phase == SMTP_FINAL;
    return mem_printf("%s with %s while %s%s", why, s->name, command ? "sending " : "", doing(s));
}

/* The mail has its results, or is stale. */
static void mail_over(struct smtp_session *s)
{
    struct smtp_mail *m = s->mail;
    s->mail = NULL;
    s->mails++;
    s->events->done(s, m);
}

void smtp_client_lost(struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CLOSED)
        return;
    smtp_session_enter(s);
    char *text = loss_text(s, why);
    struct smtp_mail *m = s->mail;
    if (m) {
        /* A connection that was kept for reuse may have been closed by the server before it read our MAIL
         * (RFC 5321 section 3.8): then nothing was tried. */
        m->stale = s->phase == SMTP_COMMANDS && s->got == 0 && s->mails > 0;
        if (!m->stale)
            smtp_mail_refuse(m, s->phase == SMTP_FINAL ? SMTP_UNKNOWN : SMTP_DEFERRED, "4.4.2", text);
        mail_over(s);
    }
    smtp_session_close(s, text);
    free(text);
    smtp_session_leave(s);
}

void smtp_drop(struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CLOSED)
        return;
    smtp_session_enter(s);
    if (s->mail) {
        if (s->phase == SMTP_FINAL)
            smtp_mail_refuse(s->mail, SMTP_UNKNOWN, "4.4.2", why);
        mail_over(s);
    }
    smtp_session_close(s, why);
    smtp_session_leave(s);
}

void smtp_quit(struct smtp_session *s)
{
    /* Its answer is not waited for: it could change nothing. */
    if (s->phase == SMTP_READY && send(s->fd, "QUIT\r\n", 6, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        s->broken = true;
    smtp_session_close(s, "idle");
}

/* ---- greeting and EHLO ---- */

void smtp_client_connected(struct smtp_session *s)
{
    s->phase = SMTP_GREETING;
    smtp_session_wait(s, s->limits.command);
}

static void say(struct smtp_session *s, const char *verb, const char *arg)
{
    buf_consume(&s->out, s->out.len);
    buf_printf(&s->out, "%s%s%s\r\n", verb, *arg ? " " : "", arg);
    s->out_done = 0;
    s->out_allowed = s->out.len;
    smtp_session_wait(s, s->limits.command);
    smtp_session_flush(s);
}

static void go_ready(struct smtp_session *s)
{
    /* Bytes behind the last reply would be taken for the answer to the next command. */
    if (s->input_left || smtp_reply_begun(&s->reply)) {
        s->phase = SMTP_READY;
        smtp_client_lost(s, "replies out of turn");
        return;
    }
    if (!s->was_ready) {
        s->was_ready = true;
        s->setup = clock_monotonic() - s->opened;
    }
    s->phase = SMTP_READY;
    s->events->ready(s);
    if (s->phase == SMTP_READY)
        smtp_session_wait(s, s->limits.idle);
}

static void refused(struct smtp_session *s)
{
    char flat[200], text[400];
    smtp_reply_flat(&s->reply, flat, sizeof flat);
    snprintf(text, sizeof text, "host %s refused to talk to me: %d %s", s->name, s->reply.code, flat);
    smtp_session_close(s, text);
}

static void hello_reply(struct smtp_session *s)
{
    int code = s->reply.code;
    if (s->phase == SMTP_GREETING && s->input_left) {
        smtp_client_lost(s, "replies out of turn");
    } else if (s->phase == SMTP_GREETING && code / 100 == 2) {
        s->phase = SMTP_HELLO;
        say(s, s->lmtp ? "LHLO" : "EHLO", s->helo);
    } else if (s->phase == SMTP_HELLO && code / 100 == 5 && !s->lmtp) {
        s->phase = SMTP_HELO;
        say(s, "HELO", s->helo);
    } else if (s->phase != SMTP_GREETING && code / 100 == 2) {
        if (s->phase == SMTP_HELLO)
            smtp_features_parse(&s->reply, &s->features);
        go_ready(s);
    } else {
        refused(s);
    }
}

/* ---- a mail's commands ---- */

static struct smtp_step *add_step(struct smtp_session *s, enum smtp_step_kind kind, size_t rcpt)
{
    if (s->nsteps == s->step_size) {
        s->step_size = s->step_size ? 2 * s->step_size : 8;
        s->step = mem_grow(s->step, s->step_size * sizeof *s->step);
    }
    struct smtp_step *step = &s->step[s->nsteps++];
    *step = (struct smtp_step){kind, rcpt, s->out.len};
    return step;
}

static void compose(struct smtp_session *s)
{
    const struct smtp_mail *m = s->mail;
    buf_consume(&s->out, s->out.len);
    s->nsteps = s->got = 0;
    if (smtp_compose_xforward_client(&s->out, m->envelope, &s->features))
        add_step(s, STEP_XFORWARD, 0);
    if (smtp_compose_xforward_session(&s->out, m->envelope, &s->features))
        add_step(s, STEP_XFORWARD, 0);
    smtp_compose_mail(&s->out, m->envelope, &s->features, m->head_len + m->body_len);
    add_step(s, STEP_MAIL, 0);
    for (size_t i = 0; i < m->nrcpt; i++) {
        smtp_compose_rcpt(&s->out, &m->envelope->recipient[m->rcpt[i].index], &s->features);
        add_step(s, STEP_RCPT, i);
    }
    buf_adds(&s->out, "DATA\r\n");
    add_step(s, STEP_DATA, 0);
    s->out_done = 0;
    s->out_allowed = s->features.set & SMTP_PIPELINING ? s->out.len : s->step[0].end;
}

/* NULL when this server can take the mail, else why not, in text. */
static const char *unfit(const struct smtp_session *s, const struct smtp_mail *m, char *text, size_t size)
{
    if (s->features.size_limit && m->head_len + m->body_len > s->features.size_limit) {
        snprintf(text, size, "message size %zu exceeds size limit %llu of server %s",
                 m->head_len + m->body_len, (unsigned long long)s->features.size_limit, s->name);
        return "5.3.4";
    }
    if ((s->features.set & SMTP_UTF8) || !smtp_asks_utf8(m->envelope))
        return NULL;
    size_t *index = mem_alloc(m->nrcpt * sizeof *index);
    for (size_t i = 0; i < m->nrcpt; i++)
        index[i] = m->rcpt[i].index;
    bool needed = smtp_needs_utf8(m->envelope, index, m->nrcpt, m->body, m->body_len);
    free(index);
    if (!needed)
        return NULL;
    snprintf(text, size, "SMTPUTF8 is required, but was not offered by host %s", s->name);
    return "5.6.7";
}

bool smtp_send(struct smtp_session *s, struct smtp_mail *m)
{
    char text[SMTP_TEXT_MAX];
    m->begun = clock_monotonic();
    m->setup = s->mails ? 0. : s->setup;
    m->stale = false;
    const char *dsn = unfit(s, m, text, sizeof text);
    if (dsn) {
        smtp_mail_refuse(m, SMTP_FAILED, dsn, text);
        return false;
    }
    for (size_t i = 0; i < m->nrcpt; i++)
        m->rcpt[i].accepted = false;
    s->mail = m;
    s->accepted = 0;
    s->mail_open = false;
    s->final_next = 0;
    s->phase = SMTP_COMMANDS;
    compose(s);
    smtp_session_wait(s, s->limits.command);
    smtp_session_flush(s);
    return true;
}

/* The mail is over without a dot: the transaction that MAIL opened is ended by RSET. */
static void finish(struct smtp_session *s)
{
    bool reset = s->mail_open;
    mail_over(s);
    if (s->phase == SMTP_CLOSED)
        return;
    if (reset) {
        s->phase = SMTP_RESET;
        s->mail_open = false;
        say(s, "RSET", "");
    } else {
        go_ready(s);
    }
}

static void data_reply(struct smtp_session *s)
{
    if (s->reply.code / 100 != 3) {
        answer_all(s, "DATA command");
        finish(s);
        return;
    }
    if (s->input_left) {
        smtp_client_lost(s, "replies out of turn");
        return;
    }
    if (!s->accepted) {
        /* With LMTP a dot for nobody has no reply at all (RFC 2033 section 4.2), so nothing tells when it is
         * over. */
        if (s->lmtp) {
            smtp_client_lost(s, "DATA was accepted without recipients");
            return;
        }
        s->phase = SMTP_EMPTY;
        say(s, ".", "");
        return;
    }
    s->phase = SMTP_BODY;
    smtp_session_body(s);
    smtp_session_wait(s, s->limits.command);
    smtp_session_flush(s);
}

static void step_reply(struct smtp_session *s, const struct smtp_step *step)
{
    bool good = s->reply.code / 100 == 2;
    switch (step->kind) {
    case STEP_XFORWARD:
        /* What it would have said is missing in the next hop's log, no more. */
        break;
    case STEP_MAIL:
        s->mail_open = good;
        if (!good)
            answer_all(s, "MAIL FROM command");
        break;
    case STEP_RCPT:
        if (!good || !s->mail_open) {
            if (s->mail->rcpt[step->rcpt].verdict == SMTP_UNTRIED)
                answer_one(s, &s->mail->rcpt[step->rcpt], "RCPT TO command");
        } else {
            s->mail->rcpt[step->rcpt].accepted = true;
            s->accepted++;
        }
        break;
    case STEP_DATA: break;
    }
}

/* Without PIPELINING: the next command, or none when the transaction is lost already. */
static void next_command(struct smtp_session *s)
{
    const struct smtp_step *step = &s->step[s->got];
    bool after_mail = step->kind == STEP_RCPT || step->kind == STEP_DATA;
    if ((after_mail && !s->mail_open) || (step->kind == STEP_DATA && !s->accepted)) {
        finish(s);
        return;
    }
    s->out_allowed = step->end;
    smtp_session_flush(s);
}

static void command_reply(struct smtp_session *s)
{
    const struct smtp_step *step = &s->step[s->got];
    int nonsense = step->kind == STEP_DATA ? 2 : 3;
    if (step->end > s->out_done || s->reply.code / 100 == nonsense) {
        smtp_client_lost(s, "replies out of turn");
        return;
    }
    smtp_session_wait(s, s->limits.command);
    if (s->reply.code == 421) {
        if (s->got == 0 && s->mails > 0)
            s->mail->stale = true;
        else
            answer_all(s, doing(s));
        mail_over(s);
        smtp_session_close(s, "421, the server closes the connection");
        return;
    }
    s->got++;
    if (step->kind == STEP_DATA) {
        data_reply(s);
        return;
    }
    step_reply(s, step);
    if (s->out_allowed < s->out.len)
        next_command(s);
}

/* ---- the message and its answers ---- */

void smtp_client_written(struct smtp_session *s)
{
    s->phase = SMTP_FINAL;
    smtp_session_wait(s, s->limits.final);
}

/* The server speaks before it has the whole message. An error is its answer (a limit was passed), and ends
 * the connection as we are not going on; anything else is nonsense. With LMTP it is not clear for whom it
 * speaks. */
static void early_reply(struct smtp_session *s)
{
    if (s->reply.code < 400 || s->lmtp) {
        smtp_client_lost(s, "replies out of turn");
        return;
    }
    answer_all(s, "message body");
    mail_over(s);
    smtp_session_close(s, "error in the middle of a message");
}

static void final_reply(struct smtp_session *s)
{
    struct smtp_mail *m = s->mail;
    if (s->reply.code / 100 == 3) {
        smtp_client_lost(s, "replies out of turn");
        return;
    }
    if (!s->lmtp) {
        answer_all(s, "end of DATA command");
    } else {
        while (!m->rcpt[s->final_next].accepted)
            s->final_next++;
        answer_one(s, &m->rcpt[s->final_next++], "end of DATA command");
        if (--s->accepted)
            return;
    }
    s->mail_open = false;
    bool closing = s->reply.code == 421;
    mail_over(s);
    if (closing)
        smtp_session_close(s, "421, the server closes the connection");
    else if (s->phase != SMTP_CLOSED)
        go_ready(s);
}

void smtp_client_reply(struct smtp_session *s)
{
    switch (s->phase) {
    case SMTP_GREETING:
    case SMTP_HELLO:
    case SMTP_HELO: hello_reply(s); break;
    case SMTP_READY: {
        char flat[200], text[300];
        smtp_reply_flat(&s->reply, flat, sizeof flat);
        snprintf(text, sizeof text, "said while idle: %d %s", s->reply.code, flat);
        smtp_session_close(s, text);
        break;
    }
    case SMTP_COMMANDS: command_reply(s); break;
    case SMTP_BODY: early_reply(s); break;
    case SMTP_FINAL: final_reply(s); break;
    case SMTP_EMPTY:
        s->mail_open = false;
        finish(s);
        break;
    case SMTP_RESET:
        if (s->reply.code / 100 == 2)
            go_ready(s);
        else
            smtp_session_close(s, "RSET was refused");
        break;
    case SMTP_CONNECTING:
    case SMTP_CLOSED: break;
    }
}
