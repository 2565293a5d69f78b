/* smtp_session - what the two halves of the engine share: smtp_session.c moves bytes and keeps time,
 * smtp_client.c knows the protocol. Nobody else includes this. */
#ifndef DOVELANE_RELAY_SMTP_SESSION_H
#define DOVELANE_RELAY_SMTP_SESSION_H

#include <sys/uio.h>

#include "clock.h"
#include "smtp.h"
#include "smtp_dots.h"

enum smtp_phase {
    SMTP_CONNECTING,
    SMTP_GREETING, /* waits for 220 */
    SMTP_HELLO,    /* EHLO or LHLO is out */
    SMTP_HELO,     /* the server knows no EHLO */
    SMTP_READY,    /* no mail */
    SMTP_COMMANDS, /* XFORWARD to DATA */
    SMTP_BODY,     /* 354 was had, the message is on its way out */
    SMTP_FINAL,    /* all of it is in the kernel's hands: from here on a loss leaves the outcome unknown */
    SMTP_EMPTY,    /* the lone dot for a DATA that should not have been accepted (RFC 2920 section 3.1) */
    SMTP_RESET,    /* RSET is out */
    SMTP_CLOSED
};

enum smtp_step_kind { STEP_XFORWARD, STEP_MAIL, STEP_RCPT, STEP_DATA };

/* A command of the mail in work, and which reply answers it: the n-th reply is for the n-th step. */
struct smtp_step {
    enum smtp_step_kind kind;
    size_t rcpt; /* STEP_RCPT: index into mail->rcpt */
    size_t end;  /* offset in out behind it */
};

struct smtp_session {
    struct ev_loop *loop;
    const struct smtp_events *events;
    void *arg;
    bool lmtp;
    char *helo, *name;
    struct smtp_limits limits;

    int fd, connect_error;
    ev_io reading, writing;
    ev_timer timer;
    double deadline, timer_at; /* CLOCK_MONOTONIC */
    enum smtp_phase phase;
    int busy;          /* callbacks that we are inside of: freed at the end of the outermost */
    bool broken;       /* writing failed: what the server still says is read, then it is over */
    size_t input_left; /* bytes read together with the reply in work, behind it */
    struct smtp_reply reply;
    struct smtp_features features;
    bool was_ready;
    unsigned mails;
    double opened, setup;

    struct buf out;               /* commands; then pieces of a message that needs dots */
    size_t out_done, out_allowed; /* written; may be written now */

    struct smtp_mail *mail;
    struct smtp_step *step;
    size_t nsteps, step_size, got; /* got: replies so far */
    size_t accepted;               /* recipients */
    bool mail_open;                /* MAIL was accepted and no dot has ended it */
    size_t final_next;             /* LMTP: whose answer comes next */

    struct iovec iov[3]; /* a clean message: head, body, terminator */
    int iov_at, iov_n;
    bool stuffing; /* the message needs dots: goes through out, piece by piece */
    bool body_ended;
    size_t body_at;
    struct smtp_dots dots;
};

/* ---- smtp_session.c ---- */
void smtp_session_flush(struct smtp_session *);                /* writes what may be written; never closes */
void smtp_session_wait(struct smtp_session *, double seconds); /* the time limit from now on */
void smtp_session_body(struct smtp_session *);                 /* begins with the message of s->mail */
void smtp_session_enter(struct smtp_session *);
void smtp_session_leave(struct smtp_session *); /* frees a closed session when nobody is inside any more */
void smtp_session_close(struct smtp_session *, const char *why);

/* ---- smtp_client.c ---- */
void smtp_client_connected(struct smtp_session *);
void smtp_client_reply(struct smtp_session *);                 /* s->reply is complete */
void smtp_client_written(struct smtp_session *);               /* the message is written */
void smtp_client_lost(struct smtp_session *, const char *why); /* gives the mail its results and closes */

#endif
