#include "lib/ingress/depth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/mail/lanename.h"

struct lane {
    char *name, *destination, *class;
    size_t len;
    long long entries;
    double since; /* 0: not known */
};

struct lanes {
    size_t n, size;
    struct lane *v;
};

struct node {
    struct lanes said, saying; /* the last whole answer, and the one that is being heard */
    double heard;              /* 0: never */
};

/* Of one next hop and class. */
struct key {
    char *destination, *class;
    long long listed;
    double since;      /* of the oldest entry; 0: not known */
    bool measured;     /* in the round that is being counted */
    long long storing; /* begun, and not over */
    long long stored;  /* by this process since it began */
    long long before;  /* of them, what the nodes' answers have */
    long long heard;   /* the same as of the last answer: what the next count has */
};

struct depth {
    size_t nnodes;
    struct node *node;
    pthread_mutex_t lock; /* of what follows */
    size_t n;
    struct key *key; /* by destination, then class */
    double heard;    /* the last answer that is counted in them; 0: none */
};

struct depth *depth_new(size_t nnodes)
{
    struct depth *d = mem_zero(sizeof *d);
    d->nnodes = nnodes;
    d->node = mem_zero((nnodes + 1) * sizeof *d->node);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

static void empty(struct lanes *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        free(l->v[i].destination);
        free(l->v[i].class);
    }
    free(l->v);
    *l = (struct lanes){0};
}

static void key_free(struct key *k)
{
    free(k->destination);
    free(k->class);
}

void depth_free(struct depth *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->nnodes; i++) {
        empty(&d->node[i].said);
        empty(&d->node[i].saying);
    }
    for (size_t i = 0; i < d->n; i++)
        key_free(&d->key[i]);
    free(d->node);
    free(d->key);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- keys ---- */

static int compare(const struct key *k, const char *destination, const char *class)
{
    int order = strcmp(k->destination, destination);
    return order ? order : strcmp(k->class, class);
}

/* Where it is, or would be. */
static size_t place(const struct depth *d, const char *destination, const char *class)
{
    size_t low = 0, high = d->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(&d->key[middle], destination, class) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct key *key_of(struct depth *d, const char *destination, const char *class)
{
    size_t at = place(d, destination, class);
    if (at < d->n && !compare(&d->key[at], destination, class))
        return &d->key[at];
    d->key = mem_grow(d->key, (d->n + 1) * sizeof *d->key);
    memmove(&d->key[at + 1], &d->key[at], (d->n - at) * sizeof *d->key);
    d->key[at] = (struct key){.destination = mem_strdup(destination), .class = mem_strdup(class)};
    d->n++;
    return &d->key[at];
}

/* ---- what the nodes say ---- */

bool depth_lane(struct depth *d, size_t node, const char *name, size_t len, long long entries)
{
    struct lanes *l = &d->node[node].saying;
    struct lanename parsed;
    if (!lanename_parse(name, len, &parsed))
        return false;
    if (l->n == l->size) {
        l->size = l->size ? 2 * l->size : 16;
        l->v = mem_grow(l->v, l->size * sizeof *l->v);
    }
    l->v[l->n++] = (struct lane){.name = mem_strndup(name, len),
                                 .destination = mem_strdup(parsed.destination),
                                 .class = mem_strdup(parsed.class ? parsed.class : ""),
                                 .len = len,
                                 .entries = entries};
    lanename_free(&parsed);
    return true;
}

size_t depth_lanes(const struct depth *d, size_t node)
{
    return d->node[node].saying.n;
}

struct depth_name depth_name(const struct depth *d, size_t node, size_t n)
{
    const struct lane *l = &d->node[node].saying.v[n];
    return (struct depth_name){l->name, l->destination, l->class, l->len};
}

void depth_oldest(struct depth *d, size_t node, size_t n, double since)
{
    if (n < d->node[node].saying.n)
        d->node[node].saying.v[n].since = since;
}

void depth_heard(struct depth *d, size_t node, double now)
{
    struct node *n = &d->node[node];
    empty(&n->said);
    n->said = n->saying;
    n->saying = (struct lanes){0};
    n->heard = now;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n; i++)
        d->key[i].heard = d->key[i].stored;
    pthread_mutex_unlock(&d->lock);
}

void depth_broken(struct depth *d, size_t node)
{
    empty(&d->node[node].saying);
}

/* ---- the round's end ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct lane *const *)a)->name, (*(const struct lane *const *)b)->name);
}

/* All lanes of the nodes that count, by name. When the last of these nodes was heard; 0: none
 * counts. */
static double gather(const struct depth *d, double now, const struct lane ***out, size_t *n_r)
{
    size_t n = 0, most = 0;
    double heard = 0.;
    for (size_t i = 0; i < d->nnodes; i++)
        most += d->node[i].said.n;
    *out = mem_alloc((most + 1) * sizeof **out);
    for (size_t i = 0; i < d->nnodes; i++) {
        const struct node *node = &d->node[i];
        if (node->heard <= 0. || now - node->heard > DEPTH_KEEP)
            continue;
        if (node->heard > heard)
            heard = node->heard;
        for (size_t k = 0; k < node->said.n; k++)
            (*out)[n++] = &node->said.v[k];
    }
    qsort(*out, n, sizeof **out, by_name);
    *n_r = n;
    return heard;
}

/* Adds the copies of one lane as one. */
static void count_lane(struct depth *d, const struct lane *const *copy, size_t n)
{
    struct key *k = key_of(d, copy[0]->destination, copy[0]->class);
    long long most = 0;
    for (size_t i = 0; i < n; i++) {
        double since = copy[i]->since;
        if (copy[i]->entries > most)
            most = copy[i]->entries;
        if (since > 0. && (!k->measured || since < k->since)) {
            k->since = since;
            k->measured = true;
        }
    }
    k->listed += most;
}

/* Forgets what says nothing. An age that nobody measured now stays while there is something. */
static void tidy(struct depth *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->n; i++) {
        struct key *k = &d->key[i];
        if (!k->listed)
            k->since = 0.;
        if (k->listed || k->storing || k->stored != k->before)
            d->key[kept++] = *k;
        else
            key_free(k);
    }
    d->n = kept;
}

static void count(struct depth *d, const struct lane *const *lane, size_t n)
{
    for (size_t i = 0; i < d->n; i++) {
        d->key[i].listed = 0;
        d->key[i].measured = false;
        d->key[i].before = d->key[i].heard;
    }
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && !strcmp(lane[k]->name, lane[i]->name);)
            k++;
        count_lane(d, &lane[i], k - i);
    }
    tidy(d);
}

void depth_end(struct depth *d, double now)
{
    const struct lane **lane;
    size_t n;
    double heard = gather(d, now, &lane, &n);
    pthread_mutex_lock(&d->lock);
    if (heard > 0.) {
        count(d, lane, n);
        d->heard = heard;
    }
    pthread_mutex_unlock(&d->lock);
    free(lane);
}

/* ---- what is there ---- */

bool depth_of(struct depth *d, const char *destination, const char *class, double now,
              struct depth_is *out)
{
    *out = (struct depth_is){0};
    pthread_mutex_lock(&d->lock);
    bool known = d->heard > 0. && now - d->heard <= DEPTH_KEEP;
    double since = 0.;
    for (size_t i = place(d, destination, class ? class : "");
         i < d->n && !strcmp(d->key[i].destination, destination); i++) {
        const struct key *k = &d->key[i];
        if (class && strcmp(k->class, class) != 0)
            break;
        long long unlisted = k->storing + k->stored - k->before;
        out->entries += k->listed + unlisted;
        out->unlisted += unlisted;
        if (k->since > 0. && (since <= 0. || k->since < since))
            since = k->since;
    }
    pthread_mutex_unlock(&d->lock);
    out->oldest = since > 0. && now > since ? now - since : 0.;
    return known;
}

void depth_storing(struct depth *d, const char *destination, const char *class)
{
    pthread_mutex_lock(&d->lock);
    key_of(d, destination, class)->storing++;
    pthread_mutex_unlock(&d->lock);
}

void depth_over(struct depth *d, const char *destination, const char *class, bool stored)
{
    pthread_mutex_lock(&d->lock);
    struct key *k = key_of(d, destination, class);
    k->storing -= k->storing > 0;
    k->stored += stored;
    pthread_mutex_unlock(&d->lock);
}
