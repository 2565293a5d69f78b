/* smtp - the delivery engine: SMTP (RFC 5321) and LMTP (RFC 2033) as a client, non-blocking, on a
 * libev loop. It knows mails, recipients and replies; it knows nothing of lanes.
 *
 *   destination                    session
 *        ── smtp_open ───────────────▶     connects, EHLO, STARTTLS, EHLO
 *        ◀────────────────── ready() ──
 *        ── smtp_send(mail) ─────────▶     XCLIENT EHLO, or XFORWARD; MAIL RCPT, then DATA or BDAT with the message
 *        ◀─────────── done(mail) ──
 *        ◀────────────────── ready() ──    or closed()
 *
 * One session is one connection and carries one mail after another. How a mail leaves (R: a round
 * trip):
 *
 *   PIPELINING (RFC 2920), CHUNKING (RFC 3030)     MAIL RCPT.. BDAT message R              in one writev
 *     the same, more than SMTP_PIPELINED_MOST      MAIL RCPT.. R BDAT message R
 *   PIPELINING                                     MAIL RCPT.. DATA R message R
 *   neither                                        MAIL R RCPT R .. DATA R message R */
#ifndef DOVELANE_RELAY_SMTP_SMTP_H
#define DOVELANE_RELAY_SMTP_SMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include <ev.h>

#include "lib/mail/envelope.h"
#include "lib/base/resolve.h"
#include "lib/base/queue.h"
#include "relay/smtp/smtp_features.h"
#include "lib/mail/smtp_reply.h"
#include "lib/base/tls.h"

/* Text of a result, at most; longer replies are cut. */
#define SMTP_TEXT_MAX 512

/* Recipients of one transaction, at most: what every server must take (RFC 5321 section
 * 4.5.3.1.8). */
#define SMTP_RECIPIENTS_MAX 100

/* A message of more bytes waits for the answers to its recipients: it would be sent for nothing
 * if there were none left. */
#define SMTP_PIPELINED_MOST 65536

enum smtp_verdict {
    SMTP_UNTRIED,  /* nothing was said to the next hop about this recipient that could matter */
    SMTP_SENT,     /* 2xx */
    SMTP_DEFERRED, /* 4xx, or the connection was lost before the mail was complete */
    SMTP_FAILED,   /* 5xx, or a mail that this next hop cannot take (SIZE, SMTPUTF8, 8BITMIME) */
    /* lost between the message's last byte and its answer: delivered or not, nobody can tell */
    SMTP_UNKNOWN
};

struct smtp_rcpt {
    size_t index; /* in envelope->recipient */
    enum smtp_verdict verdict;
    int code;               /* 0 where no reply was had */
    char dsn[SMTP_DSN_MAX]; /* "2.0.0" */
    /* malloc'd; SENT: the reply; else the reason in Postfix's words; NULL: untried */
    char *text;
    bool accepted; /* its RCPT had 2xx (the engine's own) */
};

/* One mail for one transaction. The caller owns it; all that it points to stays until done is
 * called. */
struct smtp_mail {
    const struct envelope *envelope;
    const char *head; /* header lines to be sent before the message; may be NULL */
    size_t head_len;
    const char *body; /* header, empty line, body, CRLF, without dot-stuffing */
    size_t body_len;
    struct smtp_rcpt *rcpt;
    size_t nrcpt;
    void *owner;

    /* by the engine */
    /* FAILED for want of 8BITMIME alone: somebody who converts it (RFC 6152 section 3) could
     * send it */
    bool convert;
    /* not tried at all: a connection kept for reuse was gone. Another one may have it */
    bool stale;
    double begun; /* when a session began with it (CLOCK_MONOTONIC), 0: not */
    double setup; /* seconds its connection took, 0 for all but the first mail of a session */

    /* by the destination */
    void (*done)(struct smtp_mail *, const char *relay); /* relay: "host[addr]:port" or "none" */
    TAILQ_ENTRY(smtp_mail) link;
    double queued;  /* when it came */
    unsigned class; /* of its lane (relay/tables/classes.h) */
    bool waiting;   /* in the queue */
    bool again;     /* was stale once */
};

void smtp_rcpts_clear(struct smtp_rcpt *, size_t n); /* frees the texts */

/* The results of a mail whose transaction cannot take place: all its untried recipients. reason:
 * "connect to ...: refused". */
void smtp_mail_refuse(struct smtp_mail *, enum smtp_verdict, const char *dsn, const char *reason);

enum smtp_limit {
    SMTP_LIMIT_CONNECT,
    SMTP_LIMIT_HELO,
    SMTP_LIMIT_STARTTLS,
    SMTP_LIMIT_XFORWARD,
    SMTP_LIMIT_MAIL,
    SMTP_LIMIT_RCPT,
    SMTP_LIMIT_DATA_INIT,
    SMTP_LIMIT_DATA_XFER,
    SMTP_LIMIT_DATA_DONE,
    SMTP_LIMIT_RSET,
    SMTP_LIMIT_IDLE,
    SMTP_LIMITS
};

/* What is set for one next hop, shared by its sessions (smtp_policy.c). */
struct smtp_policy {
    unsigned users;
    double limit[SMTP_LIMITS]; /* seconds */
    int tls;                   /* TLS_* of config.h */
    struct tls_peer *peer;     /* NULL: TLS_NONE */
    /* until = replicated, and the next hop is a replica: its number. 0: it is not so */
    uint32_t site;
    char *unusable; /* why no connection may be made (a certificate file); NULL: none */
    /* TLS_MAY and a handshake that failed: none is tried until then (CLOCK_MONOTONIC) */
    double plain_until;
    int trust; /* TRUST_* */
    /* for the caller that makes the head: its mails get a Dovelane-Id; NULL: they do not */
    struct delivery_key *key;
    bool convert;     /* 8-bit mail needs 8BITMIME */
    unsigned discard; /* of enum smtp_feature: never used */
};

/* For a destination's section. The agent says what `postfix` means in it. Never NULL; the caller's
 * until smtp_policy_release. */
struct config;
struct nexthop;
struct agent;
struct smtp_policy *smtp_policy_new(const struct config *, const char *destination,
                                    const struct nexthop *, const struct agent *);

/* Opens the files of all sections: NULL, or what is wrong with one (malloc'd). */
char *smtp_policy_check(const struct config *);

/* For a port of our own Postfix: XFORWARD, and 8-bit mail as it is. */
struct smtp_policy *smtp_policy_own(const struct config *);
void smtp_policy_release(struct smtp_policy *); /* NULL is fine; its sessions hold it, too */

struct smtp_options {
    bool lmtp;
    const char *host; /* as in the next hop, for the log */
    const char *port; /* NULL: UNIX socket */
    const struct socket_address *address;
    const struct socket_address *from; /* connections come from there; NULL: the kernel chooses */
    bool from_enforced;                /* not from another one, if it is not this host's */
    const char *helo;                  /* what we call ourselves */
    struct smtp_policy *policy;        /* owned by the session */
    void *arg;
};

struct smtp_session;

/* All three may call smtp_send, smtp_quit and smtp_drop for this session. */
struct smtp_events {
    void (*ready)(struct smtp_session *); /* greeted, or the last mail is over: may take one now */
    void (*done)(struct smtp_session *,
                 /* results are in mail->rcpt; the session may be about to close */
                 struct smtp_mail *);
    /* is freed after this; holds no mail any more */
    void (*closed)(struct smtp_session *, const char *why);
};

/* Starts to connect. closed() is called later, never from within, also when connecting fails. */
struct smtp_session *smtp_open(struct ev_loop *, const struct smtp_options *,
                               const struct smtp_events *);

/* Only while the session is ready. false: this server cannot take the mail at all (SIZE, SMTPUTF8,
 * 8BITMIME). Then its results are set, done() is not called, and the session is still ready. Never
 * closes the session from within. */
bool smtp_send(struct smtp_session *, struct smtp_mail *);

/* QUIT for a session that is ready; closed() is called from within. */
void smtp_quit(struct smtp_session *);

/* Closes whatever goes on: a mail in transfer gets its results first (SMTP_UNTRIED before its
 * last byte, else SMTP_UNKNOWN). */
void smtp_drop(struct smtp_session *, const char *why);

void *smtp_arg(const struct smtp_session *);
const char *smtp_name(const struct smtp_session *); /* "host[addr]:port" */
bool smtp_was_ready(const struct smtp_session *);   /* greeted at least once */
unsigned smtp_mails(const struct smtp_session *);   /* carried so far */
/* in closed(), before it was ready: why, as a code (RFC 3463) that is never permanent: "4.4.1" */
const char *smtp_trouble(const struct smtp_session *);

#endif
