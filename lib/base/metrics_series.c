/* metrics_series - finds or makes the series of a metric and its labels.
 *
 * Series are found in a table, under a mutex, and so are the values that a label has had: that
 * costs the same for ten and for thousands. Series are in a list of their metric, too, which only
 * grows at its head: who reads it needs no lock. */
#include "lib/base/metrics_series.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "lib/base/mem.h"

#define SHORT                                                                       \
    {                                                                               \
        .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, INFINITY \
    }
#define LONG                                                                       \
    {                                                                              \
        .01, .025, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 900, 3600, 14400, INFINITY \
    }
#define VALUE_MOST 300
/* Two labels with all their values make 10,201 series of one metric. */
#define BUCKETS 8192

const struct metric_declaration metric_declarations[METRICS] = {
#define COUNTER(programs, name, help) \
    {#name, METRIC_COUNTER, METRIC_##programs, "", true, {"", ""}, {0}, help},
#define GAUGE(programs, name, unit, help) \
    {#name, METRIC_GAUGE, METRIC_##programs, unit, true, {"", ""}, {0}, help},
#define COUNTERS(programs, name, first, second, help) \
    {#name, METRIC_COUNTER, METRIC_##programs, "", false, {first, second}, {0}, help},
#define GAUGES(programs, name, unit, first, second, help) \
    {#name, METRIC_GAUGE, METRIC_##programs, unit, false, {first, second}, {0}, help},
#define HISTOGRAM(programs, name, first, second, bounds, help) \
    {#name, METRIC_HISTOGRAM, METRIC_##programs, "seconds", false, {first, second}, bounds, help},
#include "lib/base/metrics.def"
};

/* A value that a label of a metric has in some series, whose text it borrows. */
struct label_value {
    struct label_value *chain; /* in the bucket */
    enum metric metric;
    int label;
    const char *text;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct metric_series *table[BUCKETS];
static struct label_value *values[BUCKETS];
static size_t nvalues[METRICS][METRIC_LABELS];
static _Atomic(struct metric_series *) first[METRICS];

const struct metric_series *metric_series_first(enum metric m)
{
    return atomic_load_explicit(&first[m], memory_order_acquire);
}

/* FNV-1a. */
static size_t hash(enum metric m, const char *const value[METRIC_LABELS])
{
    uint32_t h = 2166136261u ^ (uint32_t)m;
    for (int i = 0; i < METRIC_LABELS; i++, h = (h ^ 0xffu) * 16777619u)
        for (const char *p = value[i]; *p; p++)
            h = (h ^ (unsigned char)*p) * 16777619u;
    return h % BUCKETS;
}

static struct metric_series *find(enum metric m, const char *const value[METRIC_LABELS])
{
    struct metric_series *s = table[hash(m, value)];
    while (s && (s->metric != m || strcmp(s->value[0], value[0]) || strcmp(s->value[1], value[1])))
        s = s->chain;
    return s;
}

static struct label_value **find_value(enum metric m, int label, const char *value)
{
    const char *const key[METRIC_LABELS] = {[0] = label ? "" : value, [1] = label ? value : ""};
    struct label_value **at = &values[hash(m, key)];
    while (*at && ((*at)->metric != m || (*at)->label != label || strcmp((*at)->text, value)))
        at = &(*at)->chain;
    return at;
}

/* True when a series has that value of the label, or the label has room for one more. */
static bool has_room(enum metric m, int label, const char *value)
{
    return nvalues[m][label] < METRIC_VALUES_MOST || *find_value(m, label, value);
}

static void note_value(enum metric m, int label, const char *value)
{
    struct label_value **at = find_value(m, label, value);
    if (*at)
        return;
    *at = mem_zero(sizeof **at);
    **at = (struct label_value){.metric = m, .label = label, .text = value};
    nvalues[m][label]++;
}

static struct metric_series *make(enum metric m, const char *const value[METRIC_LABELS])
{
    struct metric_series *s = mem_zero(sizeof *s), **at = &table[hash(m, value)];
    s->metric = m;
    s->bounds = metric_declarations[m].bounds;
    for (int i = 0; i < METRIC_LABELS; i++)
        note_value(m, i, s->value[i] = mem_strdup(value[i]));
    s->chain = *at;
    *at = s;
    s->next = atomic_load_explicit(&first[m], memory_order_relaxed);
    atomic_store_explicit(&first[m], s, memory_order_release);
    return s;
}

/* A value comes from configs and from other hosts, and goes into a text of lines: what is no
 * printable ASCII becomes "?". */
static const char *clean(const char *value, char out[VALUE_MOST + 1])
{
    size_t n = strnlen(value, VALUE_MOST);
    for (size_t i = 0; i < n; i++)
        out[i] = value[i] >= ' ' && value[i] < 127 ? value[i] : '?';
    out[n] = '\0';
    return out;
}

struct metric_series *metric_series(enum metric m, const char *one, const char *two)
{
    char text[METRIC_LABELS][VALUE_MOST + 1];
    const char *value[METRIC_LABELS] = {clean(one ? one : "", text[0]),
                                        clean(two ? two : "", text[1])};
    pthread_mutex_lock(&lock);
    struct metric_series *s = find(m, value);
    if (!s) {
        for (int i = 0; i < METRIC_LABELS; i++)
            if (*metric_declarations[m].label[i] && !has_room(m, i, value[i]))
                value[i] = "other";
        s = find(m, value);
    }
    if (!s)
        s = make(m, value);
    pthread_mutex_unlock(&lock);
    return s;
}

void metric_series_add(struct metric_series *s, long long n)
{
    atomic_fetch_add_explicit(&s->number, n, memory_order_relaxed);
}

void metric_series_set(struct metric_series *s, long long n)
{
    atomic_store_explicit(&s->number, n, memory_order_relaxed);
}

void metric_gather_begin(enum metric m)
{
    struct metric_series *s = atomic_load_explicit(&first[m], memory_order_acquire);
    for (; s; s = s->next)
        s->gathered = 0;
}

void metric_gather(struct metric_series *s, long long n)
{
    s->gathered += n;
}

void metric_most(struct metric_series *s, long long n)
{
    if (n > s->gathered)
        s->gathered = n;
}

void metric_publish(enum metric m)
{
    struct metric_series *s = atomic_load_explicit(&first[m], memory_order_acquire);
    for (; s; s = s->next)
        metric_series_set(s, s->gathered);
}

void metric_observe(struct metric_series *s, double seconds)
{
    size_t i = 0;
    while (seconds > s->bounds[i])
        i++;
    atomic_fetch_add_explicit(&s->bucket[i], 1, memory_order_relaxed);
    if (seconds > 0.)
        atomic_fetch_add_explicit(&s->sum, (long long)(seconds * 1e6), memory_order_relaxed);
}
