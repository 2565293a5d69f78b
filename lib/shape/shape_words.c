/* The words of rules: how each is written, and which field it sets. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/base/units.h"
#include "lib/shape/shape_rules.h"
#include "lib/shape/shape_work.h"

#define REASON_MOST 200 /* bytes */
#define NUMBER_MOST 1e9

enum kind {
    RATE,
    BYTE_RATE,
    MAILS,
    BYTES,
    NUMBER,
    TIME,
    SIZE,
    FEEDBACK,
    CHOICE,
    REASON,
    DAY,
    PLAN
};

static const char *const like[] = {
    [RATE] = "100/s, 6000/min, 500/h or 2000/d",
    [BYTE_RATE] = "10MB/s, 600MB/min, 1GB/h or 20GB/d",
    [MAILS] = "20",
    [BYTES] = UNITS_SIZES,
    [TIME] = UNITS_TIMES,
    [SIZE] = UNITS_SIZES,
    [FEEDBACK] = "0.5, 1/concurrency or 1/sqrt_concurrency, of a number from 0 to 1",
    [REASON] = "a text of 1 to 200 bytes on one line: \"their postmaster asked for it\"",
    [DAY] = SHAPE_TIMES,
    [PLAN] = "\"2026-12-01: 50 100 500 1000\": the first day (UTC), and the mails of each day, "
             "of at most 64 days",
};

#define DAY_MS 86400000

static const struct word {
    const char *name;
    enum kind kind;
    size_t at, size; /* the field that shape_word_copy takes over */
    int64_t least, most;
    const char *like;
} words[SHAPE_WORDS] = {
#define FIELD(field) offsetof(struct shape, field), sizeof((struct shape *)0)->field
    [SHAPE_RATE] = {"rate", RATE, FIELD(rate)},
    [SHAPE_BURST] = {"burst", MAILS, FIELD(burst)},
    [SHAPE_BYTE_RATE] = {"byte_rate", BYTE_RATE, FIELD(byte_rate)},
    [SHAPE_BYTE_BURST] = {"byte_burst", BYTES, FIELD(byte_burst)},
    [SHAPE_CONNECTIONS] = {"connections", NUMBER, FIELD(connections), 1, 100000, "1 to 100000"},
    [SHAPE_RELAY_CONNECTIONS] = {"relay_connections", NUMBER, FIELD(relay_connections), 1, 1000,
                                 "1 to 1000"},
    [SHAPE_CONNECTION_MAILS] = {"connection_mails", NUMBER, FIELD(connection_mails), 1, 1000000,
                                "1 to 1000000"},
    [SHAPE_FEEDBACK_POSITIVE] = {"feedback_positive", FEEDBACK, FIELD(positive)},
    [SHAPE_FEEDBACK_NEGATIVE] = {"feedback_negative", FEEDBACK, FIELD(negative)},
    [SHAPE_RETRY_FIRST] = {"retry_first", TIME, FIELD(retry_first), 100, DAY_MS, "100ms to 1d"},
    [SHAPE_RETRY_MOST] = {"retry_most", TIME, FIELD(retry_most), 100, DAY_MS, "100ms to 1d"},
    [SHAPE_TIMEOUT] = {"timeout", TIME, FIELD(timeout), 1000, 7LL * DAY_MS, "1s to 7d"},
    [SHAPE_TIMEOUT_ACTION] = {"timeout_action", CHOICE, FIELD(timeout_action), 0, 0,
                              "postfix|bounce"},
    [SHAPE_SIZE_MOST] = {"size_most", SIZE, FIELD(size_most), 1, 1LL << 40, "1 to 1024GB"},
    [SHAPE_BACKOFF] = {"backoff", CHOICE, FIELD(backoff), 0, 0, "no|yes"},
    [SHAPE_SUSPEND] = {"suspend", REASON, FIELD(suspended_why)},
    [SHAPE_SUSPEND_UNTIL] = {"suspend_until", DAY, FIELD(suspended_until)},
    [SHAPE_RESUMED] = {"resumed", DAY, FIELD(resumed)},
    [SHAPE_WARMUP] = {"warmup", PLAN, FIELD(warmup)},
    [SHAPE_ACCEPT_ENTRIES] = {"accept_entries", NUMBER, FIELD(accept_entries), 1, 1000000000000,
                              "1 to 1000000000000"},
    [SHAPE_ACCEPT_AGE] = {"accept_age", TIME, FIELD(accept_age), 1000, 7LL * DAY_MS, "1s to 7d"},
    [SHAPE_OVER] = {"over", CHOICE, FIELD(over), 0, 0, "defer|queue"},
    [SHAPE_WEIGHT] = {"weight", NUMBER, FIELD(weight), 1, 1000, "1 to 1000"},
#undef FIELD
};

/* ---- values ---- */

/* A plain number at the front, 0 or more; *end is behind it. */
static bool read_number(const char *s, double *out, char **end)
{
    size_t n = strspn(s, "0123456789.");
    if (*s < '0' || *s > '9')
        return false;
    *out = strtod(s, end);
    return *end == s + n;
}

/* "/s": seconds of the unit, 0: none. */
static double per(const char *s)
{
    static const struct {
        const char *name;
        double seconds;
    } unit[] = {{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    s += strspn(s, " ");
    if (*s++ != '/')
        return 0;
    s += strspn(s, " ");
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        if (!strcasecmp(s, unit[i].name))
            return unit[i].seconds;
    return 0;
}

static bool read_rate(const char *value, double *out)
{
    char *end;
    double n, seconds = read_number(value, &n, &end) ? per(end) : 0;
    *out = seconds ? n / seconds : 0;
    return *out > 0 && *out <= NUMBER_MOST;
}

static bool read_byte_rate(const char *value, double *out)
{
    int64_t bytes = 0;
    size_t n = strcspn(value, "/");
    double seconds = per(value + n);
    while (n && value[n - 1] == ' ')
        n--;
    char *size = mem_strndup(value, n);
    bool good = seconds && units_size(size, &bytes) && bytes > 0;
    free(size);
    *out = good ? (double)bytes / seconds : 0;
    return good;
}

static bool read_mails(const char *value, double *out)
{
    char *end;
    return read_number(value, out, &end) && !*end && *out >= 1 && *out <= NUMBER_MOST;
}

static bool read_feedback(const char *value, struct shape_feedback *out)
{
    char *end;
    if (!read_number(value, &out->value, &end) || out->value > 1)
        return false;
    end += strspn(end, " ");
    if (*end && *end++ != '/')
        return false;
    end += strspn(end, " ");
    out->per = !*end                                  ? SHAPE_PER_NONE
               : !strcasecmp(end, "sqrt_concurrency") ? SHAPE_PER_SQRT_CONCURRENCY
                                                      : SHAPE_PER_CONCURRENCY;
    return out->per != SHAPE_PER_CONCURRENCY || !strcasecmp(end, "concurrency");
}

static bool read_plan(const char *value, struct shape_warmup *out)
{
    size_t n = strcspn(value, ": ");
    char *day = mem_strndup(value, n), *end;
    bool good = n == strlen("2026-12-01") && shape_time_read(day, &out->first) && value[n] == ':';
    free(day);
    out->n = 0;
    for (const char *s = value + n + good; good && *(s += strspn(s, " ,")); s = end)
        good = out->n < SHAPE_WARMUP_DAYS && read_number(s, &out->mails[out->n], &end) &&
               (!*end || strchr(" ,", *end)) && out->mails[out->n] >= 1 &&
               out->mails[out->n++] <= NUMBER_MOST * 86400;
    return good && out->n;
}

static bool read_reason(const char *value, struct shape *into)
{
    size_t n = strlen(value);
    for (const char *s = value; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127)
            return false;
    into->suspended = true;
    into->suspended_why = value;
    return n && n <= REASON_MOST;
}

/* Of "no|yes", or -1. */
static int choice_of(const char *choices, const char *value)
{
    for (int i = 0; *choices; i++) {
        size_t n = strcspn(choices, "|");
        if (n == strlen(value) && !strncasecmp(choices, value, n))
            return i;
        choices += n + (choices[n] == '|');
    }
    return -1;
}

static bool read_choice(const struct word *w, const char *value, void *field)
{
    int chosen = choice_of(w->like, value);
    if (chosen < 0)
        return false;
    if (w->size == sizeof(bool))
        *(bool *)field = chosen;
    else
        *(int *)field = chosen;
    return true;
}

static bool read_bounded(const struct word *w, const char *value, int64_t *out)
{
    size_t n = strlen(value);
    if (w->kind == TIME ? !units_time(value, out) : w->kind == SIZE && !units_size(value, out))
        return false;
    if (w->kind == NUMBER) {
        if (!n || n > 15 || strspn(value, "0123456789") != n)
            return false;
        *out = strtoll(value, NULL, 10);
    }
    return *out >= w->least && *out <= w->most;
}

static bool read_bytes(const char *value, double *out)
{
    int64_t bytes;
    bool good = units_size(value, &bytes) && bytes > 0;
    *out = good ? (double)bytes : 0;
    return good;
}

static bool read_value(const struct word *w, const char *value, struct shape *into)
{
    void *field = (char *)into + w->at;
    switch (w->kind) {
    case RATE: return read_rate(value, field);
    case BYTE_RATE: return read_byte_rate(value, field);
    case MAILS: return read_mails(value, field);
    case BYTES: return read_bytes(value, field);
    case FEEDBACK: return read_feedback(value, field);
    case CHOICE: return read_choice(w, value, field);
    case REASON: return read_reason(value, into);
    case DAY: return shape_time_read(value, field);
    case PLAN: return read_plan(value, field);
    default: return read_bounded(w, value, field);
    }
}

/* ---- words ---- */

int shape_word_index(const char *name)
{
    for (int i = 0; i < SHAPE_WORDS; i++)
        if (!strcmp(words[i].name, name))
            return i;
    return -1;
}

const char *shape_word_name(size_t i)
{
    return i < SHAPE_WORDS ? words[i].name : NULL;
}

static const char *would_do(const struct word *w)
{
    return w->like ? w->like : like[w->kind];
}

const char *shape_word_like(const char *name)
{
    int i = shape_word_index(name);
    return i < 0 ? NULL : would_do(&words[i]);
}

char *shape_word_read(enum shape_word word, const char *value, struct shape *into)
{
    const struct word *w = &words[word];
    if (!strcmp(value, "none") || read_value(w, value, into))
        return NULL;
    if (w->kind == TIME)
        return mem_printf("%s = %s: write it like %s, or none; allowed is %s", w->name, value,
                          UNITS_TIMES, w->like);
    if (w->kind == CHOICE)
        return mem_printf("%s = %s: allowed is one of %s|none", w->name, value, w->like);
    return mem_printf("%s = %s: %s %s, or none", w->name, value,
                      w->like ? "allowed is" : "write it like", would_do(w));
}

void shape_word_copy(enum shape_word word, const struct shape *from, struct shape *to)
{
    const struct word *w = &words[word];
    memcpy((char *)to + w->at, (const char *)from + w->at, w->size);
    if (word == SHAPE_SUSPEND)
        to->suspended = from->suspended;
}

char *shape_word_wrong(const char *word, const char *value)
{
    struct shape nowhere = {0};
    int i = shape_word_index(word);
    if (i >= 0)
        return shape_word_read((enum shape_word)i, value, &nowhere);
    struct buf b = {0};
    buf_printf(&b, "%s is no word of a shape; the words are", word);
    for (int k = 0; k < SHAPE_WORDS; k++)
        buf_printf(&b, "%s %s", k ? "," : "", words[k].name);
    return b.data;
}
