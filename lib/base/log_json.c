#include "lib/base/log_json.h"

#include <string.h>

#include "lib/base/number.h"

enum kind { TEXT, NUMBER, LIST };

static const struct {
    const char *name;
    enum kind kind;
} field[] = {
#define FIELD(name, kind, before, help) {#name, kind},
#include "lib/base/log_fields.def"
};

static const char *const event[] = {
#define EVENT(name, help) #name,
#include "lib/base/log_fields.def"
};

const char *log_field_name(enum log_field f)
{
    return field[f].name;
}

/* What does not fit is left out; LOG_JSON_MAX is enough for every line. */
struct json {
    char *out;
    size_t n;
};

static void add(struct json *j, const char *s, size_t n)
{
    if (n > LOG_JSON_MAX - j->n)
        n = LOG_JSON_MAX - j->n;
    memcpy(j->out + j->n, s, n);
    j->n += n;
}

#define ADD(json, literal) add(json, literal, sizeof literal - 1)

/* A cleaned text has no control characters, and is UTF-8. */
static void add_string(struct json *j, const char *s, size_t len)
{
    ADD(j, "\"");
    for (size_t i = 0, from = 0; i <= len; i++) {
        if (i < len && s[i] != '"' && s[i] != '\\')
            continue;
        add(j, s + from, i - from);
        if (i < len)
            ADD(j, "\\");
        from = i;
    }
    ADD(j, "\"");
}

/* "mx1>mx2"; "none" is no name. */
static void add_list(struct json *j, const char *s, size_t len)
{
    ADD(j, "[");
    for (size_t i = 0, n; i < len && !(len == 4 && !memcmp(s, "none", 4)); i += n + 1) {
        const char *end = memchr(s + i, '>', len - i);
        n = end ? (size_t)(end - s) - i : len - i;
        if (i)
            ADD(j, ",");
        add_string(j, s + i, n);
    }
    ADD(j, "]");
}

static void add_key(struct json *j, const char *name)
{
    ADD(j, ",\"");
    add(j, name, strlen(name));
    ADD(j, "\":");
}

static void add_mark(struct json *j, const char *text, const struct log_mark *m)
{
    const char *s = text + m->from;
    add_key(j, field[m->field].name);
    if (field[m->field].kind == LIST)
        add_list(j, s, m->len);
    else if (field[m->field].kind == NUMBER && m->len && s[m->len - 1] >= '0' &&
             s[m->len - 1] <= '9') /* a line that was cut may end with "0." */
        add(j, s, m->len);
    else
        add_string(j, s, m->len);
}

size_t log_json(char out[LOG_JSON_MAX + 1], const struct log_json_origin *o, enum log_level level,
                const char *text, const struct log_marks *m)
{
    static const char *const word[] = {"error", "warning", "info", "debug"};
    char pid[NUMBER_TEXT];
    struct json j = {out, 0};
    ADD(&j, "{\"time\":");
    add_string(&j, o->time, o->time_len);
    add_key(&j, "host");
    add_string(&j, o->host, strlen(o->host));
    add_key(&j, "program");
    add_string(&j, o->program, strlen(o->program));
    add_key(&j, "pid");
    add(&j, pid, number_text(pid, (uint64_t)o->pid));
    if (o->node) {
        add_key(&j, "node");
        add_string(&j, o->node, strlen(o->node));
    }
    add_key(&j, "level");
    add_string(&j, word[level], strlen(word[level]));
    if (m->event != LOG_EVENT_none) {
        add_key(&j, "event");
        add_string(&j, event[m->event], strlen(event[m->event]));
    }
    for (unsigned i = 0; i < m->n; i++)
        add_mark(&j, text, &m->mark[i]);
    add_key(&j, "message");
    add_string(&j, text, strlen(text));
    ADD(&j, "}");
    out[j.n] = '\0';
    return j.n;
}
