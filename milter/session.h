/* session - what the milter knows of one SMTP session and of the mail that is under way in it.
 *
 * Rules, maps and the store are on one thread and one loop; postmap(1) is run by others (lookup.h).
 * What comes before the end of a message is heard in the engine's thread: that of the loop, or one
 * of libmilter's.
 *
 *   an engine (engine.h) ── events ──▶ session.c ──▶ mail.c ── at the end of a message ──▶ divert_rules.c: Postfix's queue?
 *                                                                                                               divert.c: lanes, and what Postfix is answered */
#ifndef DOVELANE_MILTER_SESSION_H
#define DOVELANE_MILTER_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"
#include "lib/ingress/mail_entries.h"
#include "lib/postfix/lookup.h"
#include "milter/engine.h"
#include "milter/mail.h"
#include "milter/milter.h"

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
     * waiting (clock_boottime) */
    double since;
    /* of the SMTP session */
    char *client_name, *client_addr, *client_port, *helo, *host;
    char *tls_version, *tls_cipher, *tls_bits, *tls_subject, *tls_issuer;
    /* of the mail */
    struct mail mail;
    enum stage stage;
    struct lookup *lookup;
    struct mail_entries entries;
    struct buf body;
    bool stored;  /* the store has the request */
    bool revoked; /* store_revoke was called */
    double ended; /* the message was complete */
    double began; /* storing did */
};

/* What an engine calls. A session that is not between milter_session_end and `over`
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
/* The answer was ordered too long ago to be given. True: it still holds, and is to be given now. */
bool milter_session_late(struct milter_session *);
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

#endif
