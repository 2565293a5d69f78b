#include "proxy/content.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/mail/entryid.h"

#define LINE_JUDGED 2000 /* so much of a header line is enough to know it */

void content_free(struct content *c)
{
    free(c->message_id);
    buf_free(&c->line);
    *c = (struct content){0};
}

static void keep(struct content *c, struct buf *out, const char *data, size_t n)
{
    c->size += n;
    buf_add(out, data, n);
}

/* ---- header ---- */

static bool is_named(const char *line, size_t n, const char *name)
{
    return strlen(name) == n && !strncasecmp(line, name, n);
}

static bool is_dropped(const struct content *c, const char *name, size_t n)
{
    /* a sender who copied one would make his own mail look as if it were delivered already */
    if (is_named(name, n, ENTRYID_HEADER))
        return true;
    for (const char *word = c->header->drop, *end; (end = strchr(word, ',')); word = end + 1)
        if ((size_t)(end - word) == n && !strncasecmp(word, name, n))
            return true;
    return false;
}

/* For the log: only what looks like one, <...> without blanks. */
static void note_message_id(struct content *c, const char *value, size_t n)
{
    while (n && strchr(" \t\r\n", *value)) {
        value++;
        n--;
    }
    const char *end = n && *value == '<' ? memchr(value, '>', n) : NULL;
    if (!end || c->message_id || end - value >= 998)
        return;
    for (const char *s = value; s < end; s++)
        if ((unsigned char)*s <= ' ' || *s == 127)
            return;
    c->message_id = mem_strndup(value, (size_t)(end - value) + 1);
}

/* The first of what is a header's line, or all of it. */
static void judge_header(struct content *c, const char *line, size_t n)
{
    size_t name = 0;
    while (name < n && line[name] > ' ' && line[name] < 127 && line[name] != ':')
        name++;
    size_t colon = name;
    while (colon < n && (line[colon] == ' ' || line[colon] == '\t'))
        colon++;
    c->odd_header |= !name || name == n || line[name] != ':';
    if (!name || colon == n || line[colon] != ':') {
        c->in_body = true; /* for cleanup(8) such a line ends the header, and is the body's first */
        return;
    }
    c->any_header = true;
    c->header_len = 0;
    c->dropping = is_dropped(c, line, name);
    c->hops += is_named(line, name, "Received");
    c->dropped += c->dropping;
    if (is_named(line, name, "Message-ID"))
        note_message_id(c, line + name + 1, n - name - 1);
}

/* Of a header's line that begins, or all of it with its CRLF. */
static void take_header(struct content *c, const char *line, size_t n, struct buf *out)
{
    if (n == 2 && !c->rest && line[0] == '\r') {
        c->in_body = true;
        keep(c, out, line, n);
        return;
    }
    if (!c->rest && (*line == ' ' || *line == '\t')) {
        c->odd_header |= !c->any_header;
        c->in_body = !c->any_header;
    } else if (!c->rest) {
        judge_header(c, line, n);
    }
    if (c->in_body) {
        keep(c, out, line, n);
        return;
    }
    c->header_len += n;
    c->odd_header |= c->header_len > CONTENT_HEADER_MOST || memchr(line, 0, n) != NULL;
    if (!c->dropping)
        keep(c, out, line, n);
}

/* ---- lines ---- */

/* A piece of a line; ends: to its end. A header's line is judged when it is whole, or long
 * enough. */
static void put(struct content *c, const char *data, size_t n, bool ends, struct buf *out)
{
    if (c->in_body) {
        keep(c, out, data, n);
    } else if (ends && !c->line.len) {
        take_header(c, data, n, out);
    } else {
        buf_add(&c->line, data, n);
        if (!ends && c->line.len < LINE_JUDGED)
            return;
        take_header(c, c->line.data, c->line.len, out);
        buf_consume(&c->line, c->line.len);
    }
    c->rest = !ends;
}

static void end_line(struct content *c)
{
    c->long_line |= c->line_len > 1000; /* RFC 5321 section 4.5.3.1.6, with CRLF */
    c->line_len = 0;
    c->at = CONTENT_START;
}

/* From inside a line to its end, or to the end of what is there. */
static size_t take_line(struct content *c, const char *data, size_t len, struct buf *out)
{
    const char *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) + 1 : len;
    bool ends = lf && (n > 1 ? lf[-1] == '\r' : c->cr);
    c->bare_lf |= lf && !ends;
    size_t inside = ends && n > 1 ? n - 2 : ends ? 0 : data[n - 1] == '\r' ? n - 1 : n;
    c->bare_cr |= (c->cr && data[0] != '\n') || (inside && memchr(data, '\r', inside));
    c->line_len += n;
    c->cr = data[n - 1] == '\r';
    put(c, data, n, ends, out);
    if (ends)
        end_line(c);
    return n;
}

/* A dot, and perhaps a CR, stood at the start of a line; what follows tells whether they are the
 * end. True: they are. */
static bool take_after_dot(struct content *c, char next, struct buf *out)
{
    bool was_cr = c->at == CONTENT_DOT_CR;
    if (!was_cr && next == '\r') {
        c->at = CONTENT_DOT_CR;
        return false;
    }
    if (was_cr && next == '\n')
        return true;
    c->at = CONTENT_IN; /* the dot was one too many (RFC 5321 section 4.5.2) */
    c->cr = was_cr;
    c->line_len = was_cr;
    c->bare_cr |= was_cr;
    if (was_cr)
        put(c, "\r", 1, false, out);
    return false;
}

static void finish(struct content *c)
{
    c->odd_header |= !c->in_body;
}

size_t content_feed(struct content *c, const char *data, size_t len, struct buf *out, bool *end_r)
{
    size_t at = 0;
    *end_r = false;
    buf_reserve(out, len); /* once, not line by line */
    while (at < len) {
        if (c->at == CONTENT_START) {
            c->cr = false;
            c->at = data[at] == '.' ? CONTENT_DOT : CONTENT_IN;
            at += c->at == CONTENT_DOT;
        } else if (c->at == CONTENT_IN) {
            at += take_line(c, data + at, len - at, out);
        } else if (take_after_dot(c, data[at], out)) {
            finish(c);
            *end_r = true;
            return at + 1;
        } else {
            at += c->at == CONTENT_DOT_CR;
        }
    }
    return at;
}

/* ---- parts ---- */

static bool blank_before_colon(const char *line, size_t n)
{
    size_t name = 0;
    while (name < n && line[name] > ' ' && line[name] < 127 && line[name] != ':')
        name++;
    size_t blanks = name;
    while (blanks < n && (line[blanks] == ' ' || line[blanks] == '\t'))
        blanks++;
    return name && blanks > name && blanks < n && line[blanks] == ':';
}

bool content_odd_parts(const char *message, size_t len)
{
    bool in_part = false;
    for (const char *p = message, *end = message + len, *next; p < end; p = next) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        next = lf ? lf + 1 : end;
        if (end - p >= 2 && p[0] == '-' && p[1] == '-')
            in_part = true;
        else if (in_part && *p == '\r')
            in_part = false;
        else if (in_part && blank_before_colon(p, (size_t)(next - p)))
            return true;
    }
    return false;
}
