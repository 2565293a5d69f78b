/* Days and times of rules, in UTC. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/shape/shape_rules.h"

/* "12:00" or "12:00:30". How many bytes there were, 0: it is none. */
static int read_clock(const char *s, struct tm *t)
{
    int n = 0, seconds = 0;
    if (sscanf(s, "%2d:%2d%n", &t->tm_hour, &t->tm_min, &n) != 2)
        return 0;
    if (s[n] == ':' && sscanf(s + n, ":%2d%n", &t->tm_sec, &seconds) != 1)
        return 0;
    return n + seconds;
}

static bool same_time(const struct tm *a, const struct tm *b)
{
    return a->tm_year == b->tm_year && a->tm_mon == b->tm_mon && a->tm_mday == b->tm_mday &&
           a->tm_hour == b->tm_hour && a->tm_min == b->tm_min && a->tm_sec == b->tm_sec;
}

bool shape_time_read(const char *text, int64_t *wall_r)
{
    struct tm t = {0}, back;
    int n = 0;
    /* A sign or a blank before a number is sscanf's to take, and ours to refuse. */
    if (strspn(text, "0123456789-T :Z") != strlen(text) || *text == ' ' || *text == '-' ||
        strstr(text, "--") || strstr(text, ":-") || strstr(text, "T-") || strstr(text, "  ") ||
        sscanf(text, "%4d-%2d-%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &n) != 3)
        return false;
    t.tm_year -= 1900;
    t.tm_mon--;
    text += n;
    if (*text == 'T' || *text == ' ') {
        n = read_clock(text + 1, &t);
        if (!n)
            return false;
        text += n + 1;
    }
    if (*text == 'Z')
        text++;
    struct tm asked = t;
    time_t seconds = timegm(&t);
    if (*text || seconds < 0 || !gmtime_r(&seconds, &back) || !same_time(&asked, &back))
        return false;
    *wall_r = (int64_t)seconds * 1000000;
    return true;
}

void shape_time_text(int64_t wall, char out[SHAPE_TIME_TEXT])
{
    time_t seconds = (time_t)(wall / 1000000);
    struct tm t = {0};
    gmtime_r(&seconds, &t);
    if (!strftime(out, SHAPE_TIME_TEXT, "%Y-%m-%d %H:%M:%SZ", &t))
        *out = '\0';
}
