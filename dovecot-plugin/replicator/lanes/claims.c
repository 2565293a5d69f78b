/* claims - writes who runs as this replica into the nodes, and sees who else does. */
#include "dovecot-plugin/replicator/lanes/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/redis/control_keys.h"
#include "lib/redis/node.h"

#define CLAIM_EVERY 4.    /* seconds */
#define CLAIM_LASTS 20000 /* ms, in the node */
#define CLAIM_AWAY 12.    /* seconds: three times unseen */
#define HOST_MAX 64
#define VALUE_MAX 200

/* What stands in the key: "1 INSTANCE RUN MACHINE PID HOST", numbers in hex but the PID. */
struct who {
    uint64_t instance; /* of replicator.db: another one is another host, or another directory */
    uint64_t run;      /* of this process */
    uint64_t machine;  /* its boot and its PID namespace: within one, PIDs can be compared */
    long pid;
    char host[HOST_MAX];
};

struct claim {
    struct claims *claims;
    size_t which;
    struct node *node; /* NULL: not connected */
    bool asked;        /* it has answered since */
    bool writes, ours; /* it was asked by SET; the key is ours */
    double said;
};

struct claims {
    struct replicator *r;
    const struct claims_calls *calls;
    struct who self;
    char *key, *mark, value[VALUE_MAX];
    struct who first, second; /* who was here before; who came later, and is refused */
    double first_until, second_until, began;
    bool refused, told; /* told: and it was logged */
    double said;
    ev_timer every;
    char trouble[512];
    struct claim node[FRAME_SITES_MAX + 1];
};

/* ---- who ---- */

static uint64_t machine_hash(void)
{
    char text[160] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, 64);
    if (fd >= 0)
        close(fd);
    size_t len = n > 0 ? (size_t)n : 0;
    n = readlink("/proc/self/ns/pid", text + len, sizeof text - len);
    return orset_hash(text, len + (n > 0 ? (size_t)n : 0)).lo;
}

/* From a node: read as foreign text. */
static bool read_who(const redisReply *reply, struct who *who_r)
{
    memset(who_r, 0, sizeof *who_r);
    return reply->type == REDIS_REPLY_STRING && strlen(reply->str) < VALUE_MAX &&
           sscanf(reply->str, "1 %" SCNx64 " %" SCNx64 " %" SCNx64 " %ld %63[A-Za-z0-9._-]",
                  &who_r->instance, &who_r->run, &who_r->machine, &who_r->pid, who_r->host) == 5;
}

/* It ran here before, and has ended: of one instance there is one process (replicator.db is
 * locked). */
static bool has_ended(const struct claims *c, const struct who *w)
{
    return w->machine == c->self.machine && !strcmp(w->host, c->self.host) &&
           (w->instance == c->self.instance || w->pid <= 0 ||
            (kill((pid_t)w->pid, 0) < 0 && errno == ESRCH));
}

static bool is_other(const struct claims *c, const struct who *w)
{
    return w->run != c->self.run && !has_ended(c, w);
}

/* ---- what is said of it ---- */

/* After a power loss the host itself may still stand there for some seconds. */
static bool may_be_before_boot(const struct claims *c)
{
    return c->first.instance == c->self.instance && !strcmp(c->first.host, c->self.host) &&
           clock_monotonic() - c->began < CLAIM_LASTS / 1000. + CLAIM_EVERY;
}

static const char *place_of(const struct claims *c, const struct who *w, char *text, size_t size)
{
    bool same = !strcmp(w->host, c->self.host);
    snprintf(text, size, "%s%s%s, process %ld", same ? "another one on " : "",
             *w->host ? w->host : "an unknown host", same ? " (or a host of that name)" : "",
             w->pid);
    return text;
}

const char *claims_trouble(struct claims *c)
{
    const char *name = c->r->group.name;
    char place[160];
    double now = clock_monotonic();
    if (c->refused)
        snprintf(c->trouble, sizeof c->trouble,
                 "two replicators run as %s: %s, was there before, so this one takes and sends "
                 "nothing; what changes here waits. Each host needs a name of its own (-n in the "
                 "executable of service dovelane-replicator)",
                 name, place_of(c, &c->first, place, sizeof place));
    else if (now < c->second_until)
        snprintf(c->trouble, sizeof c->trouble,
                 "two replicators run as %s: %s, came later and is refused: it takes and sends "
                 "nothing. Each host needs a name of its own (-n in the executable of service "
                 "dovelane-replicator)",
                 name, place_of(c, &c->second, place, sizeof place));
    else
        return NULL;
    return c->trouble;
}

static void tell(struct claims *c)
{
    const char *text = claims_trouble(c);
    bool quiet = c->refused && may_be_before_boot(c);
    metric_set(replicator_name_twice, text && !quiet);
    if (!text && c->told)
        log_info("nobody else runs as %s any more", c->r->group.name);
    if (!text)
        c->told = false;
    if (!text || quiet || (c->told && !replicator_may_say(&c->said, 60.)))
        return;
    if (!c->told)
        c->said = clock_monotonic();
    c->told = true;
    log_error("%s", text);
}

/* ---- asking ---- */

static void on_written(struct wire *w, redisReply *reply, void *arg)
{
    (void)w, (void)reply, (void)arg; /* the next question sees what came of it */
}

/* At nodes that the other one has not reached yet: it would find this one there. */
static void give_up(struct claims *c)
{
    for (size_t i = 0; i <= CLAIM_OWN; i++) {
        struct claim *n = &c->node[i];
        if (n->ours && n->node && node_ready(n->node))
            (void)wire_sendf(node_wire(n->node), on_written, n, "SET %s %s XX PX 1", c->key,
                             c->value);
        n->ours = false;
    }
}

static void judge(struct claims *c)
{
    bool refused = clock_monotonic() < c->first_until, again = c->refused && !refused;
    if (refused && !c->refused)
        give_up(c);
    c->refused = refused;
    tell(c);
    for (size_t i = 0; again && i <= CLAIM_OWN; i++)
        c->node[i].asked = false;
}

static bool send(struct claim *n, wire_reply_fn *fn, const char *format, const char *key)
{
    return wire_sendf(node_wire(n->node), fn, n, format, key, n->claims->value, CLAIM_LASTS);
}

static void cannot_ask(struct claim *n, const char *why)
{
    if (replicator_may_say(&n->said, 3600.))
        log_warning("node %s does not take the key %s: %s. Two hosts with one name would not be "
                    "noticed there%s",
                    node_name(n->node), n->claims->key, why,
                    strncmp(why, "NOPERM", 6) == 0
                        ? ": `dovelane acl` again, into the aclfile of that Redis, and ACL LOAD"
                        : "");
}

/* Of SET ... NX GET and of GET: what stood there. */
static void on_asked(struct wire *w, redisReply *reply, void *arg)
{
    struct claim *n = arg;
    struct claims *c = n->claims;
    struct who there;
    (void)w;
    if (!reply)
        return;
    bool before = claims_may(c, n->which);
    n->ours = n->writes && reply->type == REDIS_REPLY_NIL;
    if (reply->type == REDIS_REPLY_ERROR) {
        cannot_ask(n, reply->str);
    } else if (reply->type != REDIS_REPLY_NIL) {
        if (!read_who(reply, &there) || is_other(c, &there)) {
            c->first = there;
            c->first_until = clock_monotonic() + CLAIM_AWAY;
            (void)send(n, on_written, "SET %s %s PX %d", c->mark);
        } else if (!c->refused) {
            n->ours = true;
            (void)send(n, on_written, "SET %s %s PX %d", c->key);
        }
    }
    n->asked = true;
    judge(c);
    if (c->refused && n->ours) /* it was on its way */
        give_up(c);
    if (!before && claims_may(c, n->which))
        c->calls->may(c->r, n->which);
}

static void on_mark(struct wire *w, redisReply *reply, void *arg)
{
    struct claims *c = ((struct claim *)arg)->claims;
    struct who there;
    (void)w;
    if (!reply || reply->type != REDIS_REPLY_STRING || !read_who(reply, &there) ||
        !is_other(c, &there))
        return;
    c->second = there;
    c->second_until = clock_monotonic() + CLAIM_AWAY;
    judge(c);
}

static void ask(struct claim *n)
{
    struct claims *c = n->claims;
    if (!n->node || !node_ready(n->node) || c->r->stopping)
        return;
    n->writes = !c->refused;
    if (c->refused) {
        (void)wire_sendf(node_wire(n->node), on_asked, n, "GET %s", c->key);
        return;
    }
    (void)send(n, on_asked, "SET %s %s NX GET PX %d", c->key);
    (void)wire_sendf(node_wire(n->node), on_mark, n, "GET %s", c->mark);
}

static void on_every(struct ev_loop *loop, ev_timer *t, int events)
{
    struct claims *c = t->data;
    (void)loop, (void)events;
    judge(c);
    for (size_t i = 0; i <= CLAIM_OWN; i++)
        ask(&c->node[i]);
}

void claims_node(struct claims *c, size_t which, struct node *node)
{
    struct claim *n = &c->node[which];
    n->node = node;
    n->asked = n->ours = false;
    ask(n);
}

bool claims_may(const struct claims *c, size_t which)
{
    return !c->refused && c->node[which].asked;
}

bool claims_refused(const struct claims *c)
{
    return c->refused;
}

/* ---- all of it ---- */

static void name_self(struct who *w, uint64_t instance)
{
    w->instance = instance;
    w->machine = machine_hash();
    w->pid = (long)getpid();
    if (getrandom(&w->run, sizeof w->run, 0) != sizeof w->run)
        log_fatal("getrandom: %s", strerror(errno));
    if (gethostname(w->host, sizeof w->host) < 0)
        w->host[0] = '\0';
    w->host[sizeof w->host - 1] = '\0';
    for (char *p = w->host; *p; p++)
        *p = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ? *p
                                                                                            : '-';
    if (!*w->host)
        strcpy(w->host, "-");
}

struct claims *claims_open(struct replicator *r, uint64_t instance,
                           const struct claims_calls *calls)
{
    struct claims *c = mem_zero(sizeof *c);
    c->r = r;
    c->calls = calls;
    c->began = clock_monotonic();
    name_self(&c->self, instance);
    c->key = mem_printf(CONTROL_SITE "%s", r->group.name);
    c->mark = mem_printf(CONTROL_SITE "%s" CONTROL_SITE_SECOND, r->group.name);
    snprintf(c->value, sizeof c->value, "1 %" PRIx64 " %" PRIx64 " %" PRIx64 " %ld %s",
             c->self.instance, c->self.run, c->self.machine, c->self.pid, c->self.host);
    for (size_t i = 0; i <= CLAIM_OWN; i++)
        c->node[i] = (struct claim){.claims = c, .which = i};
    ev_timer_init(&c->every, on_every, CLAIM_EVERY, CLAIM_EVERY);
    c->every.data = c;
    ev_timer_start(r->loop, &c->every);
    return c;
}

/* Another host may begin at once. */
void claims_stop(struct claims *c)
{
    give_up(c);
}

void claims_close(struct claims *c)
{
    if (!c)
        return;
    ev_timer_stop(c->r->loop, &c->every);
    free(c->key);
    free(c->mark);
    free(c);
}
