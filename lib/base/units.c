/* units - parses numbers with their units. */
#include "lib/base/units.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct unit {
    const char *name;
    double factor;
};

static const struct unit times[] = {{"ms", 1},        {"s", 1000},    {"m", 60000},
                                    {"min", 60000},   {"h", 3600000}, {"d", 86400000},
                                    {"w", 604800000}, {NULL, 0}};
static const struct unit sizes[] = {{"", 1},           {"B", 1},           {"k", 1024},
                                    {"kB", 1024},      {"M", 1048576},     {"MB", 1048576},
                                    {"G", 1073741824}, {"GB", 1073741824}, {NULL, 0}};

static bool with_unit(const char *text, const struct unit *units, int64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    double v = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (; units->name; units++) {
        if (strcasecmp(end, units->name))
            continue;
        v *= units->factor;
        if (!(v < 9e18))
            return false;
        *out = (int64_t)(v + 0.5);
        return true;
    }
    return false;
}

bool units_time(const char *text, int64_t *ms)
{
    return with_unit(text, times, ms);
}

bool units_size(const char *text, int64_t *bytes)
{
    return with_unit(text, sizes, bytes);
}

struct step {
    int64_t size;
    const char *unit;
};

static char *in_steps(char out[UNITS_TEXT], int64_t v, const struct step *step)
{
    while (step->size > 1 && (!v || v % step->size))
        step++;
    snprintf(out, UNITS_TEXT, "%" PRId64 "%s", v / step->size, step->unit);
    return out;
}

char *units_time_text(char out[UNITS_TEXT], int64_t ms)
{
    static const struct step steps[] = {{3600000, "h"}, {60000, "min"}, {1000, "s"}, {1, "ms"}};
    return in_steps(out, ms, steps);
}

char *units_size_text(char out[UNITS_TEXT], int64_t bytes)
{
    static const struct step steps[] = {{1073741824, "GB"}, {1048576, "MB"}, {1024, "kB"}, {1, ""}};
    return in_steps(out, bytes, steps);
}

double units_postfix_seconds(const char *text)
{
    int64_t ms;
    return units_time(text, &ms) ? (double)ms / 1000. : strtod(text, NULL);
}
