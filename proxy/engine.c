#include "proxy/engine.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void say(struct engine *e, const char *reply)
{
    buf_adds(&e->out, reply);
    buf_adds(&e->out, "\r\n");
}

/* Without printf: it is said for each mail. */
static void say3(struct engine *e, const char *a, const char *b, const char *c)
{
    buf_adds(&e->out, a);
    buf_adds(&e->out, b);
    say(e, c);
}

/* To the command that is being looked at: it may have its answer already, and then what is
 * refused is refused later. */
static void reply(struct engine *e, const char *text)
{
    if (!e->ahead) {
        say(e, text);
        return;
    }
    e->ahead--;
    if (*text != '2' && !e->late)
        e->late = mem_strdup(text);
}

static void reset_mail(struct engine *e)
{
    for (size_t i = 0; i < e->nrecipients; i++)
        mail_recipient_free(&e->recipient[i]);
    free(e->recipient);
    e->recipient = NULL;
    e->nrecipients = e->recipients_size = e->envelope_bytes = 0;
    free(e->mail_line);
    e->mail_line = NULL;
    command_path_free(&e->sender);
    e->utf8 = false;
    free(e->late);
    e->late = NULL;
    content_free(&e->content);
    buf_free(&e->body);
}

void engine_free(struct engine *e)
{
    reset_mail(e);
    for (int i = 0; i < XFORWARD_ATTRIBUTES; i++)
        free(e->xforward[i]);
    free(e->helo);
    buf_free(&e->out);
    buf_free(&e->line);
    *e = (struct engine){0};
}

bool engine_idle(const struct engine *e)
{
    return e->state == ENGINE_COMMANDS && !e->mail_line;
}

/* ---- commands ---- */

static bool is(const char *line, const char *verb)
{
    size_t n = strlen(verb);
    return !strncasecmp(line, verb, n) && (!line[n] || line[n] == ' ' || line[n] == '\t');
}

static void say_extensions(struct engine *e)
{
    say3(e, "250-", e->name,
         "\r\n250-SIZE\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-DSN\r\n250-ENHANCEDSTATUSCODES\r\n"
         "250 XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE");
}

void engine_greet(struct engine *e)
{
    say3(e, "220 ", e->name, " ESMTP Dovelane");
    say_extensions(e);
    say(e, "250 2.0.0 Ok");
    say(e, "250 2.0.0 Ok");
    e->ahead = ENGINE_AHEAD;
}

static void do_hello(struct engine *e, const char *line)
{
    const char *name = line + 4 + strspn(line + 4, " \t");
    if (!*name) {
        reply(e, "501 5.5.4 Syntax: EHLO name");
        return;
    }
    reset_mail(e);
    free(e->helo);
    e->helo = mem_strdup(name);
    if (e->ahead)
        e->ahead--;
    else if (is(line, "HELO"))
        say3(e, "250 ", e->name, "");
    else
        say_extensions(e);
}

static void do_xforward(struct engine *e, const char *line)
{
    if (e->mail_line)
        reply(e, "503 5.5.1 Error: MAIL transaction in progress");
    else
        reply(e, command_xforward(line, e->xforward) ? "250 2.0.0 Ok"
                                                     : "451 4.3.0 Error: bad XFORWARD attribute");
}

static void do_mail(struct engine *e, const char *line)
{
    if (!e->helo || e->mail_line) {
        reply(e, e->helo ? "503 5.5.1 Error: nested MAIL command"
                         : "503 5.5.1 Error: send HELO/EHLO first");
        return;
    }
    if (!command_path(line, "MAIL", "FROM", &e->sender)) {
        reply(e, "501 5.5.4 Syntax: MAIL FROM:<address>");
        return;
    }
    char *utf8 = envelope_arg(e->sender.args, "SMTPUTF8");
    e->utf8 = utf8 != NULL;
    free(utf8);
    e->mail_line = mem_strdup(line);
    e->envelope_bytes = 2 * strlen(line);
    reply(e, "250 2.1.0 Ok");
}

bool engine_same(const struct mail_recipient *r, const char *address)
{
    return r->r.address && !strcasecmp(r->r.address, address);
}

static bool given_before(const struct engine *e, const char *address)
{
    for (size_t i = 0; i < e->nrecipients; i++)
        if (engine_same(&e->recipient[i], address))
            return true;
    return false;
}

static void do_rcpt(struct engine *e, const char *line)
{
    struct command_path p;
    if (e->late) {
        reply(e, e->late);
        return;
    }
    if (!e->mail_line) {
        reply(e, "503 5.5.1 Error: need MAIL command");
        return;
    }
    if (!command_path(line, "RCPT", "TO", &p)) {
        reply(e, "501 5.5.4 Syntax: RCPT TO:<address>");
        return;
    }
    size_t bytes = 2 * strlen(line) + sizeof *e->recipient;
    if (e->nrecipients >= ENVELOPE_RECIPIENTS_MAX || e->envelope_bytes + bytes > e->most_envelope) {
        command_path_free(&p);
        reply(e, "452 4.5.3 Error: too many recipients");
        return;
    }
    if (e->nrecipients == e->recipients_size) {
        e->recipients_size = e->recipients_size ? 2 * e->recipients_size : 1;
        e->recipient = mem_grow(e->recipient, e->recipients_size * sizeof *e->recipient);
    }
    bool again = p.plain && given_before(e, p.address);
    e->recipient[e->nrecipients++] = (struct mail_recipient){
        .given = mem_strdup(line), .again = again, .r = {.address = p.address, .args = p.args}};
    e->envelope_bytes += bytes;
    reply(e, "250 2.1.5 Ok");
}

static enum engine_event do_command(struct engine *e, const char *line)
{
    if (is(line, "RCPT")) {
        do_rcpt(e, line);
    } else if (is(line, "MAIL")) {
        do_mail(e, line);
    } else if (is(line, "DATA") && e->ahead) {
        say(e, "421 4.5.1 Error: DATA before its answer could be told from those given ahead");
        return ENGINE_CLOSE;
    } else if (is(line, "DATA")) {
        if (e->nrecipients && !e->late) {
            e->state = ENGINE_DECIDING;
            return ENGINE_DATA;
        }
        reply(e, e->late        ? e->late
                 : e->mail_line ? "554 5.5.1 Error: no valid recipients"
                                : "503 5.5.1 Error: need RCPT command");
    } else if (is(line, "EHLO") || is(line, "HELO")) {
        do_hello(e, line);
    } else if (is(line, "XFORWARD")) {
        do_xforward(e, line);
    } else if (is(line, "RSET")) {
        reset_mail(e);
        reply(e, "250 2.0.0 Ok");
    } else if (is(line, "NOOP")) {
        reply(e, "250 2.0.0 Ok");
    } else if (is(line, "QUIT")) {
        say(e, "221 2.0.0 Bye");
        return ENGINE_CLOSE;
    } else if (++e->rubbish > ENGINE_RUBBISH_MOST) {
        say(e, "421 4.7.0 Error: too many errors");
        return ENGINE_CLOSE;
    } else {
        reply(e, "502 5.5.2 Error: command not recognized");
    }
    return ENGINE_MORE;
}

/* A line without its LF. Postfix ends each with CRLF and has no control characters in it:
 * anything else is not Postfix, and not answered twice. */
static enum engine_event take_command(struct engine *e, const char *line, size_t n)
{
    bool good = n && line[n - 1] == '\r';
    for (size_t i = 0; good && i + 1 < n; i++)
        good = (unsigned char)line[i] >= ' ' || line[i] == '\t';
    if (!good) {
        say(e, "500 5.5.2 Error: a command ends with CRLF and has no control characters");
        return ENGINE_CLOSE;
    }
    char text[ENGINE_LINE_MOST + 1];
    memcpy(text, line, n - 1);
    text[n - 1] = '\0';
    return do_command(e, text);
}

static enum engine_event feed_commands(struct engine *e, const char *data, size_t len, size_t *used)
{
    const char *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) : len;
    *used += n + (lf != NULL);
    if (e->line.len + n > ENGINE_LINE_MOST) {
        say(e, "500 5.5.2 Error: line too long");
        return ENGINE_CLOSE;
    }
    if (lf && !e->line.len)
        return take_command(e, data, n);
    buf_add(&e->line, data, n);
    if (!lf)
        return ENGINE_MORE;
    enum engine_event event = take_command(e, e->line.data, e->line.len);
    buf_consume(&e->line, e->line.len);
    return event;
}

/* ---- content ---- */

void engine_go(struct engine *e, const struct postfix_header *header)
{
    e->content.header = header;
    e->state = ENGINE_CONTENT;
    say(e, "354 End data with <CR><LF>.<CR><LF>");
}

void engine_answer(struct engine *e, const char *reply)
{
    reset_mail(e);
    e->state = ENGINE_COMMANDS;
    say(e, reply);
}

static enum engine_event feed_content(struct engine *e, const char *data, size_t len, size_t *used)
{
    bool end;
    *used += content_feed(&e->content, data, len, &e->body, &end);
    if (e->content.bare_lf) {
        /* What follows may be meant as commands, by whoever smuggled it in: it is not read. */
        say(e, "550 5.5.2 Error: bare <LF> received");
        return ENGINE_CLOSE;
    }
    if (end)
        e->state = ENGINE_ANSWERING;
    return end ? ENGINE_END : ENGINE_BODY;
}

enum engine_event engine_feed(struct engine *e, const char *data, size_t len, size_t *used_r)
{
    enum engine_event event = ENGINE_MORE;
    *used_r = 0;
    while (event == ENGINE_MORE && *used_r < len &&
           (e->state == ENGINE_COMMANDS || e->state == ENGINE_CONTENT)) {
        const char *rest = data + *used_r;
        size_t left = len - *used_r;
        event = e->state == ENGINE_COMMANDS ? feed_commands(e, rest, left, used_r)
                                            : feed_content(e, rest, left, used_r);
    }
    return event;
}
