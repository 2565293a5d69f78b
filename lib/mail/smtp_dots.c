#include "lib/mail/smtp_dots.h"

#include <string.h>

bool smtp_dots_clean(const char *message, size_t len)
{
    const char *p = message, *end = message + len;
    if (len && *p == '.')
        return false;
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        if (!lf)
            return true;
        if (lf == message || lf[-1] != '\r' || (lf + 1 < end && lf[1] == '.'))
            return false;
        p = lf + 1;
    }
    return true;
}

bool smtp_dots_clean_chunk(const char *message, size_t len)
{
    const char *end = message + len;
    for (const char *p = message, *lf; p < end && (lf = memchr(p, '\n', (size_t)(end - p)));
         p = lf + 1)
        if (lf == message || lf[-1] != '\r')
            return false;
    return true;
}

const char *smtp_dots_chunk_end(const char *message, size_t len)
{
    return len && message[len - 1] != '\n' ? "\r\n" : "";
}

const char *smtp_dots_terminator(const char *message, size_t len)
{
    bool line_open = len && message[len - 1] != '\n';
    return line_open ? "\r\n.\r\n" : ".\r\n";
}

void smtp_dots_begin(struct smtp_dots *d)
{
    d->chunk = d->in_line = d->cr = false;
}

void smtp_dots_add(struct smtp_dots *d, const char *piece, size_t len, struct buf *out)
{
    const char *p = piece, *end = piece + len;
    buf_reserve(out, len);
    while (p < end) {
        if (!d->chunk && !d->in_line && *p == '.')
            buf_addc(out, '.');
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        if (!lf) {
            buf_add(out, p, (size_t)(end - p));
            d->in_line = true;
            d->cr = end[-1] == '\r';
            return;
        }
        bool cr = lf > p ? lf[-1] == '\r' : d->cr;
        buf_add(out, p, (size_t)(lf - p));
        buf_add(out, cr ? "\n" : "\r\n", cr ? 1 : 2);
        d->in_line = d->cr = false;
        p = lf + 1;
    }
}

void smtp_dots_end(struct smtp_dots *d, struct buf *out)
{
    if (d->in_line)
        buf_adds(out, "\r\n");
    if (!d->chunk)
        buf_adds(out, ".\r\n");
}
