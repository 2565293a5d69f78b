/* row - what a verb found, as an object: the rows of which both forms of output are made
 * (ctl/out.h). Keys are constants. Strings come from anywhere: bytes that are no UTF-8 become
 * "\xff", so that a row is always JSON.
 *
 * Units are in the key: _seconds, _bytes, _percent. Points in time are RFC 3339, in UTC, and
 * their key ends in _at. */
#ifndef DOVELANE_CTL_ROW_H
#define DOVELANE_CTL_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "lib/base/mem.h"

json_t *row_new(void);

/* Members are added at the end. A text that is NULL is not added. */
void row_add_text(json_t *row, const char *key, const char *text);
void row_add_number(json_t *row, const char *key, long long number);
void row_add_real(json_t *row, const char *key, double number);
void row_add_is(json_t *row, const char *key, bool is);
/* Microseconds since 1970; not added when it is 0 or less. */
void row_add_time(json_t *row, const char *key, int64_t microseconds);
/* Takes the value. */
void row_add(json_t *row, const char *key, json_t *value);
/* To a list. */
void row_append_text(json_t *list, const char *text);

/* What a row has: "", 0, false, where there is no such member. The text is the row's. */
const char *row_get_text(const json_t *row, const char *key);
long long row_get_number(const json_t *row, const char *key);
double row_get_real(const json_t *row, const char *key);
bool row_get_is(const json_t *row, const char *key);
bool row_has(const json_t *row, const char *key);
/* 0: none. */
int64_t row_get_time(const json_t *row, const char *key);
/* An empty list where there is none. */
size_t row_size(const json_t *row, const char *key);
const json_t *row_item(const json_t *row, const char *key, size_t i);
/* The texts of a list, with that between two; `none` when it is empty. */
void row_join(const json_t *row, const char *key, const char *between, const char *none,
              struct buf *out);

#endif
