/* smtp_session - what the parts of the engine share. Nobody else includes this.
 *
 *   smtp_session.c      moves bytes, plain or by TLS, and keeps time
 *   smtp_client.c       what was said and which reply answers it: the table of commands
 *   smtp_hello.c        from the greeting to "ready": EHLO, STARTTLS, XCLIENT
 *   smtp_transaction.c  a mail: from MAIL to the answers for its recipients
 *
 * Whatever is said is a *step*: the n-th reply answers the n-th step, and nothing else is ever
 * asked about what a reply is for. A block of steps is composed at once; it leaves at once
 * (PIPELINING), or as far as the next step whose answer is waited for. A new block is only begun
 * when every step of the last is answered and not a byte of a reply is left over. From there the
 * two sides agree again. */
#ifndef DOVELANE_RELAY_SMTP_SMTP_SESSION_H
#define DOVELANE_RELAY_SMTP_SMTP_SESSION_H

#include <sys/uio.h>

#include "lib/base/clock.h"
#include "relay/smtp/smtp.h"
#include "relay/smtp/smtp_body.h"

enum smtp_phase {
    SMTP_CONNECTING,
    SMTP_HANDSHAKE, /* TLS */
    SMTP_TALKING,   /* there are steps without an answer */
    SMTP_READY,     /* no mail, all is answered */
    SMTP_CLOSED
};

enum smtp_step_kind {
    STEP_GREETING,
    STEP_HELLO, /* EHLO or LHLO */
    STEP_HELO,
    STEP_STARTTLS,
    STEP_XCLIENT,
    STEP_XFORWARD,
    STEP_MAIL,
    STEP_RCPT,
    STEP_DATA,
    /* with the message behind it; before it is answered, STEP_MESSAGE takes its place */
    STEP_BDAT,
    STEP_MESSAGE, /* the answer to the whole message: for a recipient (LMTP), or for all */
    STEP_RSET
};

#define STEP_NOBODY ((size_t)-1) /* STEP_MESSAGE: no recipient was accepted */

struct smtp_step {
    enum smtp_step_kind kind;
    size_t rcpt; /* STEP_RCPT, STEP_MESSAGE: index into mail->rcpt */
    size_t end;  /* offset in out behind it */
};

struct smtp_session {
    char trouble[SMTP_DSN_MAX];
    struct ev_loop *loop;
    const struct smtp_events *events;
    void *arg;
    bool lmtp;
    char *helo, *name;
    struct socket_address address, from; /* from.sa AF_UNSPEC: any */
    bool from_enforced;
    struct smtp_policy *policy;

    int fd, error; /* error: of connecting or reading, as errno; 0: the end of the connection */
    ev_io reading, writing;
    ev_timer timer;
    double deadline, timer_at; /* CLOCK_MONOTONIC */
    enum smtp_phase phase;
    int busy;          /* callbacks that we are inside of: freed at the end of the outermost */
    bool broken;       /* writing failed: what the server still says is read, then it is over */
    bool closing;      /* it said 421: no more mail after this one */
    size_t input_left; /* bytes read together with the reply in work, behind it */
    const char *input; /* those bytes */
    struct tls *tls;   /* NULL: plain */
    struct smtp_reply reply;
    struct smtp_features features;
    char *xclient; /* the last XCLIENT */
    bool was_ready;
    unsigned mails;
    double opened, setup;

    struct buf out;               /* the block of commands */
    size_t out_done, out_allowed; /* written; may be written now */
    struct smtp_step *step;
    size_t nsteps, step_size, got; /* got: replies so far */

    struct smtp_mail *mail;
    struct smtp_body body; /* goes out behind the last of the block */
    bool chunk;            /* by BDAT */
    /* all of it is in the kernel's hands: from here on a loss leaves the outcome unknown */
    bool message_out;
    bool mail_open;  /* MAIL was accepted, and nothing ended the transaction for certain */
    size_t accepted; /* recipients */
};

/* ---- smtp_session.c ---- */
/* writes what may be written; never closes */
void smtp_session_flush(struct smtp_session *);
void smtp_session_wait(struct smtp_session *, double seconds); /* the time limit from now on */
void smtp_session_tls(struct smtp_session *);                  /* begins the handshake */
void smtp_session_again(struct smtp_session *);                /* connects once more */
void smtp_session_enter(struct smtp_session *);
/* frees a closed session when nobody is inside any more */
void smtp_session_leave(struct smtp_session *);
void smtp_session_close(struct smtp_session *, const char *why);
/* what smtp_trouble says; a 5 becomes a 4 */
void smtp_session_trouble(struct smtp_session *, const char *dsn);

/* ---- smtp_client.c ---- */
void smtp_client_connected(struct smtp_session *);
void smtp_client_reply(struct smtp_session *);   /* s->reply is complete */
void smtp_client_written(struct smtp_session *); /* the message is written */
/* gives the mail its results and closes */
void smtp_client_lost(struct smtp_session *, const char *why);

/* false: the server said more than it was asked; the session is over */
bool smtp_client_our_turn(struct smtp_session *);
void smtp_client_block(struct smtp_session *); /* begins a block of commands */
/* for what was added to out */
void smtp_client_step(struct smtp_session *, enum smtp_step_kind, size_t rcpt);
/* the time limit for the next reply */
void smtp_client_await(struct smtp_session *);
/* A block of one command; arg may be "". */
void smtp_client_say(struct smtp_session *, enum smtp_step_kind, const char *verb, const char *arg);
const char *smtp_client_command(enum smtp_step_kind); /* "MAIL FROM command" */

/* ---- smtp_hello.c ---- */
void smtp_hello_ready(struct smtp_session *);                          /* may take a mail */
void smtp_hello_handshake(struct smtp_session *, const char *failure); /* NULL: TLS is there */
void smtp_greeting_reply(struct smtp_session *, const struct smtp_step *);
void smtp_ehlo_reply(struct smtp_session *, const struct smtp_step *);
void smtp_helo_reply(struct smtp_session *, const struct smtp_step *);
void smtp_starttls_reply(struct smtp_session *, const struct smtp_step *);
void smtp_xclient_reply(struct smtp_session *, const struct smtp_step *);

/* ---- smtp_transaction.c ---- */
void smtp_transaction_begin(struct smtp_session *); /* of s->mail, the server knows its client */
/* the same after XCLIENT: it may not be fit any more */
void smtp_transaction_again(struct smtp_session *);
void smtp_transaction_early(struct smtp_session *); /* a reply in the middle of the message */
/* 421: the connection ends with this mail. The answer itself counts like others, and so does
 * what it still says to the rest: a message may be with it already. True: it was said to the
 * first words on a kept connection, and the session is over. */
bool smtp_transaction_busy(struct smtp_session *);
/* by the code that smtp_session_trouble has */
void smtp_transaction_lost(struct smtp_session *, const char *text);
void smtp_xforward_reply(struct smtp_session *, const struct smtp_step *);
void smtp_mail_reply(struct smtp_session *, const struct smtp_step *);
void smtp_rcpt_reply(struct smtp_session *, const struct smtp_step *);
void smtp_data_reply(struct smtp_session *, const struct smtp_step *);
void smtp_message_reply(struct smtp_session *, const struct smtp_step *);
void smtp_rset_reply(struct smtp_session *, const struct smtp_step *);

#endif
