#include "relay/smtp/smtp_body.h"

#include <string.h>

#include "lib/base/assert.h"

#define PIECE 65536

static void add_part(struct smtp_body *b, const char *data, size_t len)
{
    ASSERT(b->n < SMTP_BODY_PARTS);
    if (len)
        b->part[b->n++] = (struct iovec){(void *)data, len};
}

static void begin(struct smtp_body *b, const char *head, size_t head_len)
{
    buf_consume(&b->changed, b->changed.len);
    b->at = b->n = 0;
    b->left = 0;
    b->begun = true;
    add_part(b, head, head_len);
}

void smtp_body_data(struct smtp_body *b, const char *head, size_t head_len, const char *message,
                    size_t len)
{
    begin(b, head, head_len);
    if (smtp_dots_clean(message, len)) {
        const char *end = smtp_dots_terminator(message, len);
        add_part(b, message, len);
        add_part(b, end, strlen(end));
        return;
    }
    smtp_dots_begin(&b->dots);
    b->message = message;
    b->left = len;
}

size_t smtp_body_chunk(struct smtp_body *b, const char *head, size_t head_len, const char *message,
                       size_t len)
{
    begin(b, head, head_len);
    if (smtp_dots_clean_chunk(message, len)) {
        const char *end = smtp_dots_chunk_end(message, len);
        add_part(b, message, len);
        add_part(b, end, strlen(end));
        return head_len + len + strlen(end);
    }
    /* Its size must be known first. */
    smtp_dots_begin(&b->dots);
    b->dots.chunk = true;
    smtp_dots_add(&b->dots, message, len, &b->changed);
    smtp_dots_end(&b->dots, &b->changed);
    add_part(b, b->changed.data, b->changed.len);
    return head_len + b->changed.len;
}

static void change_more(struct smtp_body *b)
{
    size_t n = b->left < PIECE ? b->left : PIECE;
    buf_consume(&b->changed, b->changed.len);
    smtp_dots_add(&b->dots, b->message, n, &b->changed);
    b->message += n;
    b->left -= n;
    if (!b->left)
        smtp_dots_end(&b->dots, &b->changed);
    b->at = b->n = 0;
    add_part(b, b->changed.data, b->changed.len);
}

int smtp_body_next(struct smtp_body *b, struct iovec *out)
{
    if (b->at == b->n && b->left)
        change_more(b);
    int n = b->n - b->at;
    if (n)
        memcpy(out, b->part + b->at, (size_t)n * sizeof *out);
    return n;
}

void smtp_body_sent(struct smtp_body *b, size_t n)
{
    while (n) {
        ASSERT(b->at < b->n);
        struct iovec *part = &b->part[b->at];
        size_t took = n < part->iov_len ? n : part->iov_len;
        part->iov_base = (char *)part->iov_base + took;
        part->iov_len -= took;
        n -= took;
        if (!part->iov_len)
            b->at++;
    }
}

bool smtp_body_over(const struct smtp_body *b)
{
    return b->begun && b->at == b->n && !b->left;
}

void smtp_body_clear(struct smtp_body *b)
{
    buf_free(&b->changed);
    *b = (struct smtp_body){0};
}
