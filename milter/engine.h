/* engine - the filter's side of the milter protocol, version 6, as Postfix speaks it. Pure: bytes come in, answers gather in `out`, and whoever has the socket is told
 * what each packet says.
 *
 *   O ─ C ─ H* ─ ┬ M ─ R* ─ L* ─ B* ─ E ──▶ ENGINE_END ─ engine_answer ─┐       D (macros) may stand before each of them
 *                └──────◀────────────── A (abort) ───────────────────────┘       K: as if the connection were new, Q: the end
 *
 * A packet is a length of four bytes (of what follows), a command byte and its data. It is agreed that nothing but the end of a message is answered, and that DATA,
 * the header's end and commands that Postfix does not know are not sent at all: Postfix then gathers what it has to say, and writes
 * it in two pieces, the envelope at DATA and the content at the last dot (measured; docs/benchmarks.md).
 *
 * Bounded: a packet's length; a body's bytes are passed on as they come, and never kept here. */
#ifndef DOVELANE_MILTER_ENGINE_H
#define DOVELANE_MILTER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem.h"

#define ENGINE_PACKET_MOST (1024 * 1024) /* Postfix sends at most 65,536 */
#define ENGINE_MACRO_STAGES 5            /* connect, helo, mail, rcpt, and all behind it */

enum engine_event {
    ENGINE_MORE,    /* all was used; more bytes are wanted */
    ENGINE_HELLO,   /* the negotiation: its answer is in out, and Postfix says nothing before it has that */
    ENGINE_CONNECT, /* text, address, port */
    ENGINE_HELO,    /* text */
    ENGINE_MAIL,    /* argv: a mail begins; what there was of another one is void */
    ENGINE_RCPT,    /* argv */
    ENGINE_HEADER,  /* text: name, value: everything behind the colon, folded lines joined by LF */
    ENGINE_BODY,    /* data, len: some of the content behind the header */
    ENGINE_END,     /* the message is complete: engine_answer. Postfix says nothing before that */
    ENGINE_ABORT,   /* there is no mail any more */
    ENGINE_QUIT,    /* close */
    ENGINE_BAD,     /* close; text says what is wrong with it */
};

struct engine {
    struct buf out; /* answers, to be sent */
    /* what the last event is about; valid until engine_feed is called again */
    const char *text, *value, *address;
    unsigned port;
    char **argv;    /* ends with NULL */
    const char *data;
    size_t len;
    /* the engine's own */
    enum { ENGINE_NEW, ENGINE_AGREED, ENGINE_CONNECTED, ENGINE_IN_MAIL, ENGINE_ANSWERING, ENGINE_CLOSED } state;
    struct buf part;   /* of a packet that is not complete */
    bool part_used;    /* the last event was made from it */
    size_t body_left;  /* bytes of the body packet that is under way */
    bool ends;         /* that packet is the message's last */
    size_t argv_size;
    struct buf macros[ENGINE_MACRO_STAGES];
};

/* *used_r: how many of the bytes belong to the event (all, with ENGINE_MORE); the rest is fed again, until ENGINE_MORE is said: an event may need no more bytes. Not
 * between ENGINE_END and engine_answer, nor after ENGINE_QUIT or ENGINE_BAD. */
enum engine_event engine_feed(struct engine *, const char *data, size_t len, size_t *used_r);

/* The value of a macro ("i", "{rcpt_host}") as given for this or an earlier step of this mail or session; NULL when it was not given. Valid until
 * engine_feed is called again. */
const char *engine_macro(const struct engine *, const char *name);

/* Before engine_answer. */
void engine_delete_recipient(struct engine *, const char *given);              /* "<a@example.net>", as RCPT gave it */
void engine_delete_header(struct engine *, const char *name, uint32_t number); /* of those with this name, 1 is the first */
void engine_progress(struct engine *);                                         /* Postfix's patience begins anew */

enum engine_answer { ENGINE_ACCEPT, ENGINE_DISCARD, ENGINE_REPLY };
/* The message's answer. reply: of ENGINE_REPLY, "451 4.3.0 ..." or "550 ..."; else NULL. */
void engine_answer(struct engine *, enum engine_answer, const char *reply);

void engine_free(struct engine *);

#endif
