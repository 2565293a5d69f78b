/* arrivals - what came into the state while somebody compares it with a giver's (exchange.c): who
 * watches says up to which vector, and is told in which folders to look again. */
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"

#include <string.h>

void orset_watch(struct orset *os, struct watch *w)
{
    w->next = os->watches;
    os->watches = w;
}

void orset_unwatch(struct orset *os, struct watch *w)
{
    for (struct watch **at = &os->watches; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    if (w->again)
        os->alloc.resize(os->alloc.ctx, w->again, 0);
    memset(w, 0, sizeof *w);
}

int orset_arrived(struct orset *os, uint32_t folder, struct orset_dot d)
{
    for (struct watch *w = os->watches; w; w = w->next) {
        if (w->paused || !w->upto || d.counter > orset_peer_has(w->upto, d.origin))
            continue;
        if (folder == ORSET_NO_FOLDER) {
            w->named_again = true;
            continue;
        }
        if (folder >= w->room) {
            uint32_t room = folder + 1 > os->nfolders ? folder + 1 : os->nfolders;
            bool *p = orset_mem(os, w->again, room * sizeof *p);
            if (!p)
                return ORSET_E_MEMORY;
            memset(p + w->room, 0, room - w->room);
            w->again = p;
            w->room = room;
        }
        w->again[folder] = w->any_again = true;
    }
    return 0;
}
