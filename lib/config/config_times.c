/* config_times - the times that follow the round-trip time, and their bounds.
 *
 * What keeps mail from being lost or doubled does not change with them (docs/takeover/times.md,
 * "Times"): acks may come later, but a 250 may not, and a node is suspected early enough before it
 * is dead. */
#include "lib/config/config_work.h"

#define COMPARED 500 /* ms between the last promise and the first comparison of copies */
#define ANSWERED 500 /* ms between the last ack that counts and the last promise */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t config_promise_wanted(const struct config *c, size_t bytes)
{
    return smaller(2 * (c->store_deadline + (int64_t)(bytes / 10000)), c->settle - COMPARED);
}

/* A mail to several destinations has more bytes than max_entry, by which dead_after was checked. */
int64_t config_promise(const struct config *c, size_t bytes)
{
    int64_t wanted = config_promise_wanted(c, bytes),
            before_death = c->dead_after - c->beat - c->suspect_after;
    return c->takeover == TAKEOVER_AUTOMATIC ? smaller(wanted, before_death) : wanted;
}

static int64_t store_most(const struct config *c)
{
    return c->says.store_deadline ? c->store_deadline
                                  : larger(c->store_deadline, config_promise(c, 0) - ANSWERED);
}

/* Nobody may have an undecided mail on a node when it is taken over; and what is copied to another
 * owner reckons with what was heard so long ago, within settle. */
static int64_t suspect_most(const struct config *c)
{
    int64_t before_death = c->dead_after - c->beat - config_promise(c, SIZE_MAX / 2);
    int64_t most = c->takeover == TAKEOVER_AUTOMATIC ? smaller(before_death, c->settle) : c->settle;
    return c->says.suspect_after ? c->suspect_after : larger(c->suspect_after, most);
}

double config_acked(const struct config *c, size_t bytes, double far)
{
    int64_t more = (int64_t)(bytes / 10000), limit = config_promise(c, bytes);
    int64_t most = larger(c->store_deadline + more, limit - ANSWERED);
    int64_t wanted = smaller((int64_t)(1000. * far) + more, most);
    /* large bodies for many destinations: nothing that comes later is worth anything */
    return (double)smaller(wanted, limit) / 1000.;
}

static struct far_time far_time(int64_t least, int64_t most, double trips, int64_t more)
{
    return (struct far_time){(double)least / 1000., (double)most / 1000., trips,
                             (double)more / 1000.};
}

/* A request has one round trip, and a second one before its path is left. Of two beats in a row the
 * second leaves when the first is answered; three more may be lost in the turns of programs.
 * Storing has time for a path that is left, too. */
struct far_time config_far_time(const struct config *c, enum config_far which)
{
    switch (which) {
    case FAR_SUSPECT_AFTER: return far_time(c->suspect_after, suspect_most(c), 2., 3 * c->beat);
    case FAR_STORE_DEADLINE: return far_time(c->store_deadline, store_most(c), 4., 0);
    case FAR_PATH_TIMEOUT: break;
    }
    int64_t most = c->says.path_timeout ? c->path_timeout : larger(c->path_timeout, store_most(c));
    return far_time(c->path_timeout, most, 2., 0);
}

const char *config_far_name(enum config_far which)
{
    static const char *const name[] = {"path_timeout", "suspect_after", "store_deadline"};
    return name[which];
}
