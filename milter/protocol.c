/* The protocol has no document but Sendmail's libmilter and Postfix's milter8.c; names of
 * commands and flags are theirs. */
#include "milter/protocol.h"

#include <arpa/inet.h>
#include <libmilter/mfapi.h>
#include <libmilter/mfdef.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 5 /* length and command */

/* Steps that are not answered: all but the negotiation and the end of a message. */
#define NO_REPLIES                                                                  \
    (SMFIP_NR_HDR | SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT | \
     SMFIP_NR_DATA | SMFIP_NR_UNKN | SMFIP_NR_EOH | SMFIP_NR_BODY)
#define NEEDED (SMFIP_HDR_LEADSPC | NO_REPLIES)
/* if the mail server can leave it out */
#define NOT_SENT (SMFIP_NOEOH | SMFIP_NOUNKNOWN | SMFIP_NODATA)

static enum protocol_event bad(struct protocol *e, const char *what)
{
    e->text = what;
    e->state = PROTOCOL_CLOSED;
    return PROTOCOL_BAD;
}

/* ---- answers ---- */

static void add_number(struct buf *out, uint32_t n)
{
    n = htonl(n);
    buf_add(out, &n, sizeof n);
}

static void add_packet(struct protocol *e, char command, const void *data, size_t len)
{
    add_number(&e->out, (uint32_t)len + 1);
    buf_addc(&e->out, command);
    if (len)
        buf_add(&e->out, data, len);
}

void protocol_delete_recipient(struct protocol *e, const char *given)
{
    add_packet(e, SMFIR_DELRCPT, given, strlen(given) + 1);
}

void protocol_delete_header(struct protocol *e, const char *name, uint32_t number)
{
    struct buf data = {0};
    add_number(&data, number);
    buf_add(&data, name, strlen(name) + 1);
    buf_addc(&data, '\0'); /* an empty value: away with it */
    add_packet(e, SMFIR_CHGHEADER, data.data, data.len);
    buf_free(&data);
}

void protocol_progress(struct protocol *e)
{
    add_packet(e, SMFIR_PROGRESS, NULL, 0);
}

static void forget_macros(struct protocol *e, unsigned from)
{
    for (unsigned i = from; i < PROTOCOL_MACRO_STAGES; i++)
        e->macros[i].len = 0;
}

void protocol_answer(struct protocol *e, enum engine_answer answer, const char *reply)
{
    static const char command[] = {[ENGINE_ACCEPT] = SMFIR_ACCEPT,
                                   [ENGINE_DISCARD] = SMFIR_DISCARD,
                                   [ENGINE_REPLY] = SMFIR_REPLYCODE};
    add_packet(e, command[answer], reply, answer == ENGINE_REPLY ? strlen(reply) + 1 : 0);
    e->state = PROTOCOL_CONNECTED;
    forget_macros(e, 2);
}

/* ---- negotiation ---- */

static uint32_t number_at(const char *data)
{
    uint32_t n;
    memcpy(&n, data, sizeof n);
    return ntohl(n);
}

static void add_wish(struct buf *out, uint32_t stage, const char *macros)
{
    add_number(out, stage);
    buf_add(out, macros, strlen(macros) + 1);
}

static enum protocol_event negotiate(struct protocol *e, const char *data, size_t len)
{
    if (len < MILTER_OPTLEN)
        return bad(e, "a negotiation that is too short");
    uint32_t actions = number_at(data + 4), steps = number_at(data + 8);
    if (number_at(data) < SMFI_PROT_VERSION || !(actions & SMFIF_DELRCPT) ||
        (steps & NEEDED) != NEEDED)
        return bad(e, "the mail server does not offer what is needed (milter protocol 6, delrcpt, "
                      "leading space, no replies): Postfix has it since 2.6");
    struct buf agreed = {0};
    add_number(&agreed, SMFI_PROT_VERSION);
    add_number(&agreed, SMFIF_DELRCPT | (actions & (SMFIF_SETSYMLIST | SMFIF_CHGHDRS)));
    add_number(&agreed, NEEDED | (steps & NOT_SENT));
    if (actions & SMFIF_SETSYMLIST) {
        add_wish(&agreed, SMFIM_CONNECT, "j {client_name}");
        add_wish(&agreed, SMFIM_HELO,
                 "{tls_version} {cipher} {cipher_bits} {cert_subject} {cert_issuer}");
        add_wish(&agreed, SMFIM_ENVFROM, "{auth_type} {auth_authen} {auth_author} {mail_addr}");
        add_wish(&agreed, SMFIM_ENVRCPT, "{rcpt_mailer} {rcpt_host} {rcpt_addr}");
        add_wish(&agreed, SMFIM_EOM, "i");
    }
    add_packet(e, SMFIC_OPTNEG, agreed.data, agreed.len);
    buf_free(&agreed);
    e->state = PROTOCOL_AGREED;
    return PROTOCOL_HELLO;
}

/* ---- macros ---- */

static int stage_of(char command)
{
    switch (command) {
    case SMFIC_CONNECT: return 0;
    case SMFIC_HELO: return 1;
    case SMFIC_MAIL: return 2;
    case SMFIC_RCPT: return 3;
    default: return 4;
    }
}

/* Data: the command that they belong to, then names and values. What was said of this step and
 * later ones before is void. */
static enum protocol_event take_macros(struct protocol *e, const char *data, size_t len)
{
    if (!len || (len > 1 && data[len - 1]))
        return bad(e, "macros without an end");
    unsigned stage = (unsigned)stage_of(*data);
    forget_macros(e, stage);
    if (len > 1)
        buf_add(&e->macros[stage], data + 1, len - 1);
    return PROTOCOL_MORE;
}

static const char *find_macro(const struct buf *b, const char *name)
{
    const char *s = b->data;
    if (!b->len)
        return NULL;
    for (const char *end = s + b->len; s < end;) {
        const char *value = s + strlen(s) + 1;
        if (value >= end)
            return NULL;
        if (!strcmp(s, name))
            return value;
        s = value + strlen(value) + 1;
    }
    return NULL;
}

const char *protocol_macro(const struct protocol *e, const char *name)
{
    for (unsigned i = PROTOCOL_MACRO_STAGES; i-- > 0;) {
        const char *value = find_macro(&e->macros[i], name);
        if (value)
            return value;
    }
    return NULL;
}

/* ---- packets ---- */

/* Texts that follow each other, each with its NUL. */
static bool texts(struct protocol *e, const char *data, size_t len)
{
    size_t n = 0;
    if (!len || data[len - 1])
        return false;
    for (const char *s = data; s < data + len; s += strlen(s) + 1) {
        if (n + 2 > e->argv_size) {
            e->argv_size = e->argv_size ? 2 * e->argv_size : 8;
            e->argv = mem_grow(e->argv, e->argv_size * sizeof *e->argv);
        }
        e->argv[n++] = (char *)s;
    }
    e->argv[n] = NULL;
    return true;
}

/* Name, NUL, family, and for addresses port, text, NUL. */
static enum protocol_event take_client(struct protocol *e, const char *data, size_t len)
{
    size_t name = strnlen(data, len);
    e->address = NULL;
    e->port = 0;
    if (name + 1 >= len)
        return bad(e, "a connection without a name");
    char family = data[name + 1];
    if ((family == SMFIA_INET || family == SMFIA_INET6) && len > name + 4 && !data[len - 1]) {
        uint16_t port;
        memcpy(&port, data + name + 2, sizeof port);
        e->port = ntohs(port);
        e->address = data + name + 4;
    }
    e->text = data;
    e->state = PROTOCOL_CONNECTED;
    return PROTOCOL_CONNECT;
}

static enum protocol_event take_abort(struct protocol *e)
{
    forget_macros(e, 2);
    if (e->state == PROTOCOL_IN_MAIL)
        e->state = PROTOCOL_CONNECTED;
    return PROTOCOL_ABORT;
}

static enum protocol_event in_mail(struct protocol *e, char command, const char *data, size_t len)
{
    if (e->state != PROTOCOL_IN_MAIL)
        return bad(e, "a recipient or content without a sender");
    if (!texts(e, data, len))
        return bad(e, "a recipient or header without an end");
    if (command == SMFIC_RCPT)
        return PROTOCOL_RCPT;
    if (!e->argv[1])
        return bad(e, "a header without a value");
    e->text = e->argv[0];
    e->value = e->argv[1];
    return PROTOCOL_HEADER;
}

/* What may come before the client is known. */
static const char BEFORE_CLIENT[] = {SMFIC_CONNECT, SMFIC_MACRO,   SMFIC_ABORT,
                                     SMFIC_QUIT_NC, SMFIC_UNKNOWN, '\0'};

static enum protocol_event packet(struct protocol *e, char command, const char *data, size_t len)
{
    if (command == SMFIC_QUIT) {
        e->state = PROTOCOL_CLOSED;
        return PROTOCOL_QUIT;
    }
    if ((e->state == PROTOCOL_NEW) != (command == SMFIC_OPTNEG))
        return bad(e, e->state == PROTOCOL_NEW ? "no negotiation first" : "a second negotiation");
    if (e->state == PROTOCOL_AGREED && !strchr(BEFORE_CLIENT, command))
        return bad(e, "a mail of an unknown client");
    switch (command) {
    case SMFIC_OPTNEG: return negotiate(e, data, len);
    case SMFIC_MACRO: return take_macros(e, data, len);
    case SMFIC_CONNECT: return take_client(e, data, len);
    case SMFIC_HELO:
        if (!texts(e, data, len))
            return bad(e, "a HELO without an end");
        e->text = data;
        return PROTOCOL_HELO;
    case SMFIC_MAIL:
        if (!texts(e, data, len))
            return bad(e, "a sender without an end");
        e->state = PROTOCOL_IN_MAIL;
        return PROTOCOL_MAIL;
    case SMFIC_RCPT:
    case SMFIC_HEADER: return in_mail(e, command, data, len);
    case SMFIC_ABORT: return take_abort(e);
    case SMFIC_QUIT_NC:
        forget_macros(e, 0);
        e->state = PROTOCOL_AGREED;
        return PROTOCOL_ABORT;
    case SMFIC_DATA:
    case SMFIC_EOH:
    case SMFIC_UNKNOWN: return PROTOCOL_MORE;
    }
    return bad(e, "an unknown command");
}

/* A packet of body is passed on in the pieces in which it comes. */
static enum protocol_event body(struct protocol *e, const char *data, size_t len, size_t *used)
{
    size_t n = len < e->body_left ? len : e->body_left;
    if (n) {
        e->data = data;
        e->len = n;
        e->body_left -= n;
        *used += n;
        return PROTOCOL_BODY;
    }
    if (e->body_left || !e->ends)
        return PROTOCOL_MORE;
    e->ends = false;
    e->state = PROTOCOL_ANSWERING;
    return PROTOCOL_END;
}

/* Its head is there, the rest may not be. */
static enum protocol_event begin_body(struct protocol *e, char command, size_t len)
{
    if (e->state != PROTOCOL_IN_MAIL)
        return bad(e, "content without a sender");
    e->body_left = len;
    e->ends = command == SMFIC_BODYEOB;
    return PROTOCOL_MORE;
}

static bool is_body(char command)
{
    return command == SMFIC_BODY || command == SMFIC_BODYEOB;
}

/* Some bytes of a packet are kept from before. */
static enum protocol_event go_on(struct protocol *e, const char *data, size_t len, size_t *used)
{
    struct buf *p = &e->part;
    for (;;) {
        size_t want = HEAD;
        if (p->len >= HEAD) {
            uint32_t size = number_at(p->data);
            if (!size || size > PROTOCOL_PACKET_MOST)
                return bad(e, "a packet's length");
            if (is_body(p->data[4])) {
                p->len = 0;
                return begin_body(e, p->data[4], size - 1);
            }
            want = 4 + (size_t)size;
            if (p->len == want) {
                e->part_used = true;
                return packet(e, p->data[4], p->data + HEAD, size - 1);
            }
        }
        size_t n = want - p->len < len - *used ? want - p->len : len - *used;
        if (!n)
            return PROTOCOL_MORE;
        buf_add(p, data + *used, n);
        *used += n;
    }
}

static enum protocol_event whole(struct protocol *e, const char *data, size_t len, size_t *used)
{
    if (len - *used < HEAD)
        return go_on(e, data, len, used);
    const char *at = data + *used;
    uint32_t size = number_at(at);
    if (!size || size > PROTOCOL_PACKET_MOST)
        return bad(e, "a packet's length");
    if (is_body(at[4])) {
        *used += HEAD;
        return begin_body(e, at[4], size - 1);
    }
    if (len - *used < 4 + (size_t)size)
        return go_on(e, data, len, used);
    *used += 4 + (size_t)size;
    return packet(e, at[4], at + HEAD, size - 1);
}

enum protocol_event protocol_feed(struct protocol *e, const char *data, size_t len, size_t *used)
{
    *used = 0;
    if (e->part_used)
        e->part.len = 0;
    e->part_used = false;
    for (;;) {
        enum protocol_event event = body(e, data + *used, len - *used, used);
        if (event != PROTOCOL_MORE)
            return event;
        if (*used == len)
            return PROTOCOL_MORE;
        event = e->part.len ? go_on(e, data, len, used) : whole(e, data, len, used);
        if (event != PROTOCOL_MORE)
            return event;
        if (e->part_used)
            e->part.len = 0;
        e->part_used = false;
    }
}

void protocol_free(struct protocol *e)
{
    buf_free(&e->out);
    buf_free(&e->part);
    free(e->argv);
    for (int i = 0; i < PROTOCOL_MACRO_STAGES; i++)
        buf_free(&e->macros[i]);
}
