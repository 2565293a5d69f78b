/* admin_reply - writes and reads lines of requests and replies. */
#include "dovecot-plugin/protocol/admin_reply.h"

#include <stdlib.h>
#include <string.h>

static int exit_code(const char *text)
{
    int code = 0;

    if (*text == '\0')
        return -1;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        code = code * 10 + (*text - '0');
        if (code > 255)
            return -1;
    }
    return code;
}

enum admin_reply admin_reply_parse(const char *line, const char **rest_r, int *code_r)
{
    *rest_r = line[0] == '\0' ? line : line + 1;
    switch (line[0]) {
    case '#':
        if (line[1] == '\t')
            *rest_r = line + 2;
        return ADMIN_REPLY_TITLES;
    case '+': return ADMIN_REPLY_ROW;
    case '-': return ADMIN_REPLY_ERROR;
    case '=':
        if (line[1] == '\t' && (*code_r = exit_code(line + 2)) >= 0)
            return ADMIN_REPLY_END;
        return ADMIN_REPLY_BROKEN;
    default: return ADMIN_REPLY_BROKEN;
    }
}

static void unescape(char *text)
{
    char *out = text;

    for (; *text != '\0'; text++) {
        if (*text != '\001' || text[1] == '\0') {
            *out++ = *text;
            continue;
        }
        switch (*++text) {
        case '1': *out++ = '\001'; break;
        case 't': *out++ = '\t'; break;
        case 'n': *out++ = '\n'; break;
        case 'r': *out++ = '\r'; break;
        default: *out++ = *text;
        }
    }
    *out = '\0';
}

char *admin_reply_field(char **rest)
{
    char *field = *rest, *tab;

    if (field == NULL)
        return NULL;
    tab = strchr(field, '\t');
    *rest = tab == NULL ? NULL : tab + 1;
    if (tab != NULL)
        *tab = '\0';
    unescape(field);
    return field;
}
