#include "lib/cluster/liveness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

/* So many beats of one other relay under our name came after ours to one server. Our predecessor
 * may leave two behind, in connections that were cut: its last one, and that it leaves. The
 * kernel goes on sending them when the program is gone long since. */
#define DOUBLED 3

struct mark {
    char incarnation[BEAT_INCARNATION];
    uint64_t counter;
    bool any;
};

struct known {
    char *name;
    double suspect_after;
    bool heard;      /* since we forgot */
    double forgot;   /* when that was, or when it was added */
    double beat_at;  /* of the last beat; negative: never */
    double alive_at; /* last alive, ready or leaving; or when we forgot */
    double absent_until;
    struct mark last; /* of all servers */
    struct beat beat;
    unsigned char *as; /* per node: enum heard */
    bool *lists;       /* per node */
    bool *names;       /* per node: it knows of it */
};

struct server {
    unsigned generation; /* in which its marks were first taken */
    struct mark *mark;   /* per node */
    /* per node: it was among those that we listen to when this server answered last */
    bool *met;
    struct mark stranger; /* who else beat in our name, last */
    unsigned strange;     /* how often */
};

struct liveness {
    size_t n;
    int self;
    struct liveness_times times;
    unsigned generation;
    double anyone_at;
    struct known *node;
    struct server *server;
    char own[BEAT_INCARNATION];
    bool doubled;
};

static const char *const words[] = {"unknown", "silent", "alive", "returning", "ready", "leaving"};

const char *node_state_word(enum node_state h)
{
    return words[h];
}

static bool node_state_of_word(const char *p, size_t len, enum node_state *out)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == len && !memcmp(words[i], p, len)) {
            *out = (enum node_state)i;
            return true;
        }
    return false;
}

/* ---- a listener ---- */

struct liveness *liveness_open(const char *const *name, size_t n, int self,
                               struct liveness_times times, double now)
{
    struct liveness *l = mem_zero(sizeof *l);
    l->n = n;
    l->self = self;
    l->times = times;
    l->node = mem_zero((n + 1) * sizeof *l->node);
    l->server = mem_zero((n + 1) * sizeof *l->server);
    for (size_t i = 0; i < n; i++) {
        l->node[i].name = mem_strdup(name[i]);
        l->node[i].suspect_after = times.suspect_after;
        l->node[i].beat_at = -1.;
        l->node[i].as = mem_zero(n);
        l->node[i].lists = mem_zero(n * sizeof(bool));
        l->node[i].names = mem_zero(n * sizeof(bool));
        l->server[i].mark = mem_zero(n * sizeof(struct mark));
        l->server[i].met = mem_zero(n * sizeof(bool));
    }
    liveness_begin(l, now);
    return l;
}

/* One more at the end of an array. */
static void *one_more(void *p, size_t n, size_t size)
{
    char *more = mem_grow(p, (n + 1) * size);
    memset(more + n * size, 0, size);
    return more;
}

void liveness_add(struct liveness *l, const char *name, double now)
{
    size_t n = l->n++;
    l->node = one_more(l->node, n, sizeof *l->node);
    l->server = one_more(l->server, n, sizeof *l->server);
    l->node[n] = (struct known){.name = mem_strdup(name),
                                .suspect_after = l->times.suspect_after,
                                .forgot = now,
                                .beat_at = -1.,
                                .alive_at = now};
    for (size_t i = 0; i <= n; i++) {
        struct known *k = &l->node[i];
        size_t had = i < n ? n : 0;
        for (size_t j = had; j <= n; j++) {
            k->as = one_more(k->as, j, sizeof *k->as);
            k->lists = one_more(k->lists, j, sizeof *k->lists);
            k->names = one_more(k->names, j, sizeof *k->names);
            l->server[i].mark = one_more(l->server[i].mark, j, sizeof(struct mark));
            l->server[i].met = one_more(l->server[i].met, j, sizeof(bool));
        }
    }
}

void liveness_free(struct liveness *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++) {
        free(l->node[i].name);
        free(l->node[i].as);
        free(l->node[i].lists);
        free(l->node[i].names);
        free(l->server[i].mark);
        free(l->server[i].met);
    }
    free(l->node);
    free(l->server);
    free(l);
}

void liveness_forget(struct liveness *l, double now)
{
    l->generation++;
    for (size_t i = 0; i < l->n; i++) {
        l->node[i].heard = false;
        l->node[i].alive_at = l->node[i].forgot = now;
        memset(l->node[i].as, STATE_UNKNOWN, l->n);
        memset(l->node[i].lists, 0, l->n * sizeof(bool));
        memset(l->node[i].names, 0, l->n * sizeof(bool));
    }
}

void liveness_begin(struct liveness *l, double now)
{
    l->anyone_at = now;
    liveness_forget(l, now);
}

void liveness_suspect(struct liveness *l, size_t node, double after)
{
    ASSERT(node < l->n && after > 0.);
    l->node[node].suspect_after = after;
}

double liveness_suspect_after(const struct liveness *l, size_t node)
{
    ASSERT(node < l->n);
    return l->node[node].suspect_after;
}

double liveness_suspect_most(const struct liveness *l)
{
    double most = l->times.suspect_after;
    for (size_t i = 0; i < l->n; i++)
        if (l->node[i].suspect_after > most)
            most = l->node[i].suspect_after;
    return most;
}

unsigned liveness_generation(const struct liveness *l)
{
    return l->generation;
}

void liveness_own(struct liveness *l, const char *incarnation)
{
    snprintf(l->own, sizeof l->own, "%s", incarnation);
}

bool liveness_duplicate_name(const struct liveness *l)
{
    return l->doubled;
}

/* ---- reading a beat ---- */

static bool is_named(const struct liveness *l, size_t node, const char *name, size_t len)
{
    return strlen(l->node[node].name) == len && !memcmp(l->node[node].name, name, len);
}

/* Names mostly come in the order of the table: the one behind the last is tried first. */
static int index_of(const struct liveness *l, size_t likely, const char *name, size_t len)
{
    if (likely < l->n && is_named(l, likely, name, len))
        return (int)likely;
    for (size_t i = 0; i < l->n; i++)
        if (is_named(l, i, name, len))
            return (int)i;
    return -1;
}

static void copy_word(char *out, size_t size, const char *p, size_t len)
{
    if (len >= size)
        len = size - 1;
    memcpy(out, p, len);
    out[len] = '\0';
}

/* "mx2:alive,mx3:silent+" : + stands for "and I took it over". */
static void read_peers(struct liveness *l, struct known *k, const char *p, const char *end)
{
    size_t likely = 0;
    while (p < end) {
        const char *stop = memchr(p, ',', (size_t)(end - p));
        if (!stop)
            stop = end;
        const char *colon = memchr(p, ':', (size_t)(stop - p));
        int i = colon ? index_of(l, likely, p, (size_t)(colon - p)) : -1;
        if (i >= 0) {
            likely = (size_t)i + 1;
            bool taken = stop > colon + 1 && stop[-1] == '+';
            enum node_state h = STATE_UNKNOWN;
            node_state_of_word(colon + 1, (size_t)(stop - colon - 1) - taken, &h);
            k->as[i] = (unsigned char)h;
            k->lists[i] = taken;
            k->names[i] = true;
        }
        p = stop + (stop < end);
    }
}

static bool is(const char *word, size_t len, const char *name)
{
    return strlen(name) == len && !memcmp(word, name, len);
}

/* More than all is all, whatever it says. */
static int percent(const char *number)
{
    long n = strtol(number, NULL, 10);
    return n < 0 ? 0 : n > 100 ? 100 : (int)n;
}

static void read_field(struct liveness *l, struct known *k, const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len), *value;
    char number[24];
    if (!equals)
        return;
    size_t name = (size_t)(equals - word), rest = len - name - 1;
    value = equals + 1;
    copy_word(number, sizeof number, value, rest);
    if (is(word, name, "state")) {
        enum node_state h;
        if (node_state_of_word(value, rest, &h) && h >= STATE_ALIVE)
            k->beat.state = h;
    } else if (is(word, name, "for")) {
        k->beat.leaving = atof(number);
    } else if (is(word, name, "since")) {
        k->beat.since = atof(number);
    } else if (is(word, name, "run")) {
        copy_word(k->beat.run_id, sizeof k->beat.run_id, value, rest);
    } else if (is(word, name, "config")) {
        copy_word(k->beat.config, sizeof k->beat.config, value, rest);
    } else if (is(word, name, "done")) {
        k->beat.done = strtoull(number, NULL, 10);
    } else if (is(word, name, "hand")) {
        k->beat.in_flight = strtoull(number, NULL, 10);
    } else if (is(word, name, "memory")) {
        k->beat.memory = percent(number);
    } else if (is(word, name, "retained")) {
        k->beat.retains_most = is(value, rest, "most");
    } else if (is(word, name, "hears")) {
        read_peers(l, k, value, value + rest);
    }
}

/* What is not understood is passed over: a newer version may say more. A beat without a state
 * says that its sender is returning. */
static void read_text(struct liveness *l, struct known *k, const char *p, size_t len)
{
    const char *end = p + len;
    k->beat = (struct beat){.state = STATE_RETURNING};
    memset(k->as, STATE_UNKNOWN, l->n);
    memset(k->lists, 0, l->n * sizeof(bool));
    memset(k->names, 0, l->n * sizeof(bool));
    while (p < end) {
        const char *stop = memchr(p, ' ', (size_t)(end - p));
        if (!stop)
            stop = end;
        read_field(l, k, p, (size_t)(stop - p));
        p = stop + (stop < end);
    }
}

static bool same_mark(const struct mark *m, const struct liveness_news *b)
{
    return m->any && m->counter == b->counter && strlen(m->incarnation) == b->incarnation_len &&
           !memcmp(m->incarnation, b->incarnation, b->incarnation_len);
}

static void set_mark(struct mark *m, const struct liveness_news *b)
{
    m->any = true;
    m->counter = b->counter;
    copy_word(m->incarnation, sizeof m->incarnation, b->incarnation, b->incarnation_len);
}

/* Another server had a later one of the same relay already. */
static bool not_later(const struct mark *last, const struct liveness_news *b)
{
    bool same_relay = last->any && strlen(last->incarnation) == b->incarnation_len &&
                      !memcmp(last->incarnation, b->incarnation, b->incarnation_len);
    return same_relay && b->counter <= last->counter;
}

static double absence(const struct liveness *l, const struct beat *b)
{
    return b->state != STATE_LEAVING || !(b->leaving > 0.) ? 0.
           : b->leaving < l->times.return_max              ? b->leaving
                                                           : l->times.return_max;
}

static void hear(struct liveness *l, struct known *k, const struct liveness_news *b, double now)
{
    if (not_later(&k->last, b))
        return;
    set_mark(&k->last, b);
    read_text(l, k, b->text, b->text_len);
    k->heard = true;
    k->beat_at = l->anyone_at = l->self < 0 ? now - b->age : now;
    /* Back before its announced time: dead_after counts from here. */
    if (k->beat.state != STATE_RETURNING || k->absent_until > now)
        k->alive_at = now;
    k->absent_until = k->beat.state == STATE_LEAVING ? now + absence(l, &k->beat) : 0.;
}

/* What lay there before we listened says nothing of who lives now. Who said that it will be away
 * is away for that long, though. */
static void hear_old(struct liveness *l, struct known *k, const struct liveness_news *b, double now)
{
    if (not_later(&k->last, b))
        return;
    set_mark(&k->last, b);
    read_text(l, k, b->text, b->text_len);
    if (k->beat.state == STATE_LEAVING && now - b->age + absence(l, &k->beat) > k->absent_until)
        k->absent_until = now - b->age + absence(l, &k->beat);
    memset(k->as, STATE_UNKNOWN, l->n);
    memset(k->lists, 0, l->n * sizeof(bool));
    memset(k->names, 0, l->n * sizeof(bool));
}

/* Whoever goes on beating in our name after we did is another relay; what lay there before us
 * was left by our predecessor. */
static void look_at_own(struct liveness *l, struct server *s, const struct liveness_news *b)
{
    struct mark *m = &s->mark[l->self];
    bool ours =
        strlen(l->own) == b->incarnation_len && !memcmp(l->own, b->incarnation, b->incarnation_len);
    if (!ours && m->any) { /* our own beats were answered there since the first look */
        bool again = strlen(s->stranger.incarnation) == b->incarnation_len &&
                     !memcmp(s->stranger.incarnation, b->incarnation, b->incarnation_len);
        s->strange = again ? s->strange + 1 : 1;
        set_mark(&s->stranger, b);
        l->doubled |= s->strange >= DOUBLED;
    }
    set_mark(m, b);
}

void liveness_update(struct liveness *l, size_t server, unsigned generation,
                     const struct liveness_news *news, size_t n, double now)
{
    struct server *s = &l->server[server];
    bool counts = generation == l->generation && s->generation == l->generation;
    int k = -1;
    for (size_t i = 0; i < n; i++) {
        const struct liveness_news *b = &news[i];
        k = index_of(l, (size_t)(k + 1), b->name, b->name_len);
        if (k < 0 || b->incarnation_len >= BEAT_INCARNATION)
            continue;
        if (k == l->self) {
            look_at_own(l, s, b);
            continue;
        }
        if (same_mark(&s->mark[k], b))
            continue;
        set_mark(&s->mark[k], b);
        /* Whoever only looks, and takes nothing over, may believe a young beat at once. */
        bool young =
            l->self < 0 && generation == l->generation && b->age < l->node[k].suspect_after;
        if ((counts && s->met[k]) || young)
            hear(l, &l->node[k], b, now);
        else
            hear_old(l, &l->node[k], b, now);
    }
    if (generation == l->generation)
        s->generation = generation;
    memset(s->met, true, l->n * sizeof(bool));
}

/* ---- what is known ---- */

enum node_state liveness_state(const struct liveness *l, size_t node, double now)
{
    ASSERT(node < l->n);
    const struct known *k = &l->node[node];
    if (!k->heard)
        return now - k->forgot < l->times.dead_after ? STATE_UNKNOWN : STATE_SILENT;
    return now - k->beat_at < l->times.dead_after ? k->beat.state : STATE_SILENT;
}

enum node_state liveness_state_for_placement(const struct liveness *l, size_t node, double now)
{
    ASSERT(node < l->n);
    const struct known *k = &l->node[node];
    return k->heard && now - k->beat_at >= k->suspect_after ? STATE_SILENT
                                                            : liveness_state(l, node, now);
}

double liveness_silence(const struct liveness *l, size_t node, double now)
{
    ASSERT(node < l->n);
    return l->node[node].beat_at < 0. ? -1. : now - l->node[node].beat_at;
}

const struct beat *liveness_beat(const struct liveness *l, size_t node)
{
    return l->node[node].beat_at < 0. ? NULL : &l->node[node].beat;
}

bool liveness_has_taken_over(const struct liveness *l, size_t node, size_t of)
{
    ASSERT(node < l->n && of < l->n);
    return l->node[node].lists[of];
}

bool liveness_knows(const struct liveness *l, size_t node, size_t other)
{
    return l->node[node].names[other];
}

enum node_state liveness_reported_state(const struct liveness *l, size_t node, size_t of)
{
    ASSERT(node < l->n && of < l->n);
    return (enum node_state)l->node[node].as[of];
}

bool liveness_others_hear(const struct liveness *l, size_t node, double now)
{
    ASSERT(node < l->n);
    for (size_t k = 0; k < l->n; k++)
        if ((int)k != l->self && k != node && liveness_state(l, k, now) == STATE_ALIVE &&
            l->node[k].as[node] == STATE_ALIVE)
            return true;
    return false;
}

double liveness_silence_of_all(const struct liveness *l, double now)
{
    return now - l->anyone_at;
}

bool liveness_dead(const struct liveness *l, size_t node, double now)
{
    ASSERT(node < l->n);
    const struct known *k = &l->node[node];
    enum node_state h = liveness_state(l, node, now);
    if (h != STATE_SILENT && h != STATE_RETURNING)
        return false;
    double since = k->absent_until > k->alive_at ? k->absent_until : k->alive_at;
    return now - since >= l->times.dead_after && !liveness_others_hear(l, node, now);
}

/* "hears=mx2:alive,mx3:silent+" */
bool beat_names(const char *text, const char *node)
{
    size_t len = strlen(node);
    for (const char *at = text; (at = strstr(at, node)); at++)
        if (at > text && (at[-1] == '=' || at[-1] == ',') && at[len] == ':')
            return true;
    return false;
}

/* ---- writing one ---- */

void beat_encode(const struct beat *b, const struct liveness *l, const bool *lists, double now,
                 struct buf *out)
{
    buf_printf(out, "state=%s", node_state_word(b->state));
    if (b->state == STATE_LEAVING)
        buf_printf(out, " for=%.0f", b->leaving);
    buf_printf(out, " since=%.0f run=%s config=%s done=%llu hand=%llu", b->since, b->run_id,
               b->config, (unsigned long long)b->done, (unsigned long long)b->in_flight);
    if (b->memory > 0)
        buf_printf(out, " memory=%d", b->memory);
    if (b->retains_most)
        buf_printf(out, " retained=most");
    buf_printf(out, " hears=");
    bool any = false;
    for (size_t i = 0; i < l->n; i++) {
        if ((int)i == l->self)
            continue;
        buf_printf(out, "%s%s:%s%s", any ? "," : "", l->node[i].name,
                   node_state_word(liveness_state_for_placement(l, i, now)), lists[i] ? "+" : "");
        any = true;
    }
}
