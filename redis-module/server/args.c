/* args - reads words and numbers, and answers what is wrong. */
#include "redis-module/server/args.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define QUOTED_MAX 40

/* A value as it may stand in an error line: short, and nothing in it that ends the line. */
static void quote(char out[QUOTED_MAX + 4], RedisModuleString *value)
{
    size_t len;
    const char *p = RedisModule_StringPtrLen(value, &len);
    size_t n = len < QUOTED_MAX ? len : QUOTED_MAX;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(p[i] >= ' ' && p[i] <= '~' ? p[i] : '?');
    strcpy(out + n, len > n ? "..." : "");
}

bool args_word(struct args *a, const char *word)
{
    if (a->at >= a->argc)
        return false;
    size_t len;
    const char *p = RedisModule_StringPtrLen(a->argv[a->at], &len);
    if (len != strlen(word) || strncasecmp(p, word, len) != 0)
        return false;
    a->at++;
    return true;
}

bool args_option(struct args *a, const char *word, unsigned bit)
{
    if ((a->seen & bit) || !args_word(a, word))
        return false;
    a->seen |= bit;
    return true;
}

bool args_expected(struct args *a, const char *expected)
{
    char text[200], value[QUOTED_MAX + 4] = "the end";
    if (a->at < a->argc)
        quote(value, a->argv[a->at]);
    snprintf(text, sizeof text, "ERR syntax: argument %d is %s, expected is %s", a->at, value,
             expected);
    RedisModule_ReplyWithError(a->ctx, text);
    return false;
}

bool args_bad_value(struct args *a, const char *name, RedisModuleString *value, const char *allowed)
{
    char text[250], quoted[QUOTED_MAX + 4];
    quote(quoted, value);
    snprintf(text, sizeof text, "ERR value: %s is %s, allowed is %s", name, quoted, allowed);
    RedisModule_ReplyWithError(a->ctx, text);
    return false;
}

static bool parse(const char *p, size_t len, uint64_t *x)
{
    if (len == 0 || len > 19 || (len > 1 && *p == '0'))
        /* "01" is no number for Redis: it would find no keys behind it, and ask no rights to
         * them */
        return false;
    for (*x = 0; len; len--, p++) {
        if (*p < '0' || *p > '9')
            return false;
        *x = *x * 10 + (uint64_t)(*p - '0');
    }
    return *x <= INT64_MAX;
}

bool args_number(struct args *a, const char *name, uint64_t min, uint64_t max, uint64_t *x)
{
    size_t len;
    if (a->at >= a->argc) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number: %s", name);
        return args_expected(a, expected);
    }
    const char *p = RedisModule_StringPtrLen(a->argv[a->at], &len);
    if (!parse(p, len, x) || *x < min || *x > max) {
        char allowed[64];
        snprintf(allowed, sizeof allowed, "%llu to %llu", (unsigned long long)min,
                 (unsigned long long)max);
        return args_bad_value(a, name, a->argv[a->at], allowed);
    }
    a->at++;
    return true;
}

bool args_string(struct args *a, const char *name, RedisModuleString **s)
{
    if (a->at >= a->argc)
        return args_expected(a, name);
    *s = a->argv[a->at++];
    return true;
}

bool args_id(struct args *a, bool optional, const uint8_t **id_r)
{
    size_t len;
    if (a->at >= a->argc)
        return args_expected(a, "an id");
    const char *p = RedisModule_StringPtrLen(a->argv[a->at], &len);
    if (len != ID_LEN && !(optional && len == 0)) {
        char text[100];
        snprintf(text, sizeof text, "ERR value: length of an id is %zu, allowed is %s16", len,
                 optional ? "0 or " : "");
        RedisModule_ReplyWithError(a->ctx, text);
        return false;
    }
    *id_r = len ? (const uint8_t *)p : NULL;
    a->at++;
    return true;
}

bool args_count(struct args *a, const char *name, uint64_t min, uint64_t each, uint64_t *n)
{
    if (!args_number(a, name, min, INT32_MAX, n))
        return false;
    if (*n * each <= (uint64_t)args_left(a))
        return true;
    char text[160];
    snprintf(text, sizeof text, "ERR syntax: %s is %llu, but only %d of %llu arguments follow",
             name, (unsigned long long)*n, args_left(a), (unsigned long long)(*n * each));
    RedisModule_ReplyWithError(a->ctx, text);
    return false;
}

bool args_keys(struct args *a, RedisModuleString ***keys, uint64_t *n)
{
    if (!args_count(a, "numkeys", 1, 1, n))
        return false;
    *keys = a->argv + a->at;
    a->at += (int)*n;
    return true;
}

bool args_end(struct args *a)
{
    return a->at == a->argc || args_expected(a, "the end");
}
