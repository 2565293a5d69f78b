#include "ctl/trace_line.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/row.h"
#include "lib/base/mem.h"

#define DAY INT64_C(86400000000)
#define OURS "{\"time\":"

/* ---- times ---- */

static bool digits(const char *s, size_t n, int *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        *out = 10 * *out + (s[i] - '0');
    }
    return true;
}

/* "Z", "+01:00" or "+0100" at s; minutes east. NULL: none of them; else what follows. */
static const char *zone(const char *s, int *minutes)
{
    int hour, minute;
    *minutes = 0;
    if (*s == 'Z')
        return s + 1;
    if ((*s != '+' && *s != '-') || !digits(s + 1, 2, &hour))
        return NULL;
    const char *rest = s + 3 + (s[3] == ':');
    if (!digits(rest, 2, &minute))
        return NULL;
    *minutes = (hour * 60 + minute) * (*s == '-' ? -1 : 1);
    return rest + 2;
}

/* RFC 3339's. NULL: it is none; else what follows. */
static const char *full_time(const char *s, int64_t *out)
{
    struct tm tm = {0};
    int east;
    if (strlen(s) < 20 || !digits(s, 4, &tm.tm_year) || s[4] != '-' ||
        !digits(s + 5, 2, &tm.tm_mon) || !digits(s + 8, 2, &tm.tm_mday) ||
        (s[10] != 'T' && s[10] != ' ') || !digits(s + 11, 2, &tm.tm_hour) ||
        !digits(s + 14, 2, &tm.tm_min) || !digits(s + 17, 2, &tm.tm_sec))
        return NULL;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    int64_t micro = 0, unit = 100000;
    s += 19;
    if (*s == '.' || *s == ',')
        for (s++; isdigit((unsigned char)*s); s++, unit /= 10)
            micro += unit * (*s - '0');
    const char *rest = zone(s, &east);
    if (!rest)
        return NULL;
    *out = ((int64_t)timegm(&tm) - east * 60) * 1000000 + micro;
    return rest;
}

/* "Nov 27 10:14:15", of the last such moment that is not to come. */
static const char *short_time(const char *s, int64_t now, int64_t *out)
{
    static const char month[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm, today;
    char name[4] = "";
    if (strlen(s) < 16 || s[3] != ' ' || s[6] != ' ' || s[15] != ' ')
        return NULL;
    memcpy(name, s, 3);
    const char *at = strstr(month, name);
    time_t seconds = (time_t)(now / 1000000);
    localtime_r(&seconds, &today);
    tm = (struct tm){.tm_year = today.tm_year, .tm_isdst = -1};
    if (!at || (at - month) % 3 ||
        !digits(s + 4 + (s[4] == ' '), s[4] == ' ' ? 1 : 2, &tm.tm_mday) ||
        !digits(s + 7, 2, &tm.tm_hour) || !digits(s + 10, 2, &tm.tm_min) ||
        !digits(s + 13, 2, &tm.tm_sec))
        return NULL;
    tm.tm_mon = (int)(at - month) / 3;
    struct tm same = tm;
    *out = (int64_t)mktime(&same) * 1000000;
    if (*out > now + DAY) {
        tm.tm_year--;
        *out = (int64_t)mktime(&tm) * 1000000;
    }
    return s + 15;
}

/* ---- JSON ---- */

static void replace(char **s, const char *with)
{
    free(*s);
    *s = mem_strdup(with);
}

static bool take_ours(struct trace_line *l, const char *s, size_t len)
{
    json_t *j = json_loadb(s, len, JSON_DISABLE_EOF_CHECK, NULL);
    int64_t when;
    if (!json_is_object(j) || !full_time(row_get_text(j, "time"), &when)) {
        json_decref(j);
        return false;
    }
    l->time = when;
    replace(&l->host, row_get_text(j, "host"));
    replace(&l->program, row_get_text(j, "program"));
    replace(&l->text, row_get_text(j, "message"));
    json_decref(l->fields);
    l->fields = j;
    return true;
}

/* The journal gives what is not printable as a list of bytes. */
static char *bytes_of(const json_t *j)
{
    struct buf b = {0};
    if (json_is_string(j))
        buf_adds(&b, json_string_value(j));
    for (size_t i = 0; i < json_array_size(j); i++) {
        char c = (char)json_integer_value(json_array_get(j, i));
        buf_addc(&b, c ? c : '?');
    }
    buf_addc(&b, '\0');
    return b.data;
}

static bool take_journal(struct trace_line *l, const char *s, size_t len)
{
    json_t *j = json_loadb(s, len, 0, NULL);
    const char *when = row_get_text(j, "__REALTIME_TIMESTAMP");
    if (!json_is_object(j) || !*when) {
        json_decref(j);
        return false;
    }
    const char *program = row_get_text(j, "SYSLOG_IDENTIFIER");
    l->time = strtoll(when, NULL, 10);
    replace(&l->host, row_get_text(j, "_HOSTNAME"));
    replace(&l->program, *program ? program : row_get_text(j, "_COMM"));
    free(l->text);
    l->text = bytes_of(json_object_get(j, "MESSAGE"));
    const char *key;
    json_t *value;
    json_object_foreach(j, key, value)
    {
        char name[64];
        size_t n = 0;
        if (strncmp(key, "DOVELANE_", 9) || strlen(key) > sizeof name)
            continue;
        for (; key[9 + n]; n++)
            name[n] = (char)tolower((unsigned char)key[9 + n]);
        name[n] = '\0';
        if (!l->fields)
            l->fields = json_object();
        json_object_set(l->fields, name, value);
    }
    json_decref(j);
    return true;
}

/* ---- plain lines ---- */

/* "HOST PROGRAM[PID]: TEXT", or Dovecot's "lmtp(u)<1><s>: Info: TEXT". */
static void take_plain(struct trace_line *l, const char *s)
{
    while (*s == ' ')
        s++;
    size_t word = strcspn(s, " ");
    const char *rest = s + word + (s[word] == ' ');
    size_t program = strcspn(rest, "[: ");
    if (!word || s[word - 1] == ':' || memchr(s, '(', word) || !program) {
        replace(&l->program, "dovecot");
        replace(&l->text, s);
        return;
    }
    free(l->host);
    l->host = mem_strndup(s, word);
    free(l->program);
    l->program = mem_strndup(rest, program);
    rest += program;
    if (*rest == '[')
        rest += strcspn(rest, "]");
    rest += strcspn(rest, ":");
    rest += *rest == ':';
    rest += *rest == ' ';
    replace(&l->text, rest);
}

void trace_line_parse(struct trace_line *l, const char *line, size_t len, int64_t now)
{
    *l = (struct trace_line){
        .host = mem_strdup(""), .program = mem_strdup(""), .text = mem_strndup(line, len)};
    if (*line == '{' && (take_ours(l, line, len) || take_journal(l, line, len)))
        len = 0;
    if (len) {
        char *all = mem_strndup(line, len);
        const char *rest = full_time(all, &l->time);
        if (!rest)
            rest = short_time(all, now, &l->time);
        if (rest)
            take_plain(l, rest);
        free(all);
    }
    const char *inner = l->fields ? NULL : strstr(l->text, OURS);
    if (inner) {
        char *copy = mem_strdup(inner); /* what it is taken from is replaced */
        take_ours(l, copy, strlen(copy));
        free(copy);
    }
}

void trace_line_free(struct trace_line *l)
{
    free(l->host);
    free(l->program);
    free(l->text);
    json_decref(l->fields);
}
