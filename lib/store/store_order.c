/* The owners of mail for ordered destinations (docs/takeover/order.md, "Order"): one list for all
 * that this program stores for them, as long as its nodes can be used without a break. When it
 * cannot, another generation begins, with those that are left in their order and others behind
 * them. The generation stands in the lanes' names, and relays deliver a lower one first.
 *
 * A generation that was left never gets another mail: what is still being stored in it then is
 * given up. And none is ever used again, even with the same owners: a copy that was refilled
 * meanwhile holds what was promised, but what came to it during that stands before what was
 * fetched. */
#include "lib/store/store_work.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/program_name.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

struct store_order {
    char *origin;
    /* has the last generation: the clock may have been set back before the next start */
    char *file;
    bool told;           /* that it cannot be written */
    uint64_t generation; /* 0: none yet */
    bool broken;         /* an owner could not be used for a moment, at least */
    size_t n;
    size_t node[LANENAME_OWNERS_MAX];
    unsigned life[LANENAME_OWNERS_MAX];
};

const char *store_order_origin(const struct store *s)
{
    return s->order->origin;
}

uint64_t store_order_generation(const struct store *s)
{
    return s->order->generation;
}

/* ---- the number ---- */

static uint64_t last_generation(const struct store_order *o)
{
    uint64_t n = 0;
    FILE *f = fopen(o->file, "r");
    if (f && fscanf(f, "%" SCNu64, &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    return n;
}

static bool sync_directory_of(const char *file)
{
    char *directory = mem_strndup(file, (size_t)(strrchr(file, '/') - file) + 1);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    free(directory);
    return good;
}

/* On the disk, not only in the file system's memory: after a power cut the clock may be wrong,
 * too. */
static void keep_generation(struct store_order *o)
{
    char *fresh = mem_printf("%s.new", o->file);
    FILE *f = fopen(fresh, "w");
    bool good = f && fprintf(f, "%" PRIu64 "\n", o->generation) > 0 && fflush(f) == 0 &&
                fsync(fileno(f)) == 0;
    if (f && fclose(f))
        good = false;
    if ((!good || rename(fresh, o->file) < 0 || !sync_directory_of(o->file)) && !o->told) {
        o->told = true;
        log_warning("%s cannot be written: %s: if the clock is set back before this program starts "
                    "again, ordered mail that waits in lanes is overtaken",
                    o->file, strerror(errno));
    }
    free(fresh);
}

/* Milliseconds since 1970 when that is higher than all before: another process of ours may have
 * begun some, too. */
static uint64_t next_generation(const struct store_order *o)
{
    uint64_t now = (uint64_t)clock_wall() / 1000, last = last_generation(o);
    if (last < o->generation)
        last = o->generation;
    return now > last ? now : last + 1;
}

/* ---- leaving one, beginning the next ---- */

static void give_up_storing(struct store *s, uint64_t generation)
{
    for (struct work *w = s->live, *next; w; w = next) {
        next = w->live_next; /* w leaves the list when that was its last open entry */
        w->refs++;
        for (size_t i = 0; i < w->nentries; i++) {
            struct entry_work *e = &w->entry[i];
            if (e->phase != PHASE_STORING || e->generation != generation)
                continue;
            store_reason(e, "an owner of ordered mail could not be used any more");
            store_revoke_start(e);
        }
        work_unref(w);
    }
}

static bool fit(struct store *s)
{
    const struct store_order *o = s->order;
    if (!o->n)
        return false;
    for (size_t i = 0; i < o->n; i++)
        if (!store_node_usable(s, o->node[i], true) ||
            node_life(store_link(s, o->node[i], false)->node) != o->life[i])
            return false;
    return store_watch_fit(s, o->node, o->n, true) && store_watch_known(s, o->node, o->n);
}

static void begin(struct store *s, const size_t *chosen)
{
    struct store_order *o = s->order;
    struct buf owners = {0};
    uint64_t left = o->generation;
    o->generation = next_generation(o);
    o->broken = false;
    o->n = (size_t)s->config->copies;
    for (size_t i = 0; i < o->n; i++) {
        struct node *node = store_link(s, chosen[i], false)->node;
        o->node[i] = chosen[i];
        o->life[i] = node_life(node);
        buf_printf(&owners, "%s%s", i ? ">" : "", node_name(node));
    }
    keep_generation(o);
    log_info("mail for ordered destinations: owners %s, generation %s.%" PRIu64, owners.data,
             o->origin, o->generation);
    buf_free(&owners);
    /* Last: who is told that a mail was given up may begin with another one. */
    if (left)
        give_up_storing(s, left);
}

void store_order_look(struct store *s)
{
    struct store_order *o = s->order;
    if (o->n && !o->broken && !fit(s))
        o->broken = true;
}

bool store_order_place(struct store *s, const struct config_placement *p, bool bulk,
                       struct link *owner[LANENAME_OWNERS_MAX])
{
    struct store_order *o = s->order;
    size_t chosen[LANENAME_OWNERS_MAX];
    store_order_look(s);
    if (!store_choose(s, p, true, true, o->node, o->n, chosen))
        return false;
    /* Its nodes may be fit, but one of them full, and another one there that is not. */
    if (!o->n || o->broken || memcmp(chosen, o->node, o->n * sizeof *chosen))
        begin(s, chosen);
    for (size_t i = 0; i < o->n; i++)
        owner[i] = store_link(s, o->node[i], bulk);
    return true;
}

/* ---- opening and closing ---- */

void store_order_open(struct store *s)
{
    struct store_order *o = s->order = mem_zero(sizeof *o);
    char host[65] = "";
    if (s->origin < 0 && gethostname(host, sizeof host - 1) < 0)
        snprintf(host, sizeof host, "localhost");
    const char *origin = s->origin >= 0 ? s->config->node[s->origin].name
                         : *host        ? host
                                        : "localhost";
    /* Two programs of one host must not share a series: each would wait for the other's
     * generations. The proxy is a user of its own, with a directory of its own. */
    bool proxy = !strcmp(program_name(), "dovelane-proxy");
    o->origin = proxy ? mem_printf("%s-proxy", origin) : mem_strdup(origin);
    o->file = mem_printf("%s%s/generation-%s", s->config->state_directory, proxy ? "/proxy" : "",
                         o->origin);
}
