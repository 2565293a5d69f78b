/* session - one connection of Postfix's proxy client, and the mail that it brings. */
#ifndef DOVELANE_PROXY_SESSION_H
#define DOVELANE_PROXY_SESSION_H

#include <ev.h>

#include "lib/ingress/mail_entries.h"
#include "proxy/engine.h"
#include "lib/postfix/lookup.h"
#include "proxy/next.h"
#include "proxy/divert_rules.h"

#define MAIL_ID 17

/* What becomes of the content. */
enum course {
    COURSE_NONE,
    COURSE_LOOKUP,  /* Postfix's maps are asked */
    COURSE_BUFFER,  /* it is kept until its end: some of it is for lanes */
    COURSE_OPENING, /* proxy_next is to have all of it, and is asked first */
    COURSE_STREAM,  /* it goes on to proxy_next as it comes */
    COURSE_SINK,    /* proxy_next does not want it any more: it is read to its end, and refused */
    COURSE_OUTCOME, /* it is complete: outcome.c */
};

/* Where the outcome stands. */
enum outcome {
    /* proxy_next is asked whether it takes its recipients; nothing is stored yet */
    OUTCOME_PREPARE,
    /* the store works; proxy_next, if it is concerned, has everything but the last dot */
    OUTCOME_STORE,
    OUTCOME_DOT,    /* everything is stored; proxy_next has the last dot */
    OUTCOME_REST,   /* proxy_next gets what is nowhere */
    OUTCOME_REVOKE, /* what is stored is taken back, then `refusal` is the answer */
    OUTCOME_LATE,   /* the store takes back what it promised too long ago */
};

struct proxy_session {
    struct proxy_session *prev, *next_session;
    int fd;
    ev_io reading, writing;
    double last;  /* when Postfix said something, or was told (clock_monotonic) */
    double idle;  /* seconds without a mail since this process is to end */
    bool closing; /* once `out` is written */
    bool gone;    /* Postfix is not there any more; the outcome of its mail is awaited */
    bool full;    /* proxy_next is slow: nothing is read */
    struct engine engine;
    struct buf pending; /* came before it was wanted */
    /* the mail */
    enum course course;
    enum outcome outcome;
    char id[MAIL_ID];
    const char *reason; /* why it is Postfix's, or some recipients are; NULL: none is */
    char detail[RULES_DETAIL];
    char unstored[MAIL_ENTRIES_WHY]; /* "store (...)" when not all of it is stored; else "" */
    /* all recipients went to proxy_next: why, and what it answered; else "" */
    char handed[1024];
    char handed_next[301]; /* what proxy_next said to it */
    char refusal[620];
    struct postfix_header header;
    struct lookup *lookup;
    struct next *next;
    struct envelope envelope; /* borrows, but for sender_args and queue_id */
    struct mail_entries entries;
    bool stored;          /* the store has the request */
    bool *which, *passed; /* per recipient: proxy_next gets it now; has it */
    size_t claimed;       /* of proxy.bytes */
    double started;
    double ended; /* the content was complete */
};

void proxy_session_new(int fd);
size_t proxy_session_count(void);
/* This process is to end, and `seconds` have passed since the last call: sessions end after their
 * mail. One without a mail has some seconds left. Postfix connects for a mail, may have taken MAIL
 * (its answer was there), and brings it with RCPT; behind the mail it says QUIT. */
void proxy_session_leave(double seconds);
/* Those that were silent for too long. Once in a while. */
void proxy_session_sweep(void);

/* For outcome.c: the answer to a complete mail, and what goes with it. False: Postfix did not
 * get it. */
bool proxy_session_answer(struct proxy_session *, const char *reply);
/* Whatever the mail had is given back; a session whose Postfix is gone ends. */
void proxy_session_mail_over(struct proxy_session *);
bool proxy_session_claim(struct proxy_session *, size_t bytes);

/* outcome.c: the content is complete. */
void outcome_begin(struct proxy_session *);
/* Postfix is gone: everything is taken back as far as that goes. */
void outcome_gone(struct proxy_session *);
void outcome_next(struct proxy_session *, enum next_event, const char *reply, bool unsure);

#endif
