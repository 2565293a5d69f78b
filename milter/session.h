/* session - what the milter knows of one SMTP session and of the mail that is under way in it.
 *
 * Rules, maps and the store are on one thread and one loop; postmap(1) is run by others (lookup.h).
 * What comes before the end of a message is heard in the engine's thread: that of the loop, or one
 * of libmilter's.
 *
 *   an engine (engine.h) ── events ──▶ session.c ──▶ mail.c ── at the end of a message ──▶ rules.c: Postfix's queue?
 *                                                                                                               divert.c: lanes, and what Postfix is answered */
#ifndef DOVELANE_MILTER_SESSION_H
#define DOVELANE_MILTER_SESSION_H

#include <ev.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/config/config.h"
#include "lib/ingress/deposit.h"
#include "milter/engine.h"
#include "lib/mail/entryid.h"
#include "lib/mail/envelope.h"
#include "lib/postfix/lookup.h"
#include "lib/base/mem.h"
#include "lib/store/store.h"

struct mail {
    /* its recipients stay empty: they are here, until they are known by destination */
    struct envelope envelope;
    struct mail_recipient *recipient;
    size_t nrecipients, recipients_size;
    unsigned foreign_ids; /* Dovelane-Id lines that are not in headers_body */
    /* header lines, empty line, body, all with CRLF; without our Received line */
    struct buf headers_body;
    bool in_body;   /* the end of the header was seen */
    bool too_large; /* more than max_entry: the bytes are no longer kept */
    bool no_memory; /* milter_memory is used up: likewise */
    /* one of more than 998 bytes, which Postfix would fold on its way out */
    bool long_line;
    /* Postfix would write the sender or a recipient in another way than it was given */
    bool rewritten;
    size_t line;    /* bytes of the line that is under way */
    uint64_t size;  /* of all bytes, kept or not */
    size_t counted; /* of them, in milter.bytes */
};

/* Where the mail stands. */
enum stage {
    STAGE_READING, /* of it, or between two */
    STAGE_MAPS,    /* Postfix's maps are asked */
    STAGE_STORE,   /* the store works on it, or takes back what it promised too long ago */
    /* the store takes back what it holds, because the whole mail is wanted elsewhere or nobody
     * waits any more */
    STAGE_REVOKE,
};

struct milter_session {
    struct milter_session *prev, *next; /* of those whose message is complete */
    const struct engine *engine;
    void *peer;     /* the engine's side */
    bool answering; /* the engine was told the answer, and has not said yet whether Postfix was */
    bool gone;      /* nobody waits for an answer; the store's outcome is awaited */
    /* after the end of a message: since then at least Postfix has waited, or was told to go on
     * waiting (clock_monotonic) */
    double since;
    /* of the SMTP session */
    char *client_name, *client_addr, *client_port, *helo, *host;
    char *tls_version, *tls_cipher, *tls_bits, *tls_subject, *tls_issuer;
    /* of the mail */
    struct mail mail;
    enum stage stage;
    struct lookup *lookup;
    struct deposit deposit;
    struct buf body;
    bool stored;  /* the store has the request */
    bool revoked; /* store_revoke was called */
    double began; /* storing did */
};

/* What all sessions share. All but bytes is set before the first one. */
struct milter {
    const struct config *config;
    const struct engine *engine;
    struct ev_loop *loop;
    struct store *store;
    /* of mail that is buffered at this moment, with the copies that are under way */
    atomic_llong bytes;
};
extern struct milter milter;

/* session.c: what an engine calls. A session that is not between milter_session_end and `over`
 * is the engine's to free. */
struct milter_session *milter_session_new(const struct engine *, void *peer);
void milter_session_free(struct milter_session *);
/* Texts are the caller's. address: "192.0.2.1" or "IPv6:2001:db8::1", NULL when there is none. */
void milter_session_connect(struct milter_session *, const char *name, const char *address,
                            unsigned port);
void milter_session_helo(struct milter_session *, const char *name);
/* a mail begins; what there was of another one is void */
void milter_session_mail(struct milter_session *, char *const *argv);
void milter_session_rcpt(struct milter_session *, char *const *argv);
/* all after the colon, folded lines joined by LF */
void milter_session_header(struct milter_session *, const char *name, const char *value);
/* some of what follows the header */
void milter_session_body(struct milter_session *, const void *data, size_t len);
/* there is no mail any more */
void milter_session_abort(struct milter_session *);
/* The rest on the loop. The message is complete, and Postfix has waited since then at the
 * earliest. */
void milter_session_end(struct milter_session *, const char *queue_id, double since);
/* Postfix hung up before the answer, or went on without it. Ignored while the answer is under
 * way: its outcome says it. */
void milter_session_lost(struct milter_session *);
void milter_session_answered(struct milter_session *, bool told);
/* What a connection is closed for; once a second at most. From any thread. */
void milter_session_complain(const char *what);

/* For main.c. Watches how the loop turns. Before the first session. */
void milter_session_open(void);
/* When the loop began to wait for events the time before last: what is reported now was not
 * there then. */
double milter_session_last_turn(void);

/* For divert.c: whether Postfix still waits for the answer. False: it may have given up and
 * queued the mail, and what the lanes have of it would be a second one. */
bool milter_session_waits(const struct milter_session *);
/* It is not waited for any more, and gets no answer. */
void milter_session_gone(struct milter_session *);
/* Answers the mail if it is still waited for; divert_answered is called, from within this call
 * or later. */
void milter_session_answer(struct milter_session *, enum engine_answer, const char *reply);
/* Nothing more is to be done for the mail. One whose Postfix is gone ends. */
void milter_session_mail_over(struct milter_session *);

/* served.c: whether who connected to milter_socket may. */
bool served(int fd);
void served_find_postfix(const struct config *);

/* mail.c */
void mail_reset(struct mail *);
void mail_add_header(struct mail *, const char *name, const char *value);
void mail_end_header(struct mail *);
void mail_add_body(struct mail *, const void *data, size_t n);
/* resolved: the address as Postfix writes it ({rcpt_addr}), NULL when it did not say. */
void mail_add_recipient(struct mail *, char *const *argv, const char *destination,
                        const char *resolved);
void mail_set_sender(struct mail *, char *const *argv, const char *resolved);
/* Makes the arguments of MAIL say BODY=8BITMIME when the message itself says that it is 8-bit
 * (mime.h). At the end of the message. */
void mail_note_encoding(struct mail *);
/* Counts bytes more against milter_memory; false when that is used up. Given back by mail_reset. */
bool mail_claim(struct mail *, size_t bytes);

/* received.c: the line that Postfix hides from milters (it shows them all but its own), as
 * Postfix writes it. */
void received_line(const struct milter_session *, const struct mail *, struct buf *out);

/* rules.c: NULL, or why this mail is Postfix's (docs/design.md, "Mail in" 9); detail gets the
 * address or value it is about, or "". */
const char *rules_queue_reason(const struct mail *, char *detail, size_t size);
/* The last of them: what Postfix's maps say. Asked before (lookup.h); what is not known now
 * could not be found out in time. */
const char *rules_maps(const struct mail *, char *detail, size_t size);

/* divert.c: the message is complete. */
void divert_begin(struct milter_session *);
/* told: Postfix has the answer. */
void divert_answered(struct milter_session *, bool told);
/* Postfix is gone before the answer: everything is taken back as far as that goes. */
void divert_gone(struct milter_session *);

#endif
