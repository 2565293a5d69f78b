/* Times that the file names, and that are short for how far a node is. */
#include "ctl/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#define ASKED 3 /* times; the shortest answer counts */
#define PART 4  /* of the time: with less the distance is not to blame */

static const char *const comes_of_it[] = {
    [FAR_PATH_TIMEOUT] = "connections may change between its addresses for nothing",
    [FAR_SUSPECT_AFTER] = "it may be suspected while it lives, and gets no mail then",
    [FAR_STORE_DEADLINE] = "its answers may come too late, and the mail goes to Postfix's queue",
};

/* Seconds; negative: it does not answer any more. */
static double distance(struct conn *c)
{
    double least = -1.;
    for (int i = 0; i < ASKED; i++) {
        double asked = clock_monotonic();
        redisReply *r = conn_call(c, "LANE.INFO");
        double took = clock_monotonic() - asked;
        if (!r)
            return -1.;
        freeReplyObject(r);
        if (least < 0. || took < least)
            least = took;
    }
    return least;
}

static bool is_named(const struct config *c, size_t node, enum config_far which)
{
    switch (which) {
    case FAR_PATH_TIMEOUT: return c->says.path_timeout && *c->node[node].standby;
    case FAR_SUSPECT_AFTER: return c->says.suspect_after;
    case FAR_STORE_DEADLINE: return c->says.store_deadline;
    }
    return false;
}

static void check_time(struct ctl *ctl, size_t node, enum config_far which, double rtt)
{
    const struct config *c = ctl->config;
    struct far_time is = config_far_time(c, which),
                    way = {.most = 1e9, .trips = is.trips, .more = is.more};
    double wanted = far_time_at(&way, rtt);
    const char *name = config_far_name(which);
    char about[80];
    if (!is_named(c, node, which) || is.least >= wanted || is.trips * rtt < is.least / PART)
        return;
    char *mend = mem_printf("take %s out of dovelane.conf on all hosts, so that it follows the "
                            "distance, or write %s = %.0fms there; then restart relays, milters "
                            "and proxies",
                            name, name, 1000. * wanted);
    snprintf(about, sizeof about, "node %s", c->node[node].name);
    check_say(ctl, FINDING_WARNING, FOUND_TIME_SHORT, about, mend,
              "is %.0f ms away (round trip), and %s = %.0fms is short for that: %s", 1000. * rtt,
              name, 1000. * is.least, comes_of_it[which]);
    free(mend);
}

void check_times(struct ctl *ctl, struct conn *c, size_t node)
{
    double rtt = distance(c);
    for (enum config_far i = FAR_PATH_TIMEOUT; rtt >= 0. && i <= FAR_STORE_DEADLINE; i++)
        check_time(ctl, node, i, rtt);
}
