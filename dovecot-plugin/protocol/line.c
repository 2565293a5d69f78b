/* line - escapes fields and takes them apart again. */
#include "dovecot-plugin/protocol/line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct out {
    char *data;
    size_t used, size;
    bool full;
};

static void add(struct out *o, const char *data, size_t size)
{
    if (o->full || size > o->size - o->used) {
        o->full = true;
        return;
    }
    memcpy(o->data + o->used, data, size);
    o->used += size;
}

static void add_escaped(struct out *o, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '\001': add(o, "\0011", 2); break;
        case '\t': add(o, "\001t", 2); break;
        case '\n': add(o, "\001n", 2); break;
        case '\r': add(o, "\001r", 2); break;
        default: add(o, text, 1);
        }
    }
}

size_t line_hint(char out[LINE_HINT_MAX], const char *user, const char *guid, const char *vname)
{
    struct out o = {.data = out, .size = LINE_HINT_MAX - 1}; /* room for LF */
    size_t without_name;

    add(&o, "1\t", 2);
    add_escaped(&o, user);
    add(&o, "\t", 1);
    add_escaped(&o, guid == NULL ? "-" : guid);
    add(&o, "\t", 1);
    if (o.full)
        return 0;
    without_name = o.used;
    add_escaped(&o, vname);
    if (o.full)
        o.used = without_name;
    out[o.used++] = '\n';
    return o.used;
}

size_t line_commit(char out[LINE_COMMIT_MAX], const char *user, const char *namespace,
                   const char (*guid)[LINE_GUID_HEX], size_t n)
{
    struct out o = {.data = out, .size = LINE_COMMIT_MAX};

    add(&o, "1\t", 2);
    add_escaped(&o, user);
    add(&o, "\t", 1);
    add_escaped(&o, namespace);
    for (size_t i = 0; i < n; i++) {
        add(&o, i == 0 ? "\t" : " ", 1);
        add(&o, guid[i], strlen(guid[i]));
    }
    add(&o, "\n", 1);
    return o.full ? 0 : o.used;
}

size_t line_fetch(char out[LINE_FETCH_MAX], const char *user, const char *guid, const char *sha256,
                  uint64_t size)
{
    struct out o = {.data = out, .size = LINE_FETCH_MAX};
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "\t%" PRIu64 "\n", size);

    add(&o, "2\t", 2);
    add_escaped(&o, user);
    add(&o, "\t", 1);
    add(&o, guid, strlen(guid));
    add(&o, "\t", 1);
    add(&o, sha256, strlen(sha256));
    add(&o, digits, (size_t)n);
    return o.full ? 0 : o.used;
}

size_t line_intent(char out[LINE_INTENT_MAX], enum line_intent what, const char *guid,
                   const char *vname)
{
    struct out o = {.data = out, .size = LINE_INTENT_MAX};
    char letter = (char)what;

    add(&o, &letter, 1);
    add(&o, "\t", 1);
    add_escaped(&o, guid == NULL ? "-" : guid);
    if (what != LINE_INTENT_VOID) {
        add(&o, "\t", 1);
        add_escaped(&o, vname);
    }
    add(&o, "\n", 1);
    return o.full ? 0 : o.used;
}

static bool plain(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

void line_mark(char out[LINE_MARK_MAX + 1], const char *user)
{
    static const char hex[] = "0123456789ABCDEF";
    struct out o = {.data = out, .size = LINE_MARK_MAX};

    for (; *user != '\0'; user++) {
        unsigned char c = (unsigned char)*user;

        if (plain(c)) {
            add(&o, user, 1);
        } else {
            const char coded[3] = {'%', hex[c >> 4], hex[c & 15]};

            add(&o, coded, 3);
        }
    }
    if (o.full || o.used == 0) {
        memcpy(out, LINE_MARK_ALL, sizeof(LINE_MARK_ALL));
        return;
    }
    out[o.used] = '\0';
}
