/* engine - the server's side of SMTP as Postfix's proxy client speaks it: one mail per connection,
 * each command answered before the next. Pure: bytes come in, replies gather in `out`, and the code
 * that has the socket gets an event when something is to be decided.
 *
 *   220 ─ EHLO ─ XFORWARD* ─ MAIL ─ RCPT+ ─ DATA ──▶ ENGINE_DATA ─ engine_go ─▶ content ──▶ ENGINE_END ─ engine_answer ─▶ QUIT
 *
 * The answers to the first three commands (EHLO, XFORWARD, MAIL) go with the greeting. Postfix asks
 * for each answer after its command, and finds that it is there. So it writes all commands up to
 * the first RCPT at once, which saves four round trips of seven. It is always 250; a command that
 * would have been refused leaves that to the RCPT and DATA behind it (`late`). Which commands these
 * are does not matter, but for DATA, whose answer is another: then the connection is closed. What a
 * client reads is always as many answers as it sent commands, in their order.
 *
 * Bounded: a command's length, recipients, rubbish commands. PIPELINING is not offered: Postfix
 * waits for each answer whatever is offered. */
#ifndef DOVELANE_PROXY_ENGINE_H
#define DOVELANE_PROXY_ENGINE_H

#include "proxy/command.h"
#include "proxy/content.h"
#include "lib/ingress/mail_entries.h"

#define ENGINE_LINE_MOST 4096 /* Postfix takes 2048 of its client */
#define ENGINE_RUBBISH_MOST 20
#define ENGINE_AHEAD 3

enum engine_event {
    ENGINE_MORE,  /* all was used; more bytes are wanted */
    ENGINE_DATA,  /* the envelope is complete: engine_go, and feed what was not used */
    ENGINE_BODY,  /* some of the content came (into body); feed on */
    ENGINE_END,   /* the content is complete: engine_answer, and feed what was not used */
    ENGINE_CLOSE, /* write what is in out, and close */
};

struct engine {
    struct buf out;  /* replies */
    struct buf body; /* content, as far as it was not taken away */
    char *helo;      /* EHLO's argument: Postfix's own name (smtpd_proxy_ehlo) */
    char *xforward[XFORWARD_ATTRIBUTES];
    /* the mail */
    char *mail_line; /* as given, "MAIL FROM:<a@b> SIZE=1"; NULL: no mail is under way */
    struct command_path sender;
    /* given: "RCPT TO:<a@b> NOTIFY=NEVER"; r.address is NULL when it is not plain */
    struct mail_recipient *recipient;
    size_t nrecipients, recipients_size;
    size_t envelope_bytes;
    bool utf8; /* SMTPUTF8 was asked for */
    struct content content;
    /* set by the caller */
    const char *name;     /* ours, in the greeting */
    size_t most_envelope; /* bytes */
    /* the engine's own */
    enum { ENGINE_COMMANDS, ENGINE_DECIDING, ENGINE_CONTENT, ENGINE_ANSWERING } state;
    struct buf line;
    unsigned rubbish;
    /* answers that were given before their commands came; ENGINE_AHEAD: nothing came yet */
    unsigned ahead;
    /* what one of these should have been: RCPT and DATA are answered so until EHLO or RSET */
    char *late;
};

void engine_greet(struct engine *);
enum engine_event engine_feed(struct engine *, const char *data, size_t len, size_t *used_r);

/* header: what cleanup(8) would do to the header of this mail; copied by reference until the
 * mail is over. */
void engine_go(struct engine *, const struct postfix_header *header);
void engine_answer(struct engine *, const char *reply); /* "451 4.3.0 ...", without CRLF */

/* Whether a recipient was given with this address; letters' case does not matter. */
bool engine_same(const struct mail_recipient *, const char *address);

/* Nothing of a mail is under way. */
bool engine_idle(const struct engine *);
void engine_free(struct engine *);

#endif
