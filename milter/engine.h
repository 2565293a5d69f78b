/* engine - what a milter hears and answers, whichever code speaks the milter protocol with Postfix.
 *
 *   Postfix ── packets ──▶ engine ── what it hears: milter_session_connect ... milter_session_end ──▶ session.c, divert.c
 *           ◀── packets ──        ◀── what is answered: struct engine, below ──────────
 *
 *   engine_own.c        protocol.c reads and writes the packets; all connections are on the loop
 *   engine_libmilter.c  libmilter does, on threads of its own
 *
 * A session hears events (session.h) one after the other, from connect to body in whatever
 * thread the engine has. With milter_session_end the session goes to the loop, and is there
 * until `over` is called. */
#ifndef DOVELANE_MILTER_ENGINE_H
#define DOVELANE_MILTER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct listener;
struct listener_options;
struct program;

/* The answer to a message. ENGINE_REPLY has a text: "451 4.3.0 ..." or "550 5.6.0 ...". */
enum engine_answer { ENGINE_ACCEPT, ENGINE_DISCARD, ENGINE_REPLY };

struct engine {
    const char *name; /* the setting's word */

    /* Listens, as program_listen does; what its options say of the loop and of connections is
     * the engine's. */
    struct listener *(*open)(const struct program *, struct listener_options *);
    /* No more connections but those that wait there (listener_leave). */
    void (*close)(void);
    /* The program ends: sessions without a mail end now; with `all` those, too, whose mail is
     * not complete. How many are left: they end after their answer. */
    size_t (*leave)(bool all);
    /* This process stood still from then on (clock_boottime). NULL: nothing to do. */
    void (*stood_still)(double since);

    /* `peer` is the engine's side of a session (milter_session_new). */

    /* The value of a macro ("{rcpt_host}", "j") as given for this or an earlier step of this mail
     * or session. NULL when it was not given. From within an event; valid until its end. */
    const char *(*macro)(void *peer, const char *name);

    /* Between milter_session_end and `answer`. */
    /* "<a@example.net>", as RCPT gave it */
    void (*delete_recipient)(void *peer, const char *given);
    /* of those with this name, 1 is the first */
    void (*delete_header)(void *peer, const char *name, uint32_t number);
    /* Postfix's patience begins anew. False: Postfix is gone. Who finds that out later calls
     * milter_session_lost. */
    bool (*progress)(void *peer);

    /* Answers the message. milter_session_answered is called, from within this call or later:
     * whether Postfix was told. Before, milter_session_late asks if it still holds. */
    void (*answer)(void *peer, enum engine_answer, const char *reply);
    /* There will be no answer: Postfix must not wait for one, as far as the engine can see to
     * that. */
    void (*hang_up)(void *peer);
    /* Nothing more is to be done for the mail. A session that was hung up ends; it may be freed
     * by this call. */
    void (*over)(void *peer);
};

extern const struct engine engine_own, engine_libmilter;

#endif
