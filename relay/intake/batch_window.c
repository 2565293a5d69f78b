/* batch_window - measures how many mails come a second, and turns the wait on and off by that. */
#include "relay/intake/batch_window.h"

bool batch_window_took(struct batch_window *g, size_t n, bool behind, double now)
{
    double past = now - g->began;
    g->mails += n;
    g->behind += behind ? n : 0;
    if (past >= BATCH_RATE_SECONDS)
        *g = (struct batch_window){
            .began = now, .on = (double)g->mails >= BATCH_RATE * past && g->behind <= g->mails / 2};
    return g->on;
}
