/* The protocol has no document but Sendmail's libmilter and Postfix's milter8.c; names of commands and flags are theirs. */
#include "engine.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 5 /* length and command */

enum action { ADDS_HEADERS = 0x1, CHANGES_HEADERS = 0x10, DELETES_RECIPIENTS = 0x8, CHOOSES_MACROS = 0x100 };

enum step {
    NO_EOH = 0x40,
    NO_UNKNOWN = 0x100,
    NO_DATA = 0x200,
    HEADER_SPACE = 0x100000, /* the value of a header is everything behind its colon */
    NO_REPLIES = 0x80 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000 | 0x40000 | 0x80000,
};

enum { VERSION = 6 };

static enum engine_event bad(struct engine *e, const char *what)
{
    e->text = what;
    e->state = ENGINE_CLOSED;
    return ENGINE_BAD;
}

/* ---- answers ---- */

static void add_number(struct buf *out, uint32_t n)
{
    n = htonl(n);
    buf_add(out, &n, sizeof n);
}

static void add_packet(struct engine *e, char command, const void *data, size_t len)
{
    add_number(&e->out, (uint32_t)len + 1);
    buf_addc(&e->out, command);
    if (len)
        buf_add(&e->out, data, len);
}

void engine_delete_recipient(struct engine *e, const char *given)
{
    add_packet(e, '-', given, strlen(given) + 1);
}

void engine_delete_header(struct engine *e, const char *name, uint32_t number)
{
    struct buf data = {0};
    add_number(&data, number);
    buf_add(&data, name, strlen(name) + 1);
    buf_addc(&data, '\0'); /* an empty value: away with it */
    add_packet(e, 'm', data.data, data.len);
    buf_free(&data);
}

void engine_progress(struct engine *e)
{
    add_packet(e, 'p', NULL, 0);
}

static void forget_macros(struct engine *e, unsigned from)
{
    for (unsigned i = from; i < ENGINE_MACRO_STAGES; i++)
        e->macros[i].len = 0;
}

void engine_answer(struct engine *e, enum engine_answer answer, const char *reply)
{
    static const char command[] = {'a', 'd', 'y'};
    add_packet(e, command[answer], reply, answer == ENGINE_REPLY ? strlen(reply) + 1 : 0);
    e->state = ENGINE_CONNECTED;
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

static enum engine_event negotiate(struct engine *e, const char *data, size_t len)
{
    static const uint32_t needed = HEADER_SPACE | NO_REPLIES;
    if (len < 12)
        return bad(e, "a negotiation that is too short");
    uint32_t actions = number_at(data + 4), steps = number_at(data + 8);
    if (number_at(data) < VERSION || !(actions & DELETES_RECIPIENTS) || (steps & needed) != needed)
        return bad(e, "the mail server does not offer what is needed (milter protocol 6, delrcpt, leading space, no replies): Postfix has it since 2.6");
    struct buf agreed = {0};
    add_number(&agreed, VERSION);
    add_number(&agreed, DELETES_RECIPIENTS | (actions & (CHOOSES_MACROS | CHANGES_HEADERS)));
    add_number(&agreed, needed | (steps & (NO_EOH | NO_UNKNOWN | NO_DATA)));
    if (actions & CHOOSES_MACROS) {
        add_wish(&agreed, 0, "j {client_name}");
        add_wish(&agreed, 1, "{tls_version} {cipher} {cipher_bits} {cert_subject} {cert_issuer}");
        add_wish(&agreed, 2, "{auth_type} {auth_authen} {auth_author} {mail_addr}");
        add_wish(&agreed, 3, "{rcpt_mailer} {rcpt_host} {rcpt_addr}");
        add_wish(&agreed, 5, "i"); /* the end of the message */
    }
    add_packet(e, 'O', agreed.data, agreed.len);
    buf_free(&agreed);
    e->state = ENGINE_AGREED;
    return ENGINE_HELLO;
}

/* ---- macros ---- */

static int stage_of(char command)
{
    switch (command) {
    case 'C': return 0;
    case 'H': return 1;
    case 'M': return 2;
    case 'R': return 3;
    default: return 4;
    }
}

/* Data: the command that they belong to, then names and values. What was said of this step and later ones before is void. */
static enum engine_event take_macros(struct engine *e, const char *data, size_t len)
{
    if (!len || (len > 1 && data[len - 1]))
        return bad(e, "macros without an end");
    unsigned stage = (unsigned)stage_of(*data);
    forget_macros(e, stage);
    if (len > 1)
        buf_add(&e->macros[stage], data + 1, len - 1);
    return ENGINE_MORE;
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

const char *engine_macro(const struct engine *e, const char *name)
{
    for (unsigned i = ENGINE_MACRO_STAGES; i-- > 0;) {
        const char *value = find_macro(&e->macros[i], name);
        if (value)
            return value;
    }
    return NULL;
}

/* ---- packets ---- */

/* Texts that follow each other, each with its NUL. */
static bool texts(struct engine *e, const char *data, size_t len)
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
static enum engine_event take_client(struct engine *e, const char *data, size_t len)
{
    size_t name = strnlen(data, len);
    e->address = NULL;
    e->port = 0;
    if (name + 1 >= len)
        return bad(e, "a connection without a name");
    char family = data[name + 1];
    if ((family == '4' || family == '6') && len > name + 4 && !data[len - 1]) {
        uint16_t port;
        memcpy(&port, data + name + 2, sizeof port);
        e->port = ntohs(port);
        e->address = data + name + 4;
    }
    e->text = data;
    e->state = ENGINE_CONNECTED;
    return ENGINE_CONNECT;
}

static enum engine_event take_abort(struct engine *e)
{
    forget_macros(e, 2);
    if (e->state == ENGINE_IN_MAIL)
        e->state = ENGINE_CONNECTED;
    return ENGINE_ABORT;
}

static enum engine_event in_mail(struct engine *e, char command, const char *data, size_t len)
{
    if (e->state != ENGINE_IN_MAIL)
        return bad(e, "a recipient or content without a sender");
    if (!texts(e, data, len))
        return bad(e, "a recipient or header without an end");
    if (command == 'R')
        return ENGINE_RCPT;
    if (!e->argv[1])
        return bad(e, "a header without a value");
    e->text = e->argv[0];
    e->value = e->argv[1];
    return ENGINE_HEADER;
}

static enum engine_event packet(struct engine *e, char command, const char *data, size_t len)
{
    if (command == 'Q') {
        e->state = ENGINE_CLOSED;
        return ENGINE_QUIT;
    }
    if ((e->state == ENGINE_NEW) != (command == 'O'))
        return bad(e, e->state == ENGINE_NEW ? "no negotiation first" : "a second negotiation");
    if (e->state == ENGINE_AGREED && !strchr("CDAKU", command))
        return bad(e, "a mail of an unknown client");
    switch (command) {
    case 'O': return negotiate(e, data, len);
    case 'D': return take_macros(e, data, len);
    case 'C': return take_client(e, data, len);
    case 'H':
        if (!texts(e, data, len))
            return bad(e, "a HELO without an end");
        e->text = data;
        return ENGINE_HELO;
    case 'M':
        if (!texts(e, data, len))
            return bad(e, "a sender without an end");
        e->state = ENGINE_IN_MAIL;
        return ENGINE_MAIL;
    case 'R':
    case 'L': return in_mail(e, command, data, len);
    case 'A': return take_abort(e);
    case 'K':
        forget_macros(e, 0);
        e->state = ENGINE_AGREED;
        return ENGINE_ABORT;
    case 'T':
    case 'N':
    case 'U': return ENGINE_MORE;
    }
    return bad(e, "an unknown command");
}

/* A packet of body is passed on in the pieces in which it comes. */
static enum engine_event body(struct engine *e, const char *data, size_t len, size_t *used)
{
    size_t n = len < e->body_left ? len : e->body_left;
    if (n) {
        e->data = data;
        e->len = n;
        e->body_left -= n;
        *used += n;
        return ENGINE_BODY;
    }
    if (e->body_left || !e->ends)
        return ENGINE_MORE;
    e->ends = false;
    e->state = ENGINE_ANSWERING;
    return ENGINE_END;
}

/* Its head is there, the rest may not be. */
static enum engine_event begin_body(struct engine *e, char command, size_t len)
{
    if (e->state != ENGINE_IN_MAIL)
        return bad(e, "content without a sender");
    e->body_left = len;
    e->ends = command == 'E';
    return ENGINE_MORE;
}

static bool is_body(char command)
{
    return command == 'B' || command == 'E';
}

/* Some bytes of a packet are kept from before. */
static enum engine_event go_on(struct engine *e, const char *data, size_t len, size_t *used)
{
    struct buf *p = &e->part;
    for (;;) {
        size_t want = HEAD;
        if (p->len >= HEAD) {
            uint32_t size = number_at(p->data);
            if (!size || size > ENGINE_PACKET_MOST)
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
            return ENGINE_MORE;
        buf_add(p, data + *used, n);
        *used += n;
    }
}

static enum engine_event whole(struct engine *e, const char *data, size_t len, size_t *used)
{
    if (len - *used < HEAD)
        return go_on(e, data, len, used);
    const char *at = data + *used;
    uint32_t size = number_at(at);
    if (!size || size > ENGINE_PACKET_MOST)
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

enum engine_event engine_feed(struct engine *e, const char *data, size_t len, size_t *used)
{
    *used = 0;
    if (e->part_used)
        e->part.len = 0;
    e->part_used = false;
    for (;;) {
        enum engine_event event = body(e, data + *used, len - *used, used);
        if (event != ENGINE_MORE)
            return event;
        if (*used == len)
            return ENGINE_MORE;
        event = e->part.len ? go_on(e, data, len, used) : whole(e, data, len, used);
        if (event != ENGINE_MORE)
            return event;
        if (e->part_used)
            e->part.len = 0;
        e->part_used = false;
    }
}

void engine_free(struct engine *e)
{
    buf_free(&e->out);
    buf_free(&e->part);
    free(e->argv);
    for (int i = 0; i < ENGINE_MACRO_STAGES; i++)
        buf_free(&e->macros[i]);
}
