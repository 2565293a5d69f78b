#include "relay/cluster/whole_sets.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"

struct whole_since {
    char *set;
    double at; /* clock_boottime() */
};

struct whole_sets {
    char **set;
    size_t n;
    struct whole_since *since;
    size_t nsince;
    double latest; /* of them */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void whole_set_name(struct buf *name, const char *const *owner, size_t n)
{
    const char *sorted[LANENAME_OWNERS_MAX];
    ASSERT(n && n <= LANENAME_OWNERS_MAX);
    memcpy(sorted, owner, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n; i++)
        buf_printf(name, "%s%s", i ? "+" : "", sorted[i]);
}

static struct buf name_of(const struct lanename *lane)
{
    struct buf name = {0};
    whole_set_name(&name, (const char *const *)lane->owner, lane->nowners);
    return name;
}

/* ---- what the server said ---- */

static void forget_said(struct whole_sets *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->set[i]);
    free(w->set);
    w->set = NULL;
    w->n = 0;
}

static void forget_since(struct whole_sets *w)
{
    for (size_t i = 0; i < w->nsince; i++)
        free(w->since[i].set);
    free(w->since);
    w->since = NULL;
    w->nsince = 0;
    w->latest = 0.;
}

void whole_sets_said(struct relay *r, char *const *said, size_t n)
{
    struct whole_sets *w = r->whole_sets;
    forget_said(w);
    w->set = mem_zero((n / 2 + 1) * sizeof *w->set);
    for (size_t i = 0; i + 1 < n; i += 2)
        w->set[w->n++] = mem_strdup(said[i]);
}

void whole_sets_since(struct relay *r, const redisReply *reply)
{
    struct whole_sets *w = r->whole_sets;
    double now = clock_boottime();
    forget_since(w);
    w->since = mem_zero((reply->elements / 2 + 1) * sizeof *w->since);
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        if (!reply->element[i]->str || reply->element[i + 1]->type != REDIS_REPLY_INTEGER)
            continue;
        struct whole_since s = {mem_strdup(reply->element[i]->str),
                                now - (double)reply->element[i + 1]->integer / 1000.};
        w->since[w->nsince++] = s;
        w->latest = s.at > w->latest ? s.at : w->latest;
    }
}

/* ---- questions ---- */

bool whole_sets_believed(const struct relay *r, const struct lanename *lane)
{
    struct buf name = name_of(lane);
    bool whole = false;
    for (size_t i = 0; !whole && i < r->whole_sets->n; i++)
        whole = !strcmp(r->whole_sets->set[i], name.data);
    buf_free(&name);
    return whole;
}

bool whole_sets_says(const struct lanename *lane, const redisReply *said)
{
    struct buf name = name_of(lane);
    bool whole = false;
    for (size_t i = 0; !whole && said->type == REDIS_REPLY_ARRAY && i + 1 < said->elements; i += 2)
        whole = said->element[i]->str && !strcmp(said->element[i]->str, name.data);
    buf_free(&name);
    return whole;
}

bool whole_sets_brought(const struct relay *r, const struct lanename *lane, double stored_at)
{
    const struct whole_sets *w = r->whole_sets;
    bool brought = false;
    if (stored_at > w->latest)
        return false;
    struct buf name = name_of(lane);
    for (size_t i = 0; i < w->nsince; i++)
        if (!strcmp(w->since[i].set, name.data)) {
            brought = stored_at <= w->since[i].at;
            break;
        }
    buf_free(&name);
    return brought;
}

struct whole_sets *whole_sets_open(void)
{
    return mem_zero(sizeof(struct whole_sets));
}

void whole_sets_close(struct whole_sets *w)
{
    forget_said(w);
    forget_since(w);
    free(w);
}
