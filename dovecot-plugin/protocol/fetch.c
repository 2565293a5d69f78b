/* fetch - takes a question for a mail's bytes apart. */
#include "dovecot-plugin/protocol/fetch.h"

#include <string.h>

#include "dovecot-plugin/protocol/frame.h"

/* The field up to the next TAB or the end; NULL: it is empty, or does not fit. */
static const char *field(const char *at, const char *end, char *out, size_t size)
{
    const char *tab = at < end ? memchr(at, '\t', (size_t)(end - at)) : NULL;
    size_t n = (size_t)((tab ? tab : end) - at);
    if (n == 0 || n >= size)
        return NULL;
    memcpy(out, at, n);
    out[n] = '\0';
    return tab ? tab + 1 : end;
}

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

bool fetch_is_asked(const char *line, size_t n)
{
    return n >= 2 && line[0] == '2' && line[1] == '\t';
}

bool fetch_read(const char *line, size_t n, struct fetch_question *q)
{
    const char *end = line + n, *at = line + 2;
    return fetch_is_asked(line, n) && end[-1] != '\t' &&
           (at = field(at, end, q->user, sizeof q->user)) != NULL &&
           (at = field(at, end, q->guid, sizeof q->guid)) != NULL &&
           (at = field(at, end, q->sha256, sizeof q->sha256)) != NULL &&
           (at = field(at, end, q->size, sizeof q->size)) == end &&
           frame_user_ok((const uint8_t *)q->user, strlen(q->user)) &&
           is_hex(q->guid, LINE_GUID_HEX - 1) && is_hex(q->sha256, LINE_SHA256_HEX - 1) &&
           strspn(q->size, "0123456789") == strlen(q->size) && q->size[0] != '0';
}
