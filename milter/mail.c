/* The bytes of a mail, as the milter protocol gives them (measured facts): the name and the value of a header with everything behind the
 * colon (SMFIP_HDR_LEADSPC), folded lines joined by a bare line feed; the body with CRLF, not dot-stuffed, without the empty line before it. */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void recipient_free(struct mail_recipient *r)
{
    free(r->given);
    free(r->destination);
    free(r->r.address);
    free(r->r.args);
    free(r->r.text);
}

void mail_reset(struct mail *m)
{
    envelope_free(&m->envelope);
    for (size_t i = 0; i < m->nrecipients; i++)
        recipient_free(&m->recipient[i]);
    free(m->recipient);
    buf_free(&m->headers_body);
    *m = (struct mail){0};
}

static void add_bytes(struct mail *m, const void *data, size_t n)
{
    m->size += n;
    if (m->too_large)
        return;
    if (m->size > (uint64_t)milter.config->max_entry) {
        m->too_large = true;
        buf_free(&m->headers_body);
        return;
    }
    buf_add(&m->headers_body, data, n);
}

static void keep_message_id(struct mail *m, const char *name, const char *value)
{
    if (m->envelope.message_id || strcasecmp(name, "Message-ID"))
        return;
    value += strspn(value, " \t\r\n");
    size_t n = strcspn(value, " \t\r\n");
    m->envelope.message_id = mem_strndup(value, n < 998 ? n : 998);
}

void mail_add_header(struct mail *m, const char *name, const char *value)
{
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

bool mail_add_recipient(struct mail *m, char *const *argv, const char *destination)
{
    char *address = bare(argv[0]);
    for (size_t i = 0; i < m->nrecipients; i++)
        if (!strcasecmp(m->recipient[i].r.address, address)) {
            free(address);
            return false;
        }
    if (m->nrecipients == m->recipients_size) {
        m->recipients_size = m->recipients_size ? 2 * m->recipients_size : 8;
        m->recipient = mem_grow(m->recipient, m->recipients_size * sizeof *m->recipient);
    }
    struct buf args = {0};
    for (size_t i = 1; argv[i]; i++) {
        if (i > 1)
            buf_addc(&args, ' ');
        buf_adds(&args, argv[i]);
    }
    m->recipient[m->nrecipients++] = (struct mail_recipient){
        .given = mem_strdup(argv[0]),
        .destination = mem_strdup(destination),
        .r = {.address = address, .args = args.data},
    };
    return true;
}
