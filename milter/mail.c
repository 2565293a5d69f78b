/* The bytes of a mail, as the milter protocol gives them (measured facts): the name and the
 * value of a header with everything behind the colon (SMFIP_HDR_LEADSPC), folded lines joined by
 * a bare line feed; the body with CRLF, not dot-stuffed, without the empty line before it. */
#include "lib/base/assert.h"
#include "lib/mail/address.h"
#include "lib/mail/mime.h"
#include "milter/mail.h"
#include "milter/milter.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void mail_reset(struct mail *m)
{
    envelope_free(&m->envelope);
    for (size_t i = 0; i < m->nrecipients; i++)
        mail_recipient_free(&m->recipient[i]);
    free(m->recipient);
    buf_free(&m->headers_body);
    ASSERT(milter.bytes >= (long long)m->counted);
    milter.bytes -= (long long)m->counted;
    *m = (struct mail){0};
}

bool mail_claim(struct mail *m, size_t n)
{
    if (atomic_fetch_add(&milter.bytes, (long long)n) + (long long)n >
        milter.config->milter_memory) {
        milter.bytes -= (long long)n;
        return false;
    }
    m->counted += n;
    return true;
}

/* RFC 5321 section 4.5.3.1.6: 1,000 bytes with CRLF. Postfix's smtp(8) folds longer lines; the
 * relay sends what it has. */
static void watch_lines(struct mail *m, const char *s, size_t n)
{
    for (const char *end = s + n; s < end;) {
        const char *eol = memchr(s, '\n', (size_t)(end - s));
        m->line += (size_t)((eol ? eol : end) - s);
        if (m->line > 999 || (m->line == 999 && !(eol && eol > s && eol[-1] == '\r')))
            m->long_line = true;
        if (!eol)
            return;
        m->line = 0;
        s = eol + 1;
    }
}

static void add_bytes(struct mail *m, const void *data, size_t n)
{
    m->size += n;
    if (m->too_large || m->no_memory)
        return;
    m->too_large = m->size > (uint64_t)milter.config->max_entry;
    m->no_memory = !m->too_large && !mail_claim(m, n);
    if (m->too_large || m->no_memory) {
        buf_free(&m->headers_body);
        return;
    }
    watch_lines(m, data, n);
    buf_add(&m->headers_body, data, n);
}

/* For the log: only what looks like one, <...> without blanks. */
static void keep_message_id(struct mail *m, const char *name, const char *value)
{
    if (m->envelope.message_id || strcasecmp(name, "Message-ID"))
        return;
    value += strspn(value, " \t\r\n");
    size_t n = strcspn(value, "> \t\r\n");
    if (*value == '<' && value[n] == '>' && n < 998)
        m->envelope.message_id = mem_strndup(value, n + 1);
}

void mail_add_header(struct mail *m, const char *name, const char *value)
{
    /* A sender who copied one from a mail that he got would make his own look as if it were
     * delivered already. */
    if (!strcasecmp(name, ENTRYID_HEADER)) {
        m->foreign_ids++;
        return;
    }
    keep_message_id(m, name, value);
    add_bytes(m, name, strlen(name));
    add_bytes(m, ":", 1);
    for (const char *line = value;; line++) {
        size_t n = strcspn(line, "\n");
        /* A line feed that has its carriage return already must not get a second one. */
        size_t text = n && line[n] == '\n' && line[n - 1] == '\r' ? n - 1 : n;
        add_bytes(m, line, text);
        add_bytes(m, "\r\n", 2);
        line += n;
        if (!*line)
            break;
    }
}

void mail_end_header(struct mail *m)
{
    if (m->in_body)
        return;
    m->in_body = true;
    add_bytes(m, "\r\n", 2);
}

void mail_add_body(struct mail *m, const void *data, size_t n)
{
    mail_end_header(m);
    add_bytes(m, data, n);
}

/* "<a@b>" without the brackets. */
static char *bare(const char *given)
{
    size_t n = strlen(given);
    if (n >= 2 && given[0] == '<' && given[n - 1] == '>')
        return mem_strndup(given + 1, n - 2);
    return mem_strdup(given);
}

static char *join_args(char *const *argv)
{
    struct buf b = {0};
    for (size_t i = 1; argv[i]; i++) {
        if (i > 1)
            buf_addc(&b, ' ');
        buf_adds(&b, argv[i]);
    }
    return b.data;
}

void mail_note_encoding(struct mail *m)
{
    mime_note_8bit(&m->envelope.sender_args, m->headers_body.data, m->headers_body.len);
}

void mail_set_sender(struct mail *m, char *const *argv, const char *resolved)
{
    m->envelope.sender = bare(argv[0]);
    m->envelope.sender_args = join_args(argv);
    m->rewritten |= *m->envelope.sender && address_rewritten(m->envelope.sender, resolved);
}

void mail_add_recipient(struct mail *m, char *const *argv, const char *destination,
                        const char *resolved)
{
    char *address = bare(argv[0]);
    bool again = false;
    for (size_t i = 0; i < m->nrecipients && !again; i++)
        again = !strcasecmp(m->recipient[i].r.address, address);
    if (m->nrecipients == m->recipients_size) {
        m->recipients_size = m->recipients_size ? 2 * m->recipients_size : 8;
        m->recipient = mem_grow(m->recipient, m->recipients_size * sizeof *m->recipient);
    }
    m->rewritten |= address_rewritten(address, resolved);
    m->recipient[m->nrecipients++] = (struct mail_recipient){
        .given = mem_strdup(argv[0]),
        .destination = mem_strdup(destination),
        .again = again,
        .r = {.address = address, .args = join_args(argv)},
    };
}
