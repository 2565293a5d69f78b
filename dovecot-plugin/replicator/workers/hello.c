/* hello - makes the frame from the group and the settings. */
#include "dovecot-plugin/replicator/workers/hello.h"

#include <string.h>

#include "dovecot-plugin/protocol/frame.h"
#include "lib/base/log.h"

static struct text text_of(const char *s)
{
    return (struct text){(const uint8_t *)s, strlen(s)};
}

/* "site-a=1 site-b=2 " */
static void name_replicas(const struct replicator *r, char text[FRAME_NAME_MAX])
{
    size_t n = (size_t)snprintf(text, FRAME_NAME_MAX, "%s=%llu ", r->group.name,
                                (unsigned long long)r->group.self);
    for (size_t i = 0; i < r->group.npeers && n < FRAME_NAME_MAX; i++)
        n += (size_t)snprintf(text + n, FRAME_NAME_MAX - n, "%s=%llu ", r->group.peer[i].name,
                              (unsigned long long)r->group.peer[i].site);
    if (n >= FRAME_NAME_MAX)
        log_fatal("the replicas' names do not fit into HELLO: shorten them");
}

/* "3 4 ": sites that may have only headers of large mails */
static void name_on_demand(const struct replicator *r, char text[FRAME_NAME_MAX])
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < r->group.npeers && n < FRAME_NAME_MAX; i++)
        if (r->group.peer[i].on_demand)
            n += (size_t)snprintf(text + n, FRAME_NAME_MAX - n, "%llu ",
                                  (unsigned long long)r->group.peer[i].site);
}

void hello_encode(struct orset_buf *out, const struct replicator *r)
{
    struct frame f = {.type = FRAME_HELLO};
    struct frame_hello *h = &f.u.hello;
    char replicas[FRAME_NAME_MAX], on_demand[FRAME_NAME_MAX], from[32];
    char brake[32], percent[32], wait[32], nice_[32], timeout[32], keep[32];
    bool self = false;
    h->version = FRAME_VERSION;
    h->self = r->group.self;
    for (size_t i = 0; i < r->group.npeers; i++) {
        if (!self && r->group.peer[i].site > r->group.self) {
            h->site[h->nsites++] = r->group.self;
            self = true;
        }
        if (!r->group.peer[i].removed)
            h->site[h->nsites++] = r->group.peer[i].site;
    }
    if (!self)
        h->site[h->nsites++] = r->group.self;
    memcpy(h->digest, r->group.digest, sizeof h->digest);
    h->nnamespaces = r->group.nnamespaces;
    memcpy(h->ns, r->group.ns, sizeof h->ns);
    name_replicas(r, replicas);
    snprintf(brake, sizeof brake, "%lld", (long long)r->config->brake_mails);
    snprintf(percent, sizeof percent, "%lld", (long long)r->config->brake_percent);
    snprintf(wait, sizeof wait, "%lld", (long long)r->config->brake_wait);
    snprintf(nice_, sizeof nice_, "%lld", (long long)r->config->replicator_nice);
    snprintf(timeout, sizeof timeout, "%lld", (long long)r->config->worker_timeout);
    snprintf(keep, sizeof keep, "%lld", (long long)r->config->keep_expunged);
    snprintf(from, sizeof from, "%lld", (long long)r->config->on_demand_from);
    name_on_demand(r, on_demand);
    const char *settings[][2] = {
        {"brake_count", brake},
        {"brake_percent", percent},
        {"brake_wait", wait},
        {"nice", nice_},
        {"worker_timeout", timeout},
        {"log_placed", r->config->log_placed == LOG_PLACED_YES ? "yes" : "no"},
        {"role", r->group.backup      ? "backup"
                 : r->group.on_demand ? "on-demand"
                                      : "full"},
        {"on_demand_from", from},
        {"on_demand_sites", on_demand},
        {"keep_expunged", keep},
        {"questions", r->asked_for ? "yes" : "no"},
        {"replicas", replicas},
        {"public_user", r->config->replicate_public_user}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        h->setting[i].key = text_of(settings[i][0]);
        h->setting[i].value = text_of(settings[i][1]);
        h->nsettings++;
    }
    if (frame_encode(out, &f) < 0)
        log_fatal("HELLO does not fit its bounds: shorten replicate_namespaces");
}
