/* units - times and sizes as an admin writes them: in dovelane.conf, in the selectors of
 * `dovelane`, in Postfix's settings. */
#ifndef DOVELANE_LIB_BASE_UNITS_H
#define DOVELANE_LIB_BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* "400ms", "1.5s", "5m" or "5min", "1h", "2d", "1w": Postfix's letters, and two words. A blank
 * may stand before the unit. In milliseconds. A number without unit is no time: Postfix's own
 * settings read it by the setting, some as seconds and some as days. */
bool units_time(const char *text, int64_t *ms);
#define UNITS_TIMES "400ms, 1.5s, 5m or 5min, 1h, 2d, 1w"

/* "512", "512B", "256k" or "256kB", "25M" or "25MB", "1G" or "1GB": 1024-based. In bytes. */
bool units_size(const char *text, int64_t *bytes);
#define UNITS_SIZES "512, 256kB or 256k, 25MB or 25M, 1GB or 1G"

/* The largest unit of which it is a whole number: "50s", "90s", "2h"; "16kB", "1000". out is
 * returned. Both can be read back. */
#define UNITS_TEXT 32
char *units_time_text(char out[UNITS_TEXT], int64_t ms);
char *units_size_text(char out[UNITS_TEXT], int64_t bytes);

/* A time as postconf(1) prints it, where a number without unit is in seconds ("30s", "5m",
 * "10"). */
double units_postfix_seconds(const char *text);

#endif
