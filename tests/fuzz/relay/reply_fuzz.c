/* reply_fuzz - the parsers of what a server says, with any bytes, cut anywhere: the same replies
 * come out however they are cut, memory stays bounded, and what is shown of them is printable. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/smtp/smtp_features.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "reply_fuzz: %s\n", what);
        abort();
    }
}

static void look(const struct smtp_reply *r, struct buf *out)
{
    char flat[300], dsn[SMTP_DSN_MAX];
    struct smtp_features f;
    require(r->code >= 200 && r->code <= 599, "a code that is none");
    require(r->text.len <= SMTP_REPLY_TEXT_MAX + SMTP_REPLY_LINES_MAX, "too much text kept");
    smtp_reply_flat(r, flat, sizeof flat);
    for (const char *p = flat; *p; p++)
        require((unsigned char)*p >= ' ' && *p != 0x7f, "a control character");
    smtp_reply_dsn(r, dsn);
    require(dsn[0] == '0' + r->code / 100 && strlen(dsn) < sizeof dsn, "a status of another class");
    smtp_features_parse(r, &f);
    buf_printf(out, "%d %s %x %llu\n", r->code, dsn, f.set, (unsigned long long)f.size_limit);
    if (r->text.len)
        buf_add(out, r->text.data, r->text.len);
}

/* All replies in pieces of this size. */
static void feed(const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
    struct smtp_reply r = {0};
    enum smtp_reply_status status = SMTP_REPLY_MORE;
    for (size_t at = 0, used; at < size && status != SMTP_REPLY_BAD; at += used) {
        size_t n = size - at < piece ? size - at : piece;
        status = smtp_reply_feed(&r, (const char *)data + at, n, &used);
        require(used <= n && (used == n || status != SMTP_REPLY_MORE),
                "more used than given, or less without a reason");
        require(r.line.len <= SMTP_REPLY_LINE_MAX + 2, "too long a line kept");
        if (status == SMTP_REPLY_DONE)
            look(&r, out);
    }
    buf_printf(out, status == SMTP_REPLY_BAD ? "bad" : smtp_reply_begun(&r) ? "begun" : "end");
    smtp_reply_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = {0}, cut = {0};
    size_t piece = size ? 1 + data[0] % 7 : 1;
    feed(data, size, size, &whole);
    feed(data, size, piece, &cut);
    require(whole.len == cut.len && !memcmp(whole.data, cut.data, cut.len),
            "another reply when it comes in pieces");
    buf_free(&whole);
    buf_free(&cut);
    return 0;
}
