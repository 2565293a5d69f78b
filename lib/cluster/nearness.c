#include "lib/cluster/nearness.h"

#include <stdbool.h>

#define NEAREST .001 /* seconds: below, all are alike */
#define STEP 1.5
#define MARGIN 1.25

static double upper_end(int rank)
{
    double end = NEAREST;
    while (rank-- > 0)
        end *= STEP;
    return end;
}

static int rank_of(double rtt)
{
    int rank = 0;
    while (rtt > upper_end(rank))
        rank++;
    return rank;
}

double nearness_rtt(const struct nearness *n)
{
    double least = n->n ? n->sample[0] : -1.;
    for (unsigned long i = 1; i < n->n && i < NEARNESS_SAMPLES; i++)
        if (n->sample[i] < least)
            least = n->sample[i];
    return least;
}

void nearness_add(struct nearness *n, double seconds)
{
    /* A clock that stood still, or one that runs for a day, is no distance. */
    double some = seconds > 0. ? seconds < 3600. ? seconds : 3600. : 0.;
    n->sample[n->n % NEARNESS_SAMPLES] = some;
    n->n++;
    double rtt = nearness_rtt(n);
    bool left = n->n == 1 || rtt > upper_end(n->rank) * MARGIN ||
                (n->rank > 0 && rtt < upper_end(n->rank - 1) / MARGIN);
    if (left)
        n->rank = rank_of(rtt);
}

int nearness_class(const struct nearness *n)
{
    return n->n ? n->rank : NEARNESS_UNKNOWN;
}

double nearness_time(const struct nearness *n, const struct far_time *p)
{
    double wanted = n->n ? p->trips * upper_end(n->rank) + p->more : 0.;
    return wanted <= p->least ? p->least : wanted < p->most ? wanted : p->most;
}

double far_time_at(const struct far_time *p, double rtt)
{
    struct nearness n = {0};
    if (rtt >= 0.)
        nearness_add(&n, rtt);
    return nearness_time(&n, p);
}
