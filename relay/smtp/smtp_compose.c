#include "relay/smtp/smtp_compose.h"

#include <stdlib.h>
#include <string.h>

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

/* ---- XFORWARD ---- */

/* xtext, RFC 3461 section 4. */
static bool stands(char c)
{
    return c > ' ' && c < 0x7f && c != '+' && c != '=';
}

static void add_xtext_char(struct buf *out, char value)
{
    if (stands(value))
        buf_addc(out, value);
    else
        buf_printf(out, "+%02X", (unsigned char)value);
}

static void add_xtext(struct buf *out, const char *s)
{
    while (*s) {
        size_t n = 0;
        while (stands(s[n]))
            n++;
        buf_add(out, s, n);
        if (*(s += n))
            add_xtext_char(out, *s++);
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

/* IPv6 addresses as RFC 5321 section 4.1.3 writes them: else Postfix's smtpd refuses the
 * command. */
static void add_address(struct buf *out, const char *addr)
{
    if (strchr(addr, ':') && strncasecmp(addr, "ipv6:", 5)) {
        buf_adds(out, " ADDR=IPv6:");
        add_xtext(out, addr);
    } else {
        add_attribute(out, "ADDR", addr);
    }
}

bool smtp_compose_xforward_client(struct buf *out, const struct envelope *env,
                                  const struct smtp_features *f)
{
    if (!(f->set & SMTP_XFORWARD_FIRST))
        return false;
    buf_adds(out, "XFORWARD");
    if (f->set & SMTP_XFORWARD_NAME)
        add_attribute(out, "NAME", env->client_name);
    if (f->set & SMTP_XFORWARD_ADDR)
        add_address(out, or_empty(env->client_addr));
    if (f->set & SMTP_XFORWARD_PORT)
        add_attribute(out, "PORT", env->client_port);
    buf_adds(out, "\r\n");
    return true;
}

bool smtp_compose_xforward_session(struct buf *out, const struct envelope *env,
                                   const struct smtp_features *f)
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

bool smtp_compose_xclient(struct buf *out, const struct envelope *env,
                          const struct smtp_features *f)
{
    if (!(f->set & SMTP_XCLIENT))
        return false;
    buf_adds(out, "XCLIENT");
    if (f->set & SMTP_XCLIENT_NAME)
        add_attribute(out, "NAME", env->client_name);
    if (f->set & SMTP_XCLIENT_ADDR)
        add_address(out, or_empty(env->client_addr));
    if (f->set & SMTP_XCLIENT_PORT)
        add_attribute(out, "PORT", env->client_port);
    if (f->set & SMTP_XCLIENT_HELO)
        add_attribute(out, "HELO", env->helo);
    /* ESMTPSA and the like are known to XFORWARD alone. */
    if (f->set & SMTP_XCLIENT_PROTO)
        add_attribute(out, "PROTO", *or_empty(env->protocol) == 'S' ? "SMTP" : "ESMTP");
    if (f->set & SMTP_XCLIENT_LOGIN)
        add_attribute(out, "LOGIN", env->login);
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

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* A word that Postfix knows, which it writes in capitals. */
static void pass_word(struct buf *out, const char *args, const char *keyword)
{
    size_t len;
    const char *value = find_arg(args, keyword, &len);
    if (!value || !len)
        return;
    buf_printf(out, " %s=", keyword);
    for (size_t i = 0; i < len; i++)
        buf_addc(out, upper(value[i]));
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Text in xtext, in the one form that says it with the fewest escapes: what Postfix's smtp(8)
 * sends, too, because it keeps the decoded value. What is no xtext stays as it is. */
static void normal_xtext(struct buf *out, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int high = s[i] == '+' && i + 2 < len ? hex(s[i + 1]) : -1,
            low = high >= 0 ? hex(s[i + 2]) : -1;
        if (low < 0) {
            buf_addc(out, s[i]);
            continue;
        }
        add_xtext_char(out, (char)(16 * high + low));
        i += 2;
    }
}

static void pass_xtext(struct buf *out, const char *args, const char *keyword)
{
    size_t len;
    const char *value = find_arg(args, keyword, &len);
    if (!value || !len)
        return;
    buf_printf(out, " %s=", keyword);
    normal_xtext(out, value, len);
}

/* ORCPT of a client that gave none is the address that it named, as Postfix's smtpd sets it (RFC
 * 3461 section 5.2.1 allows it): the next hop's notice then tells the sender the address that he
 * wrote, whatever happens to it further on. */
static void add_orcpt(struct buf *out, const struct recipient *r)
{
    size_t len;
    const char *value = find_arg(r->args, "ORCPT", &len);
    if (!value || !len) {
        buf_adds(out, " ORCPT=rfc822;");
        add_xtext(out, or_empty(r->address));
    } else if (len > 6 && !strncasecmp(value, "utf-8;", 6)) {
        /* RFC 6533 section 3: another code, in which + means itself. */
        buf_adds(out, " ORCPT=");
        buf_add(out, value, len);
    } else {
        pass_xtext(out, r->args, "ORCPT");
    }
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
        pass_word(out, args, "BODY");
    if (f->set & SMTP_DSN) {
        pass_xtext(out, args, "ENVID");
        pass_word(out, args, "RET");
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
        add_orcpt(out, r);
        pass_word(out, r->args, "NOTIFY");
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

bool smtp_needs_8bitmime(const struct envelope *env, const char *message, size_t len)
{
    size_t n;
    const char *body = find_arg(env->sender_args, "BODY", &n);
    return body && n == strlen("8BITMIME") && !strncasecmp(body, "8BITMIME", n) &&
           !ascii(message, len);
}
