/* gather - see gather.h. */
#include "relay/intake/gather.h"

bool gather_took(struct gather *g, size_t n, bool behind, double now)
{
    double past = now - g->began;
    g->mails += n;
    g->behind += behind ? n : 0;
    if (past >= GATHER_WINDOW)
        *g = (struct gather){.began = now, .on = (double)g->mails >= GATHER_RATE * past && g->behind <= g->mails / 2};
    return g->on;
}
