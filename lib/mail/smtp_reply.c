#include "lib/mail/smtp_reply.h"

#include <stdlib.h>
#include <string.h>

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static void add_text(struct smtp_reply *r, const char *p, size_t len)
{
    if (r->nlines)
        buf_addc(&r->text, '\n');
    size_t room = r->text.len < SMTP_REPLY_TEXT_MAX ? SMTP_REPLY_TEXT_MAX - r->text.len : 0;
    if (len > room)
        len = room;
    size_t at = r->text.len;
    buf_add(&r->text, p, len);
    for (size_t i = at; i < at + len; i++)
        if ((unsigned char)r->text.data[i] < ' ' || r->text.data[i] == 0x7f)
            r->text.data[i] = '?';
}

/* One line without its LF. */
static enum smtp_reply_status take_line(struct smtp_reply *r, const char *p, size_t len)
{
    if (len && p[len - 1] == '\r')
        len--;
    if (len < 3 || len > SMTP_REPLY_LINE_MAX || p[0] < '2' || p[0] > '5' || !digit(p[1]) ||
        !digit(p[2]))
        return SMTP_REPLY_BAD;
    int code = (p[0] - '0') * 100 + (p[1] - '0') * 10 + (p[2] - '0');
    bool more = len > 3 && p[3] == '-';
    if (len > 3 && !more && p[3] != ' ')
        return SMTP_REPLY_BAD;
    if ((r->nlines && code != r->code) || r->nlines >= SMTP_REPLY_LINES_MAX)
        return SMTP_REPLY_BAD;
    r->code = code;
    add_text(r, len > 4 ? p + 4 : p, len > 4 ? len - 4 : 0);
    r->nlines++;
    return more ? SMTP_REPLY_MORE : SMTP_REPLY_DONE;
}

enum smtp_reply_status smtp_reply_feed(struct smtp_reply *r, const char *data, size_t len,
                                       size_t *used_r)
{
    const char *p = data, *end = data + len;
    enum smtp_reply_status status = SMTP_REPLY_MORE;
    if (r->complete) {
        buf_consume(&r->text, r->text.len);
        r->nlines = 0;
        r->complete = false;
    }
    while (status == SMTP_REPLY_MORE && p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((lf ? lf : end) - p);
        if (r->line.len + n > SMTP_REPLY_LINE_MAX + 1) {
            status = SMTP_REPLY_BAD;
            break;
        }
        if (lf && !r->line.len) {
            status = take_line(r, p, n);
        } else {
            buf_add(&r->line, p, n);
            if (lf) {
                status = take_line(r, r->line.data, r->line.len);
                buf_consume(&r->line, r->line.len);
            }
        }
        p += n + (lf ? 1 : 0);
    }
    *used_r = (size_t)(p - data);
    r->complete = status == SMTP_REPLY_DONE;
    return status;
}

bool smtp_reply_begun(const struct smtp_reply *r)
{
    return r->line.len || (r->nlines && !r->complete);
}

void smtp_reply_free(struct smtp_reply *r)
{
    buf_free(&r->text);
    buf_free(&r->line);
}

void smtp_reply_flat(const struct smtp_reply *r, char *out, size_t size)
{
    size_t n = r->text.len < size - 1 ? r->text.len : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = r->text.data[i] == '\n' ? ' ' : r->text.data[i];
    out[n] = '\0';
}

/* ---- enhanced status codes ---- */

/* "subject" or "detail": one to three digits (RFC 3463 section 2). */
static size_t number(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n <= 3 ? n : 0;
}

size_t smtp_dsn_length(const char *text)
{
    if ((text[0] != '2' && text[0] != '4' && text[0] != '5') || text[1] != '.')
        return 0;
    size_t subject = number(text + 2);
    if (!subject || text[2 + subject] != '.')
        return 0;
    size_t detail = number(text + 3 + subject);
    size_t len = 3 + subject + detail;
    if (!detail || (text[len] && text[len] != ' ' && text[len] != '\n'))
        return 0;
    return len;
}

void smtp_reply_dsn(const struct smtp_reply *r, char dsn[SMTP_DSN_MAX])
{
    char class = (char)('0' + r->code / 100);
    size_t n = r->text.len ? smtp_dsn_length(r->text.data) : 0;
    if (n && r->text.data[0] == class) {
        memcpy(dsn, r->text.data, n);
        dsn[n] = '\0';
    } else {
        memcpy(dsn, "x.0.0", 6);
        dsn[0] = class;
    }
}
