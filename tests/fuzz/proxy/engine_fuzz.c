/* The proxy's engine with any bytes: in one piece and in small ones it says the same and keeps
 * the same; what it keeps has no bare LF as a line end, and sent on again with its dots it is
 * read back unchanged. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/address.h"
#include "proxy/engine.h"
#include "lib/mail/smtp_dots.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static const struct postfix_header header = {.drop = "bcc,return-path,", .hops = 50};

/* What was kept, sent to the next server by the rules of SMTP and read there, is what was kept. */
static void send_on(const struct buf *body)
{
    struct smtp_dots dots;
    struct buf wire = {0}, read = {0};
    struct content c = {.header = &(struct postfix_header){.drop = ""}, .in_body = true};
    bool end;
    smtp_dots_begin(&dots);
    smtp_dots_add(&dots, body->data ? body->data : "", body->len, &wire);
    smtp_dots_end(&dots, &wire);
    size_t used = content_feed(&c, wire.data, wire.len, &read, &end);
    require(end && used == wire.len && !c.bare_lf, "what is sent on ends elsewhere: it smuggles");
    require(read.len == body->len && (!read.len || !memcmp(read.data, body->data, read.len)),
            "what is sent on is read as something else");
    content_free(&c);
    buf_free(&wire);
    buf_free(&read);
}

static void look_at_mail(struct engine *e, struct buf *out)
{
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct mail_recipient *r = &e->recipient[i];
        require(!r->r.address || address_plain(r->r.address, true), "an address that is not plain");
        require(!strpbrk(r->given, "\r\n"), "a line end in a recipient");
        buf_printf(out, "[%s|%s|%s]", r->given, r->r.address ? r->r.address : "-",
                   r->r.args ? r->r.args : "");
    }
    require(e->nrecipients > 0, "DATA without a recipient");
}

static enum engine_event step(struct engine *e, enum engine_event event, struct buf *out)
{
    if (event == ENGINE_DATA) {
        look_at_mail(e, out);
        engine_go(e, &header);
    } else if (event == ENGINE_END) {
        require(!e->content.bare_lf, "a bare LF went through");
        send_on(&e->body);
        buf_printf(out, "{%zu %u %d %d %d %s ", e->body.len, e->content.hops, e->content.long_line,
                   e->content.bare_cr, e->content.odd_header,
                   e->content.message_id ? e->content.message_id : "");
        if (e->body.len)
            buf_add(out, e->body.data, e->body.len);
        engine_answer(e, "250 2.0.0 Ok");
    }
    return event;
}

static void feed(const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
    struct engine e = {.name = "mx.example", .most_envelope = 100000};
    enum engine_event event = ENGINE_MORE;
    engine_greet(&e);
    for (size_t at = 0, used; at < size && event != ENGINE_CLOSE; at += used) {
        size_t n = size - at < piece ? size - at : piece;
        event = step(&e, engine_feed(&e, (const char *)data + at, n, &used), out);
        require(used <= n && (used || event == ENGINE_DATA || event == ENGINE_END),
                "nothing used, nothing wanted");
        require(e.line.len <= ENGINE_LINE_MOST && e.content.line.len < 4096 + size,
                "too much kept");
    }
    if (e.out.len)
        buf_add(out, e.out.data, e.out.len);
    buf_printf(out, "%d", event == ENGINE_CLOSE);
    engine_free(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = {0}, cut = {0};
    feed(data, size, size ? size : 1, &whole);
    feed(data, size, 1 + (size ? data[0] : 1) % 7, &cut);
    require(whole.len == cut.len && !memcmp(whole.data, cut.data, cut.len),
            "another session when it comes in pieces");
    buf_free(&whole);
    buf_free(&cut);
    return 0;
}
