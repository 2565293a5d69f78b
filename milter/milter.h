/* milter - what all sessions share. */
#ifndef DOVELANE_MILTER_MILTER_H
#define DOVELANE_MILTER_MILTER_H

#include <ev.h>
#include <stdatomic.h>

#include "lib/config/config.h"
#include "lib/store/store.h"
#include "milter/engine.h"

/* All but bytes is set before the first session. */
struct milter {
    const struct config *config;
    const struct engine *engine;
    struct ev_loop *loop;
    struct store *store;
    /* of mail that is buffered at this moment, with the copies that are under way */
    atomic_llong bytes;
};
extern struct milter milter;

#endif
