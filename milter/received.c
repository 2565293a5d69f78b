/* RFC 5321 section 4.4; the form is Postfix's own, with our name where it writes its. */
#include "milter/received.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/postfix/postfix.h"

static void date(struct buf *out, int64_t us)
{
    time_t t = (time_t)(us / 1000000);
    struct tm tm;
    char text[64];
    localtime_r(&t, &tm);
    /* Day and month names by hand: strftime's follow the locale. */
    static const char *const day[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const month[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    strftime(text, sizeof text, "%H:%M:%S %z (%Z)", &tm);
    buf_printf(out, "%s, %2d %s %d %s", day[tm.tm_wday], tm.tm_mday, month[tm.tm_mon],
               tm.tm_year + 1900, text);
}

/* The client's own words: printable, and short enough for one line of a header. */
static void neutral(struct buf *out, const char *s)
{
    for (size_t i = 0; s[i] && i < 255; i++)
        buf_addc(out, s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?');
}

static const char * or (const char *s, const char *otherwise)
{
    return s && *s ? s : otherwise;
}

/* RFC 6531 section 4.3: UTF8SMTP for ESMTP where the client asked for it. */
static void with(struct buf *out, const struct envelope *e)
{
    const char *protocol = or (e->protocol, "SMTP");
    char *utf8 = envelope_arg(e->sender_args, "SMTPUTF8");
    bool instead = utf8 && *protocol == 'E';
    buf_printf(out, "%s%s", instead ? "UTF8" : "", instead ? protocol + 1 : protocol);
    free(utf8);
}

/* A login may have any byte; a comment has no control character, no backslash, and as many closing
 * parentheses as opening ones (RFC 5322 section 3.2.2). Postfix does the same. */
static void comment(struct buf *out, const char *s)
{
    size_t open = 0;
    for (; *s; s++) {
        bool good = *s >= 0x20 && *s < 0x7f && *s != '\\' && (*s != ')' || open);
        buf_addc(out, good ? *s : '?');
        open += good && *s == '(';
        open -= good && *s == ')';
    }
    while (open--)
        buf_addc(out, ')');
}

bool received_is_postfixs(const struct envelope *e, char *detail, size_t size)
{
    struct postfix_received says;
    postfix_received(&says);
    if (!says.tls || says.hidden || !e->tls_version || !*e->tls_version)
        return false;
    snprintf(detail, size, "smtpd_tls_received_header");
    return true;
}

/* "from helo (name [address])", and how it logged in. */
static void from(const struct milter_session *s, const struct envelope *e, bool with_login,
                 struct buf *out)
{
    const char *name = or (s->client_name, "unknown"), *addr = or (s->client_addr, "unknown");
    buf_adds(out, "from ");
    neutral(out, or (s->helo, name));
    buf_adds(out, " (");
    neutral(out, name);
    buf_printf(out, " [%s%s])\r\n\t", strchr(addr, ':') ? "IPv6:" : "", addr);
    if (with_login && e->login && *e->login) {
        buf_adds(out, "(Authenticated sender: ");
        comment(out, e->login);
        buf_adds(out, ")\r\n\t");
    }
}

void received_line(const struct milter_session *s, const struct mail *m, struct buf *out)
{
    const struct envelope *e = &m->envelope;
    struct postfix_received says;
    postfix_received(&says);
    size_t unique = 0;
    const char *for_whom = NULL;
    for (size_t i = 0; i < m->nrecipients; i++)
        if (!m->recipient[i].again && ++unique == 1)
            for_whom = m->recipient[i].r.address;
    buf_adds(out, "Received: ");
    if (!says.hidden)
        from(s, e, says.login, out);
    buf_printf(out, "by %s (Dovelane)", or (e->host, "localhost"));
    if (!says.hidden) {
        buf_adds(out, " with ");
        with(out, e);
    }
    buf_printf(out, " id %s", or (e->queue_id, "unknown"));
    if (unique == 1 && strlen(for_whom) < 900)
        buf_printf(out, "\r\n\tfor <%s>; ", for_whom);
    else
        buf_adds(out, ";\r\n\t");
    date(out, e->arrived);
    buf_adds(out, "\r\n");
}
