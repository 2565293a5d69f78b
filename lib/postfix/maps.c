/* maps - asks postmap(1) about addresses in Postfix's order, and keeps the answers. */
#include "lib/postfix/maps.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/subprocess.h"

#define KEPT_FOR 60   /* s */
#define PATIENCE 5000 /* ms, for one mail */
#define PLACES 16384  /* chains */

struct map {
    enum maps_of of;
    char *parameter, *table;
    bool whole; /* patterns are matched against whole addresses only */
    time_t complained;
};

struct answer {
    struct answer *next;
    time_t until;
    bool changes;
    enum maps_of of;
    char *detail; /* NULL: not changed */
    char address[];
};

struct maps {
    char *directory, *delimiter;
    struct map *map;
    size_t n;
    pthread_mutex_t lock; /* of what follows, and of complained */
    struct answer *place[PLACES];
    size_t kept;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static time_t now(void)
{
    return (time_t)(now_ms() / 1000);
}

int64_t maps_patience(void)
{
    return now_ms() + PATIENCE;
}

bool maps_over(int64_t until)
{
    return now_ms() >= until;
}

struct maps *maps_new(const char *directory, const char *delimiter)
{
    struct maps *m = mem_zero(sizeof *m);
    m->directory = mem_strdup(directory);
    m->delimiter = mem_strdup(delimiter);
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

static void forget(struct answer **at)
{
    struct answer *a = *at;
    *at = a->next;
    free(a->detail);
    free(a);
}

void maps_free(struct maps *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->map[i].parameter);
        free(m->map[i].table);
    }
    for (size_t i = 0; i < PLACES; i++)
        while (m->place[i])
            forget(&m->place[i]);
    pthread_mutex_destroy(&m->lock);
    free(m->map);
    free(m->directory);
    free(m->delimiter);
    free(m);
}

static bool takes_patterns(const char *table)
{
    return !strncmp(table, "regexp:", 7) || !strncmp(table, "pcre:", 5) ||
           !strncmp(table, "cidr:", 5);
}

void maps_add(struct maps *m, enum maps_of of, const char *parameter, const char *table)
{
    if (!strncmp(table, "proxy:", 6))
        table += 6;
    for (size_t i = 0; i < m->n; i++)
        if (m->map[i].of == of && !strcmp(m->map[i].table, table))
            return;
    m->map = mem_grow(m->map, (m->n + 1) * sizeof *m->map);
    m->map[m->n++] =
        (struct map){of, mem_strdup(parameter), mem_strdup(table), takes_patterns(table), -1};
}

void maps_add_all(struct maps *m, const struct maps *more)
{
    for (size_t i = 0; i < more->n; i++)
        maps_add(m, more->map[i].of, more->map[i].parameter, more->map[i].table);
}

bool maps_has_all(const struct maps *m, const struct maps *wanted)
{
    size_t found = 0;
    for (size_t i = 0; i < wanted->n; i++)
        for (size_t k = 0; k < m->n; k++)
            found +=
                m->map[k].of == wanted->map[i].of && !strcmp(m->map[k].table, wanted->map[i].table);
    return found == wanted->n;
}

static bool any(const struct maps *m, enum maps_of of)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->map[i].of == of)
            return true;
    return false;
}

/* ---- asking ---- */

/* virtual(5), canonical(5): the keys that Postfix tries for an address, one a line. */
static void keys_of(const struct maps *m, const char *address, bool whole, struct buf *keys)
{
    const char *at = strrchr(address, '@');
    size_t local = at ? (size_t)(at - address) : strlen(address);
    buf_printf(keys, "%s\n", address);
    if (whole || !at)
        return;
    size_t base = local;
    for (size_t i = 1; i < local && *m->delimiter; i++)
        if (strchr(m->delimiter, address[i])) {
            base = i;
            break;
        }
    if (base < local)
        buf_printf(keys, "%.*s%s\n%.*s\n", (int)base, address, at, (int)base, address);
    buf_printf(keys, "%.*s\n%s\n", (int)local, address, at);
}

static bool complains(const struct buf *err)
{
    return err->data && (strstr(err->data, "fatal:") || strstr(err->data, "error:") ||
                         strstr(err->data, "panic:"));
}

/* What an admin would look at first. */
static void say(const struct map *map, const struct subprocess_result *r, int64_t left)
{
    if (r->late)
        log_warning("%s: %s did not answer within %lld ms, the rest of the %d s for one mail's "
                    "questions: that mail goes to Postfix's queue. Is the map's server slow or "
                    "away, or has the mail very many recipients?",
                    map->parameter, map->table, (long long)left, PATIENCE / 1000);
    else if (r->failure)
        log_warning("%s: %s cannot be asked, postmap(1) does not run here (%s): mail goes to "
                    "Postfix's queue; is Postfix installed on this host?",
                    map->parameter, map->table, r->failure);
    else
        log_warning("%s: %s cannot be asked (%.300s): mail goes to Postfix's queue; may this user "
                    "read it? try postmap -q",
                    map->parameter, map->table, r->err.data ? r->err.data : "postmap failed");
}

/* Once a minute and map. */
static void complain(struct maps *m, struct map *map, const struct subprocess_result *r,
                     int64_t left)
{
    pthread_mutex_lock(&m->lock);
    bool due = map->complained < 0 || now() - map->complained >= 60;
    if (due)
        map->complained = now();
    pthread_mutex_unlock(&m->lock);
    if (due)
        say(map, r, left);
}

/* cut_short: other addresses of the mail had taken the time, so that this says nothing about the
 * map. */
static char *ask(struct maps *m, struct map *map, const char *address, int64_t left,
                 bool *cut_short)
{
    const char *argv[] = {"postmap", "-c", m->directory, "-q", "-", map->table, NULL};
    struct buf keys = {0};
    keys_of(m, address, map->whole, &keys);
    struct subprocess_result r = subprocess_run(argv, keys.data, keys.len, (int)left);
    char *detail = NULL;
    if (r.status == 0 && r.out.len) {
        detail = mem_printf("%s %s", map->parameter, map->table);
    } else if (r.failure || complains(&r.err) || (r.status != 0 && r.status != 1)) {
        complain(m, map, &r, left);
        detail = mem_printf("%s %s: %s", map->parameter, map->table, r.late ? "slow" : "error");
        *cut_short = r.late && left < PATIENCE / 2;
    }
    subprocess_free(&r);
    buf_free(&keys);
    return detail;
}

/* ---- keeping ---- */

static struct answer **find(struct maps *m, enum maps_of of, const char *address)
{
    /* FNV-1a; a sender who makes chains long gains a slow minute of his own */
    uint64_t hash = 1469598103934665603u + of;
    for (const char *s = address; *s; s++)
        hash = (hash ^ (uint8_t)*s) * 1099511628211u;
    struct answer **at = &m->place[hash % PLACES];
    for (; *at; at = &(*at)->next)
        if ((*at)->of == of && !strcmp((*at)->address, address))
            break;
    return at;
}

static void drop_old(struct maps *m, time_t at)
{
    for (size_t i = 0; i < PLACES; i++)
        for (struct answer **a = &m->place[i]; *a;) {
            if ((*a)->until > at && m->kept <= MAPS_KEPT / 2) {
                a = &(*a)->next;
            } else {
                forget(a);
                m->kept--;
            }
        }
}

static void keep(struct maps *m, enum maps_of of, const char *address, const char *detail)
{
    size_t n = strlen(address) + 1;
    if (m->kept >= MAPS_KEPT)
        drop_old(m, now());
    struct answer **at = find(m, of, address);
    if (*at) {
        forget(at);
        m->kept--;
    }
    struct answer *a = mem_zero(sizeof *a + n);
    memcpy(a->address, address, n);
    a->of = of;
    a->detail = detail ? mem_strdup(detail) : NULL;
    a->until = now() + KEPT_FOR;
    a->next = *at;
    *at = a;
    m->kept++;
}

/* Which form of it the maps have is Postfix's business. */
static bool has_quotes(const char *address)
{
    for (const char *s = address; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127 || *s == '"' || *s == '\\')
            return true;
    return false;
}

bool maps_know(struct maps *m, enum maps_of of, const char *address)
{
    if (!any(m, of) || !*address || has_quotes(address))
        return true;
    pthread_mutex_lock(&m->lock);
    struct answer *known = *find(m, of, address);
    bool fresh = known && known->until > now();
    pthread_mutex_unlock(&m->lock);
    return fresh;
}

bool maps_change(struct maps *m, enum maps_of of, const char *address, int64_t until, char *detail,
                 size_t size)
{
    if (!any(m, of) || !*address)
        return false;
    if (has_quotes(address)) {
        snprintf(detail, size, "an address with quotes");
        return true;
    }
    pthread_mutex_lock(&m->lock);
    struct answer *known = *find(m, of, address);
    bool fresh = known && known->until > now(), changes = fresh && known->detail;
    if (changes)
        snprintf(detail, size, "%s", known->detail);
    pthread_mutex_unlock(&m->lock);
    if (fresh)
        return changes;
    char *found = NULL;
    bool cut_short = false;
    for (size_t i = 0; i < m->n && !found; i++) {
        if (m->map[i].of != of)
            continue;
        int64_t left = until - now_ms();
        if (left <= 0) { /* not kept: another address may have taken the time */
            snprintf(detail, size, "%s %s: slow", m->map[i].parameter, m->map[i].table);
            return true;
        }
        found = ask(m, &m->map[i], address, left, &cut_short);
    }
    pthread_mutex_lock(&m->lock);
    if (!cut_short)
        keep(m, of, address, found);
    pthread_mutex_unlock(&m->lock);
    if (found)
        snprintf(detail, size, "%s", found);
    free(found);
    return found != NULL;
}
