/* The milter's engine with any bytes: in one piece and in small ones it says the same; it answers
 * nothing but the negotiation and the end of a message; what it gives away are texts that end.
 *
 * The bytes as they are, or (mostly) each byte of less than 32 stands for a packet as Postfix
 * sends it, so that more than the negotiation is reached. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "milter/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

/* Command and data; the length is put before them. */
#define PACKET(text)          \
    {                         \
        text, sizeof text - 1 \
    }

static const struct {
    const char *bytes;
    size_t len;
} packets[32] = {
    [1] = PACKET("O\0\0\0\6\0\0\1\xff\0\x1f\xff\xff"),
    [2] = PACKET("DCj\0mx\0"),
    [3] = PACKET("Cclient\0"
                 "4\x1f\x90"
                 "192.0.2.1\0"),
    [4] = PACKET("Hx\0"),
    [5] = PACKET("DM{mail_addr}\0a@b\0"),
    [6] = PACKET("M<a@b>\0SIZE=1\0"),
    [7] = PACKET("R<c@d>\0NOTIFY=NEVER\0"),
    [8] = PACKET("LSubject\0 x\0"),
    [14] = PACKET("Bbody\r\n"),
    [15] = PACKET("E"),
    [16] = PACKET("Eend\r\n"),
    [17] = PACKET("A"),
    [18] = PACKET("K"),
    [19] = PACKET("Q"),
    [20] = PACKET("N"),
    [21] = PACKET("T"),
    [22] = PACKET("DEi\0id\0"),
    [23] = PACKET("Ufoo\0"),
};

static void translate(const uint8_t *data, size_t size, struct buf *out)
{
    for (size_t i = 0; i < size; i++) {
        size_t len = data[i] < 32 ? packets[data[i]].len : 0;
        const char length[4] = {0, 0, 0, (char)len};
        if (len) {
            buf_add(out, length, sizeof length);
            buf_add(out, packets[data[i]].bytes, len);
        } else {
            buf_addc(out, (char)data[i]);
        }
    }
}

static void note_macro(const struct protocol *e, const char *name, struct buf *out)
{
    const char *value = protocol_macro(e, name);
    buf_printf(out, "(%s)", value ? value : "-");
}

/* Body comes in other pieces when the bytes do: only what it adds up to counts. */
static void note(struct protocol *e, enum protocol_event event, struct buf *out)
{
    switch (event) {
    case PROTOCOL_CONNECT:
        note_macro(e, "j", out);
        buf_printf(out, "C[%s|%s|%u]", e->text, e->address ? e->address : "-", e->port);
        break;
    case PROTOCOL_HELO: buf_printf(out, "H[%s]", e->text); break;
    case PROTOCOL_MAIL:
    case PROTOCOL_RCPT:
        note_macro(e, "{mail_addr}", out);
        buf_addc(out, event == PROTOCOL_MAIL ? 'M' : 'R');
        require(e->argv[0] != NULL, "no address");
        for (char **arg = e->argv; *arg; arg++)
            buf_printf(out, "[%s]", *arg);
        break;
    case PROTOCOL_HEADER: buf_printf(out, "L[%s|%s]", e->text, e->value); break;
    case PROTOCOL_BODY:
        require(e->len > 0, "an empty piece of body");
        buf_add(out, e->data, e->len);
        break;
    case PROTOCOL_ABORT: buf_adds(out, "A"); break;
    case PROTOCOL_QUIT: buf_adds(out, "Q"); break;
    case PROTOCOL_BAD: buf_printf(out, "!%s", e->text); break;
    case PROTOCOL_END: note_macro(e, "i", out); break;
    case PROTOCOL_HELLO: require(e->out.len > 0, "a negotiation without an answer"); break;
    case PROTOCOL_MORE: break;
    }
}

static void answer(struct protocol *e, unsigned choice)
{
    static const char *const reply[] = {NULL, NULL, "451 4.3.0 no"};
    if (choice % 3 == 0)
        protocol_delete_recipient(e, "<c@d>");
    protocol_answer(e, (enum engine_answer)(choice % 3), reply[choice % 3]);
}

static void feed(const struct buf *in, size_t piece, unsigned choice, struct buf *out)
{
    struct protocol e = {0};
    enum protocol_event event = PROTOCOL_MORE;
    size_t answered = 0, negotiated = 0;
    for (size_t at = 0, used; (at < in->len || event != PROTOCOL_MORE) && event != PROTOCOL_BAD &&
                              event != PROTOCOL_QUIT;
         at += used) {
        size_t n = in->len - at < piece ? in->len - at : piece;
        size_t before = e.out.len;
        event = protocol_feed(&e, in->data + at, n, &used);
        require(used <= n && (event != PROTOCOL_MORE || used == n), "not all used, nothing said");
        negotiated += e.out.len != before;
        note(&e, event, out);
        if (event == PROTOCOL_END) {
            answer(&e, choice);
            answered++;
        }
        require(e.part.len <= 4 + PROTOCOL_PACKET_MOST, "too much kept");
    }
    require(negotiated <= 1 && (!answered || negotiated), "an answer that nobody asked for");
    if (e.out.len)
        buf_add(out, e.out.data, e.out.len);
    protocol_free(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf in = {0}, whole = {0}, cut = {0};
    unsigned choice = size ? data[0] + (unsigned)size : 1;
    if (choice % 4)
        translate(data, size, &in);
    else
        buf_add(&in, data, size);
    feed(&in, in.len ? in.len : 1, choice, &whole);
    feed(&in, 1 + choice % 7, choice, &cut);
    require(whole.len == cut.len && (!whole.len || !memcmp(whole.data, cut.data, cut.len)),
            "another session when it comes in pieces");
    buf_free(&in);
    buf_free(&whole);
    buf_free(&cut);
    return 0;
}
