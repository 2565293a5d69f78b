#include "ctl/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/escape.h"

json_t *row_new(void)
{
    json_t *row = json_object();
    if (!row)
        abort(); /* as mem_alloc */
    return row;
}

void row_add(json_t *row, const char *key, json_t *value)
{
    if (!value || json_object_set_new(row, key, value) < 0)
        abort();
}

static json_t *row_text(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    struct buf clean = {0};
    escape_to_utf8(&clean, text, strlen(text));
    value = json_stringn(clean.data, clean.len);
    buf_free(&clean);
    return value;
}

void row_add_text(json_t *row, const char *key, const char *text)
{
    if (text)
        row_add(row, key, row_text(text));
}

void row_append_text(json_t *list, const char *text)
{
    if (json_array_append_new(list, row_text(text)) < 0)
        abort();
}

void row_add_number(json_t *row, const char *key, long long number)
{
    row_add(row, key, json_integer(number));
}

void row_add_real(json_t *row, const char *key, double number)
{
    row_add(row, key, json_real(number));
}

void row_add_is(json_t *row, const char *key, bool is)
{
    row_add(row, key, json_boolean(is));
}

void row_add_time(json_t *row, const char *key, int64_t microseconds)
{
    char text[48];
    time_t seconds = (time_t)(microseconds / 1000000);
    struct tm tm;
    if (microseconds <= 0 || !gmtime_r(&seconds, &tm))
        return;
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%03dZ", (int)(microseconds / 1000 % 1000));
    row_add_text(row, key, text);
}

/* ---- reading ---- */

const char *row_get_text(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

long long row_get_number(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

double row_get_real(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

bool row_get_is(const json_t *row, const char *key)
{
    return json_is_true(json_object_get(row, key));
}

bool row_has(const json_t *row, const char *key)
{
    return json_object_get(row, key) != NULL;
}

int64_t row_get_time(const json_t *row, const char *key)
{
    struct tm tm = {0};
    const char *text = row_get_text(row, key), *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    return rest ? (int64_t)timegm(&tm) * 1000000 + (int64_t)(strtod(rest, NULL) * 1e6) : 0;
}

size_t row_size(const json_t *row, const char *key)
{
    return json_array_size(json_object_get(row, key));
}

const json_t *row_item(const json_t *row, const char *key, size_t i)
{
    return json_array_get(json_object_get(row, key), i);
}

void row_join(const json_t *row, const char *key, const char *between, const char *none,
              struct buf *out)
{
    size_t n = row_size(row, key);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%s", i ? between : "", json_string_value(row_item(row, key, i)));
    if (!n)
        buf_adds(out, none);
}
