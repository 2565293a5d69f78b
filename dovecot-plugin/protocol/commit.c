/* commit - takes a question for mails apart. */
#include "dovecot-plugin/protocol/commit.h"

#include <string.h>

#include "dovecot-plugin/protocol/frame.h"

#define HEX (LINE_GUID_HEX - 1)

/* The field up to the next TAB; NULL: it is empty, or does not fit, or no TAB ends it. */
static const char *field(const char *at, const char *end, char *out, size_t size)
{
    const char *tab = memchr(at, '\t', (size_t)(end - at));
    if (!tab || tab == at || (size_t)(tab - at) >= size)
        return NULL;
    memcpy(out, at, (size_t)(tab - at));
    out[tab - at] = '\0';
    return tab + 1;
}

bool commit_read(const char *line, size_t n, struct commit_question *q)
{
    const char *end = line + n, *at;
    char version[2];
    q->n = 0;
    if (!(at = field(line, end, version, sizeof version)) || *version != '1' ||
        !(at = field(at, end, q->user, sizeof q->user)) ||
        !(at = field(at, end, q->namespace, sizeof q->namespace)) ||
        !frame_user_ok((const uint8_t *)q->user, strlen(q->user)) || at == end)
        return false;
    for (; at < end; at += HEX + 1) {
        if (q->n == LINE_COMMIT_GUIDS || end - at < HEX || (end - at > HEX && at[HEX] != ' ') ||
            end - at == HEX + 1)
            return false;
        memcpy(q->guid[q->n], at, HEX);
        q->guid[q->n][HEX] = '\0';
        if (strspn(q->guid[q->n++], "0123456789abcdef") != HEX)
            return false;
    }
    return true;
}
