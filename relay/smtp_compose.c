#include "smtp_compose.h"

#include <stdlib.h>
#include <string.h>

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

/* ---- XFORWARD ---- */

/* xtext, RFC 3461 section 4. */
static void add_xtext(struct buf *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c <= ' ' || c >= 0x7f || c == '+' || c == '=')
            buf_printf(out, "+%02X", c);
        else
            buf_addc(out, *s);
    }
}

static void add_attribute(struct buf *out, const char *name, const char *value)
{
    buf_addc(out, ' ');
    buf_adds(out, name);
    buf_addc(out, '=');
    if (!value || !*value || !strcmp(value, "unknown"))
        buf_adds(out, "[UNAVAILABLE]");
    else
        add_xtext(out, value);
}

bool smtp_compose_xforward_client(struct buf *out, const struct envelope *env, const struct smtp_features *f)
{
    if (!(f->set & SMTP_XFORWARD_FIRST))
        return false;
    buf_adds(out, "XFORWARD");
    if (f->set & SMTP_XFORWARD_NAME)
        add_attribute(out, "NAME", env->client_name);
    if (f->set & SMTP_XFORWARD_ADDR) {
        /* IPv6 addresses as RFC 5321 section 4.1.3 writes them: else Postfix's smtpd refuses the command. */
        const char *addr = or_empty(env->client_addr);
        if (strchr(addr, ':') && strncasecmp(addr, "ipv6:", 5)) {
            buf_adds(out, " ADDR=IPv6:");
            add_xtext(out, addr);
        } else {
            add_attribute(out, "ADDR", addr);
        }
    }
    if (f->set & SMTP_XFORWARD_PORT)
        add_attribute(out, "PORT", env->client_port);
    buf_adds(out, "\r\n");
    return true;
}

bool smtp_compose_xforward_session(struct buf *out, const struct envelope *env, const struct smtp_features *f)
{
    if (!(f->set & SMTP_XFORWARD_SECOND))
        return false;
    buf_adds(out, "XFORWARD");
    if (f->set & SMTP_XFORWARD_PROTO)
        add_attribute(out, "PROTO", env->protocol);
    if (f->set & SMTP_XFORWARD_HELO)
        add_attribute(out, "HELO", env->helo);
    if (f->set & SMTP_XFORWARD_IDENT)
        add_attribute(out, "IDENT", env->queue_id);
    buf_adds(out, "\r\n");
    return true;
}

/* ---- MAIL and RCPT ---- */

/* The value of a keyword in args without a copy; NULL when it is not there. */
static const char *find_arg(const char *args, const char *keyword, size_t *len)
{
    size_t k = strlen(keyword);
    for (const char *s = or_empty(args); *s;) {
        size_t n = strcspn(s, " ");
        if (n >= k && !strncasecmp(s, keyword, k) && (n == k || s[k] == '=')) {
            *len = n == k ? 0 : n - k - 1;
            return n == k ? s + k : s + k + 1;
        }
        s += n;
        s += strspn(s, " ");
    }
    return NULL;
}

static void pass_arg(struct buf *out, const char *args, const char *keyword)
{
    size_t len;
    const char *value = find_arg(args, keyword, &len);
    if (!value || !len)
        return;
    buf_addc(out, ' ');
    buf_adds(out, keyword);
    buf_addc(out, '=');
    buf_add(out, value, len);
}

bool smtp_asks_utf8(const struct envelope *env)
{
    size_t len;
    return find_arg(env->sender_args, "SMTPUTF8", &len) != NULL;
}

void smtp_compose_mail(struct buf *out, const struct envelope *env, const struct smtp_features *f,
                       size_t size)
{
    const char *args = env->sender_args;
    buf_adds(out, "MAIL FROM:<");
    buf_adds(out, or_empty(env->sender));
    buf_addc(out, '>');
    if (f->set & SMTP_SIZE)
        buf_printf(out, " SIZE=%zu", size);
    if (f->set & SMTP_8BITMIME)
        pass_arg(out, args, "BODY");
    if (f->set & SMTP_DSN) {
        pass_arg(out, args, "RET");
        pass_arg(out, args, "ENVID");
    }
    if ((f->set & SMTP_UTF8) && smtp_asks_utf8(env))
        buf_adds(out, " SMTPUTF8");
    buf_adds(out, "\r\n");
}

void smtp_compose_rcpt(struct buf *out, const struct recipient *r, const struct smtp_features *f)
{
    buf_adds(out, "RCPT TO:<");
    buf_adds(out, or_empty(r->address));
    buf_addc(out, '>');
    if (f->set & SMTP_DSN) {
        pass_arg(out, r->args, "NOTIFY");
        pass_arg(out, r->args, "ORCPT");
    }
    buf_adds(out, "\r\n");
}

/* ---- what a mail needs ---- */

static bool ascii(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] >= 0x80)
            return false;
    return true;
}

static bool ascii_text(const char *s)
{
    return !s || ascii(s, strlen(s));
}

bool smtp_needs_utf8(const struct envelope *env, const size_t *index, size_t n, const char *message,
                     size_t len)
{
    if (!smtp_asks_utf8(env))
        return false;
    if (!ascii_text(env->sender))
        return true;
    for (size_t i = 0; i < n; i++)
        if (!ascii_text(env->recipient[index[i]].address))
            return true;
    const char *end = len ? memmem(message, len, "\r\n\r\n", 4) : NULL;
    return !ascii(message, end ? (size_t)(end - message) : len);
}
