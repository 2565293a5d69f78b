#include "lib/cluster/placement.h"

struct search {
    const struct placement *p;
    size_t target; /* domains */
    size_t *chosen;
    size_t at[PLACEMENT_COPIES_MOST]; /* the candidate of each that is chosen */
    long steps;                       /* that are left, of all targets */
};

/* How many domains the first n that are chosen are in. */
static size_t domains_of(const struct search *s, size_t n)
{
    const size_t *domain = s->p->domain;
    size_t different = 0;
    for (size_t i = 0; i < n; i++) {
        bool again = false;
        for (size_t k = 0; k < i && !again; k++)
            again = domain[s->at[k]] == domain[s->at[i]];
        different += !again;
    }
    return different;
}

/* In how many domains copies could be, if all candidates did fit. */
static size_t domains_there(const struct placement *p)
{
    size_t found[PLACEMENT_COPIES_MOST], n = 0;
    for (size_t i = 0; i < p->n && n < p->copies; i++) {
        bool again = false;
        for (size_t k = 0; k < n && !again; k++)
            again = found[k] == p->domain[i];
        if (!again)
            found[n++] = p->domain[i];
    }
    return n;
}

/* The first of them, in their order, that may hold a mail together. */
static bool search(struct search *s, size_t from, size_t have)
{
    const struct placement *p = s->p;
    size_t want = p->copies;
    if (have == want)
        return p->fit(p->arg, s->chosen, have, true);
    for (size_t i = from; i + (want - have) <= p->n; i++) {
        if (--s->steps < 0)
            return false;
        s->at[have] = i;
        s->chosen[have] = p->node[i];
        if (domains_of(s, have + 1) + (want - have - 1) >= s->target &&
            p->fit(p->arg, s->chosen, have + 1, false) && search(s, i + 1, have + 1))
            return true;
    }
    return false;
}

bool placement_choose(const struct placement *p, size_t *chosen)
{
    struct search s = {.p = p, .chosen = chosen, .steps = PLACEMENT_STEPS};
    if (p->copies > PLACEMENT_COPIES_MOST || p->copies > p->n || p->least > p->copies)
        return false;
    size_t least = p->least ? p->least : 1;
    for (s.target = domains_there(p); s.target >= least; s.target--)
        if (search(&s, 0, 0))
            return true;
    return false;
}
