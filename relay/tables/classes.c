#include "relay/tables/classes.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

#define OTHERS (CLASS_SHARES_MOST - 1)

struct classes {
    class_weigh *weigh;
    unsigned turn;                 /* how often the weights may have changed */
    unsigned n;                    /* numbers in use, with 0 */
    char *name[CLASS_SHARES_MOST]; /* from 1 */
};

double class_weight(const struct destination *d, const char *class)
{
    const struct config_class *c = class ? config_class(d->relay->config, class) : NULL;
    return c ? (double)c->weight : 1.;
}

unsigned classes_number(struct relay *r, const char *class)
{
    struct classes *all = r->classes;
    if (!class)
        return 0;
    for (unsigned i = 1; i < all->n; i++)
        if (!strcmp(all->name[i], class))
            return i;
    if (all->n == OTHERS)
        return OTHERS;
    all->name[all->n] = mem_strdup(class);
    all->turn++; /* its weight is not known yet */
    return all->n++;
}

void classes_expect(struct destination *d, unsigned class)
{
    if (!class || d->classes)
        return;
    d->classes = mem_zero(sizeof *d->classes);
    for (unsigned i = 0; i < CLASS_SHARES_MOST; i++)
        TAILQ_INIT(&d->classes->queue[i]);
    d->classes->waiting = d->queued ? 1 : 0;
    d->classes->turn = d->relay->classes->turn - 1; /* none was asked for */
}

const double *classes_weights(struct destination *d)
{
    struct destination_classes *of = d->classes;
    const struct classes *all = d->relay->classes;
    if (of->turn == all->turn)
        return of->weight;
    of->turn = all->turn;
    for (unsigned i = 0; i < CLASS_SHARES_MOST; i++)
        of->weight[i] = i < all->n ? all->weigh(d, all->name[i]) : 1.;
    return of->weight;
}

void classes_reload(struct relay *r)
{
    r->classes->turn++;
}

struct classes *classes_open(class_weigh *weigh)
{
    struct classes *all = mem_zero(sizeof *all);
    all->weigh = weigh;
    all->n = 1;
    return all;
}

void classes_close(struct classes *all)
{
    for (unsigned i = 1; i < all->n; i++)
        free(all->name[i]);
    free(all);
}
