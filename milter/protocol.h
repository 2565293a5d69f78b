/* protocol - the filter's side of the milter protocol, version 6, as Postfix speaks it. Pure: bytes
 * come in, answers gather in `out`, and the code that has the socket gets an event for each packet.
 *
 *   O ─ C ─ H* ─ ┬ M ─ R* ─ L* ─ B* ─ E ──▶ PROTOCOL_END ─ protocol_answer ─┐       D (macros) may stand before each of them
 *                └──────◀────────────── A (abort) ───────────────────────┘       K: as if the connection were new, Q: the end
 *
 * A packet is a length of four bytes (of what follows), a command byte and its data. Only the end
 * of a message is answered; the two sides agree on that. DATA, the header's end and commands that
 * Postfix does not know are not sent at all. Postfix then gathers what it has to say, and writes it
 * in two pieces: the envelope at DATA, the content at the last dot. (Measured;
 * docs/lab/gateway.md.)
 *
 * Bounded: a packet's length; a body's bytes are passed on as they come, and never kept here. */
#ifndef DOVELANE_MILTER_PROTOCOL_H
#define DOVELANE_MILTER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "milter/engine.h"
#include "lib/base/mem.h"

#define PROTOCOL_PACKET_MOST (1024 * 1024) /* Postfix sends at most 65,536 */
#define PROTOCOL_MACRO_STAGES 5            /* connect, helo, mail, rcpt, and all behind it */

enum protocol_event {
    PROTOCOL_MORE, /* all was used; more bytes are wanted */
    /* the negotiation: its answer is in out, and Postfix says nothing before it has that */
    PROTOCOL_HELLO,
    PROTOCOL_CONNECT, /* text, address, port */
    PROTOCOL_HELO,    /* text */
    PROTOCOL_MAIL,    /* argv: a mail begins; what there was of another one is void */
    PROTOCOL_RCPT,    /* argv */
    /* text: name, value: everything behind the colon, folded lines joined by LF */
    PROTOCOL_HEADER,
    PROTOCOL_BODY, /* data, len: some of the content behind the header */
    /* the message is complete: protocol_answer. Postfix says nothing before that */
    PROTOCOL_END,
    PROTOCOL_ABORT, /* there is no mail any more */
    PROTOCOL_QUIT,  /* close */
    PROTOCOL_BAD,   /* close; text says what is wrong with it */
};

struct protocol {
    struct buf out; /* answers, to be sent */
    /* what the last event is about; valid until protocol_feed is called again */
    const char *text, *value, *address;
    unsigned port;
    char **argv; /* ends with NULL */
    const char *data;
    size_t len;
    /* its own */
    enum {
        PROTOCOL_NEW,
        PROTOCOL_AGREED,
        PROTOCOL_CONNECTED,
        PROTOCOL_IN_MAIL,
        PROTOCOL_ANSWERING,
        PROTOCOL_CLOSED
    } state;
    struct buf part;  /* of a packet that is not complete */
    bool part_used;   /* the last event was made from it */
    size_t body_left; /* bytes of the body packet that is under way */
    bool ends;        /* that packet is the message's last */
    size_t argv_size;
    struct buf macros[PROTOCOL_MACRO_STAGES];
};

/* *used_r: how many of the bytes belong to the event (all, with PROTOCOL_MORE). The rest is fed
 * again, until it returns PROTOCOL_MORE: an event may need no more bytes. Not between PROTOCOL_END
 * and protocol_answer, nor after PROTOCOL_QUIT or PROTOCOL_BAD. */
enum protocol_event protocol_feed(struct protocol *, const char *data, size_t len, size_t *used_r);

/* The value of a macro ("i", "{rcpt_host}") as given for this or an earlier step of this mail or
 * session. NULL when it was not given. Valid until protocol_feed is called again. */
const char *protocol_macro(const struct protocol *, const char *name);

/* Before protocol_answer. */
/* "<a@example.net>", as RCPT gave it */
void protocol_delete_recipient(struct protocol *, const char *given);
/* of those with this name, 1 is the first */
void protocol_delete_header(struct protocol *, const char *name, uint32_t number);
/* Postfix's patience begins anew */
void protocol_progress(struct protocol *);

/* The message's answer, as engine.h has it. */
void protocol_answer(struct protocol *, enum engine_answer, const char *reply);

void protocol_free(struct protocol *);

#endif
