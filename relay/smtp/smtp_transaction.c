/* One mail: who has which result, and by which reply. */
#include "lib/base/assert.h"
#include "relay/smtp/smtp_session.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "lib/config/config.h"
#include "lib/base/log.h"
#include "relay/smtp/smtp_compose.h"

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

void smtp_mail_refuse(struct smtp_mail *m, enum smtp_verdict verdict, const char *dsn,
                      const char *reason)
{
    for (size_t i = 0; i < m->nrcpt; i++)
        if (m->rcpt[i].verdict == SMTP_UNTRIED)
            set_result(&m->rcpt[i], verdict, 0, dsn, reason);
}

static enum smtp_verdict verdict_of(int code)
{
    return code < 300 ? SMTP_SENT : code < 500 ? SMTP_DEFERRED : SMTP_FAILED;
}

/* "host mx[192.0.2.1]:25 said: 550 5.1.1 unknown (in reply to RCPT TO command)"; a success is
 * the reply alone. */
static void reply_text(const struct smtp_session *s, const char *to, char *out, size_t size)
{
    char flat[SMTP_TEXT_MAX];
    smtp_reply_flat(&s->reply, flat, sizeof flat);
    const char *blank = *flat ? " " : "";
    if (s->reply.code < 300)
        snprintf(out, size, "%d%s%s", s->reply.code, blank, flat);
    else
        snprintf(out, size, "host %s said: %d%s%.300s (in reply to %s)", s->name, s->reply.code,
                 blank, flat, to);
}

static void answer_one(const struct smtp_session *s, struct smtp_rcpt *r, const char *to)
{
    char text[2 * SMTP_TEXT_MAX], dsn[SMTP_DSN_MAX];
    reply_text(s, to, text, sizeof text);
    smtp_reply_dsn(&s->reply, dsn);
    set_result(r, verdict_of(s->reply.code), s->reply.code, dsn, text);
}

/* Everybody who has no result yet. */
static void answer_all(const struct smtp_session *s, const char *to)
{
    for (size_t i = 0; i < s->mail->nrcpt; i++)
        if (s->mail->rcpt[i].verdict == SMTP_UNTRIED)
            answer_one(s, &s->mail->rcpt[i], to);
}

static void mail_over(struct smtp_session *s)
{
    struct smtp_mail *m = s->mail;
    ASSERT(m);
    smtp_body_clear(&s->body);
    s->mail = NULL;
    s->mails++;
    s->events->done(s, m);
}

/* The mail has its results. A transaction that may still be open ends by RSET. */
static void finish(struct smtp_session *s)
{
    bool reset = s->mail_open;
    s->mail_open = false;
    mail_over(s);
    if (s->phase == SMTP_CLOSED)
        return;
    if (reset && !s->closing)
        smtp_client_say(s, STEP_RSET, "RSET", "");
    else
        smtp_hello_ready(s);
}

/* ---- the commands ---- */

static void add_data(struct smtp_session *s)
{
    const struct smtp_mail *m = s->mail;
    s->chunk = s->features.set & SMTP_CHUNKING;
    if (s->chunk) {
        size_t size = smtp_body_chunk(&s->body, m->head, m->head_len, m->body, m->body_len);
        buf_printf(&s->out, "BDAT %zu LAST\r\n", size);
    } else {
        buf_adds(&s->out, "DATA\r\n");
    }
    smtp_client_step(s, s->chunk ? STEP_BDAT : STEP_DATA, STEP_NOBODY);
}

/* How much of the block may leave at once: all, all but the message, or one command. */
static size_t first_part(const struct smtp_session *s)
{
    if (!(s->features.set & SMTP_PIPELINING))
        return s->step[0].end;
    bool large = s->chunk && s->mail->head_len + s->mail->body_len > SMTP_PIPELINED_MOST;
    return large ? s->step[s->nsteps - 2].end : s->out.len;
}

void smtp_transaction_begin(struct smtp_session *s)
{
    const struct smtp_mail *m = s->mail;
    bool xforward = s->policy->trust == TRUST_XFORWARD;
    if (!smtp_client_our_turn(s))
        return;
    s->accepted = 0;
    s->mail_open = s->message_out = false;
    smtp_client_block(s);
    if (xforward && smtp_compose_xforward_client(&s->out, m->envelope, &s->features))
        smtp_client_step(s, STEP_XFORWARD, STEP_NOBODY);
    if (xforward && smtp_compose_xforward_session(&s->out, m->envelope, &s->features))
        smtp_client_step(s, STEP_XFORWARD, STEP_NOBODY);
    smtp_compose_mail(&s->out, m->envelope, &s->features, m->head_len + m->body_len);
    smtp_client_step(s, STEP_MAIL, STEP_NOBODY);
    for (size_t i = 0; i < m->nrcpt; i++) {
        smtp_compose_rcpt(&s->out, &m->envelope->recipient[m->rcpt[i].index], &s->features);
        smtp_client_step(s, STEP_RCPT, i);
    }
    add_data(s);
    s->out_allowed = first_part(s);
    smtp_client_await(s);
    smtp_session_flush(s);
}

/* ---- what this server cannot take ---- */

static bool needs_utf8(const struct smtp_mail *m)
{
    if (!smtp_asks_utf8(m->envelope))
        return false;
    size_t *index = mem_alloc(m->nrcpt * sizeof *index);
    for (size_t i = 0; i < m->nrcpt; i++)
        index[i] = m->rcpt[i].index;
    bool needed = smtp_needs_utf8(m->envelope, index, m->nrcpt, m->body, m->body_len);
    free(index);
    return needed;
}

/* NULL when it can take the mail, else the enhanced status code, and why in text. */
static const char *unfit(const struct smtp_session *s, struct smtp_mail *m, char *text, size_t size)
{
    size_t len = m->head_len + m->body_len;
    if (s->features.size_limit && len > s->features.size_limit) {
        snprintf(text, size, "message size %zu exceeds size limit %llu of server %s", len,
                 (unsigned long long)s->features.size_limit, s->name);
        return "5.3.4";
    }
    if (!(s->features.set & SMTP_UTF8) && needs_utf8(m)) {
        snprintf(text, size, "SMTPUTF8 is required, but was not offered by host %s", s->name);
        return "5.6.7";
    }
    if (s->policy->convert && !(s->features.set & SMTP_8BITMIME) &&
        smtp_needs_8bitmime(m->envelope, m->body, m->body_len)) {
        m->convert = true;
        snprintf(text, size, "8BITMIME is required, but was not offered by host %s", s->name);
        return "5.6.3";
    }
    return NULL;
}

/* The mail's client is told by XCLIENT, once for all mails in a row that have the same. */
static bool introduce(struct smtp_session *s)
{
    struct buf line = {0};
    if (s->policy->trust != TRUST_XCLIENT ||
        !smtp_compose_xclient(&line, s->mail->envelope, &s->features))
        return false;
    line.data[line.len - 2] = '\0';
    if (s->xclient && !strcmp(s->xclient, line.data)) {
        buf_free(&line);
        return false;
    }
    free(s->xclient);
    s->xclient = line.data;
    smtp_client_say(s, STEP_XCLIENT, s->xclient, "");
    return true;
}

void smtp_transaction_again(struct smtp_session *s)
{
    char text[SMTP_TEXT_MAX];
    const char *dsn = unfit(s, s->mail, text, sizeof text);
    if (!dsn) {
        smtp_transaction_begin(s);
        return;
    }
    smtp_mail_refuse(s->mail, SMTP_FAILED, dsn, text);
    finish(s);
}

bool smtp_send(struct smtp_session *s, struct smtp_mail *m)
{
    char text[SMTP_TEXT_MAX];
    ASSERT(s->phase == SMTP_READY && !s->mail && m->nrcpt);
    m->begun = clock_monotonic();
    m->setup = s->mails ? 0. : s->setup;
    m->stale = m->convert = false;
    const char *dsn = unfit(s, m, text, sizeof text);
    if (dsn) {
        smtp_mail_refuse(m, SMTP_FAILED, dsn, text);
        return false;
    }
    s->mail = m;
    s->mail_open = s->message_out = false;
    for (size_t i = 0; i < m->nrcpt; i++)
        m->rcpt[i].accepted = false;
    if (!introduce(s))
        smtp_transaction_begin(s);
    return true;
}

/* ---- the replies ---- */

/* LMTP answers for each recipient that it accepted (RFC 2033 section 4.2 and 4.3), SMTP once.
 * When there is none, SMTP answers all the same, and LMTP servers do although the RFC can be
 * read otherwise; if one does not, the time limit ends the connection. */
static void expect_answers(struct smtp_session *s)
{
    const struct smtp_mail *m = s->mail;
    for (size_t i = 0; s->lmtp && i < m->nrcpt; i++)
        if (m->rcpt[i].accepted)
            smtp_client_step(s, STEP_MESSAGE, i);
    if (!s->lmtp || !s->accepted)
        smtp_client_step(s, STEP_MESSAGE, s->accepted ? 0 : STEP_NOBODY);
}

/* After each reply: what it allows to be sent, and what is heard next. */
static void go_on(struct smtp_session *s)
{
    ASSERT(s->got < s->nsteps);
    struct smtp_step step = s->step[s->got];
    bool message = step.kind == STEP_DATA || step.kind == STEP_BDAT;
    if (step.end > s->out_allowed) {
        if (((message || step.kind == STEP_RCPT) && !s->mail_open) || (message && !s->accepted)) {
            finish(s);
            return;
        }
        s->out_allowed = step.end;
    }
    if (step.kind == STEP_BDAT) {
        s->nsteps--;
        expect_answers(s);
    }
    smtp_client_await(s);
    smtp_session_flush(s);
}

void smtp_xforward_reply(struct smtp_session *s, const struct smtp_step *step)
{
    /* Refused: what it would have said is missing in the next hop's log, no more. */
    go_on(s);
}

void smtp_mail_reply(struct smtp_session *s, const struct smtp_step *step)
{
    s->mail_open = s->reply.code / 100 == 2;
    if (!s->mail_open)
        answer_all(s, smtp_client_command(STEP_MAIL));
    go_on(s);
}

void smtp_rcpt_reply(struct smtp_session *s, const struct smtp_step *step)
{
    ASSERT(step->rcpt < s->mail->nrcpt);
    struct smtp_rcpt *r = &s->mail->rcpt[step->rcpt];
    if (s->reply.code / 100 == 2 && s->mail_open) {
        r->accepted = true;
        s->accepted++;
    } else if (r->verdict == SMTP_UNTRIED) {
        answer_one(s, r, smtp_client_command(STEP_RCPT));
    }
    go_on(s);
}

void smtp_data_reply(struct smtp_session *s, const struct smtp_step *step)
{
    const struct smtp_mail *m = s->mail;
    if (s->reply.code / 100 != 3) {
        answer_all(s, smtp_client_command(STEP_DATA));
        finish(s);
    } else if (!smtp_client_our_turn(s)) {
        return;
    } else if (s->accepted && s->mail_open) {
        smtp_body_data(&s->body, m->head, m->head_len, m->body, m->body_len);
        smtp_client_block(s);
        expect_answers(s);
        smtp_client_await(s);
        smtp_session_flush(s);
    } else if (s->lmtp) {
        /* A dot for nobody has no reply at all, so nothing would tell when it is over. */
        smtp_client_lost(s, "DATA was accepted without recipients");
    } else {
        /* A server that should not have accepted it (RFC 2920 section 3.1). */
        s->message_out = true;
        smtp_client_say(s, STEP_MESSAGE, ".", "");
    }
}

/* Where BDAT is pipelined no answer is waited for before all is said, so one that comes twice
 * passes for the next one's, and so on to the end. What is left over then tells; the 421 of a
 * server that closes is none of these. */
static bool one_too_many(const struct smtp_session *s)
{
    return s->chunk && s->got == s->nsteps && s->input_left >= 3 && memcmp(s->input, "421", 3) != 0;
}

/* Which answer was for this mail nobody can tell. With DATA somebody can: from now on it is used
 * here. */
static void forget_answers(struct smtp_session *s)
{
    log_warning("%s: more answers than commands; BDAT is no longer used there", s->name);
    s->policy->discard |= SMTP_CHUNKING;
    for (size_t i = 0; i < s->mail->nrcpt; i++)
        if (s->mail->rcpt[i].accepted)
            s->mail->rcpt[i].verdict = SMTP_UNTRIED;
    smtp_client_lost(s, "replies out of turn");
}

void smtp_message_reply(struct smtp_session *s, const struct smtp_step *step)
{
    struct smtp_mail *m = s->mail;
    if (one_too_many(s)) {
        forget_answers(s);
        return;
    }
    const char *to = smtp_client_command(s->chunk ? STEP_BDAT : STEP_MESSAGE);
    bool good = s->reply.code / 100 == 2;
    if (good && step->rcpt == STEP_NOBODY && s->lmtp) {
        smtp_client_lost(s, "BDAT was accepted without recipients");
        return;
    }
    if (s->lmtp && step->rcpt != STEP_NOBODY && m->rcpt[step->rcpt].verdict == SMTP_UNTRIED)
        answer_one(s, &m->rcpt[step->rcpt], to);
    else if (!s->lmtp)
        answer_all(s, to);
    if (s->got < s->nsteps) {
        smtp_client_await(s);
        return;
    }
    /* After a BDAT that was refused the state is "indeterminate" until RSET (RFC 3030 section
     * 2). */
    s->mail_open = s->chunk && !good;
    finish(s);
}

void smtp_rset_reply(struct smtp_session *s, const struct smtp_step *step)
{
    if (s->reply.code / 100 == 2)
        smtp_hello_ready(s);
    else
        smtp_session_close(s, "RSET was refused");
}

/* The server speaks before it has the whole message. An error is its answer (a limit was
 * passed), and ends the connection as we are not going on. With LMTP it is not clear for whom it
 * speaks. */
void smtp_transaction_early(struct smtp_session *s)
{
    if (s->reply.code < 400 || s->lmtp) {
        smtp_client_lost(s, "replies out of turn");
        return;
    }
    answer_all(s, "message body");
    mail_over(s);
    smtp_session_close(s, "error in the middle of a message");
}

/* ---- losses ---- */

/* Nothing of this mail had an answer yet, and the connection was kept from another one. */
static bool first_words(const struct smtp_session *s)
{
    return s->mails && s->got == 0 && s->phase == SMTP_TALKING && s->nsteps &&
           s->step[0].kind >= STEP_XCLIENT && s->step[0].kind <= STEP_MAIL;
}

/* The connection ended before the server can have read the last byte. TCP: its FIN came (EPIPE:
 * and then its reset), and acknowledges all that had arrived when it closed, but not our last
 * byte. UNIX: the kernel says so by ECONNRESET (unix(7)). */
static bool unread(const struct smtp_session *s)
{
    int left = 0;
    if (s->address.sa.ss_family == AF_UNIX)
        return s->error == ECONNRESET;
    return (!s->error || s->error == EPIPE) && !ioctl(s->fd, SIOCOUTQ, &left) && left > 0;
}

bool smtp_transaction_busy(struct smtp_session *s)
{
    s->closing = true;
    if (!first_words(s))
        return false;
    s->mail->stale = true;
    mail_over(s);
    smtp_session_close(s, "421, the server closes the connection");
    return true;
}

void smtp_transaction_lost(struct smtp_session *s, const char *text)
{
    struct smtp_mail *m = s->mail;
    if (!m)
        return;
    /* A connection that was kept may have been closed by the server before it read our words
     * (RFC 5321 section 3.8): then nothing was tried, and another connection may have the mail
     * at once. */
    m->stale = first_words(s) && (!s->message_out || unread(s));
    if (!m->stale)
        smtp_mail_refuse(m, s->message_out ? SMTP_UNKNOWN : SMTP_DEFERRED, s->trouble, text);
    mail_over(s);
}

void smtp_drop(struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CLOSED)
        return;
    smtp_session_enter(s);
    if (s->mail) {
        if (s->message_out)
            smtp_mail_refuse(s->mail, SMTP_UNKNOWN, "4.4.2", why);
        mail_over(s);
    }
    smtp_session_close(s, why);
    smtp_session_leave(s);
}

void smtp_quit(struct smtp_session *s)
{
    /* Its answer is not waited for: it could change nothing. */
    if (s->phase == SMTP_READY) {
        buf_adds(&s->out, "QUIT\r\n");
        s->out_allowed = s->out.len;
        smtp_session_flush(s);
    }
    smtp_session_close(s, "idle");
}
