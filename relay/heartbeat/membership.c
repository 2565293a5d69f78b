#include "relay/heartbeat/membership.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "relay/intake/lane_watch.h"
#include "relay/heartbeat/membership_join.h"
#include "relay/cluster/cluster_view.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/cluster/members.h"
#include "relay/acks/owners.h"
#include "lib/redis/control_keys.h"
#include "relay/heartbeat/heartbeat.h"

#define LOOK 1.      /* seconds */
#define UNMET_SAID 5 /* looks after which the log says whom this node waits for */
#define OUTCAST "this node was taken out of the group by `dovelane nodes --forget`"

struct membership {
    struct relay *relay;
    struct members table;
    struct membership_join *join; /* the others that do */
    bool joins;                   /* this node is none of the group yet */
    unsigned unmet;               /* looks at which the same was in the way */
    char *why;                    /* what, as the log has it, or would */
    char *file;
    ev_timer look;
    bool changed; /* since it was kept in the file */
    bool unkept;  /* the file cannot be read or written, and that was logged */
    bool heard;   /* another node's server has told what it knows */
    bool outcast;
    size_t open;   /* questions that are not answered */
    bool own_told; /* the own server has answered one */
    bool known;    /* all servers that could be reached have, and it is used */
    char *said;    /* what of it cannot be used, as it was logged last */
    size_t nrefused;
    char **refused; /* nodes whose server does not tell, and the log says so */
};

/* A GET under way. */
struct asked {
    struct membership *m;
    bool own;
    char node[65];
};

/* ---- what it means ---- */

static void use(struct membership *m)
{
    struct relay *r = m->relay;
    bool changed = config_learn(r->config);
    if (r->config->unlearned && (!m->said || strcmp(m->said, r->config->unlearned))) {
        log_warning("%s", r->config->unlearned);
        free(m->said);
        m->said = mem_strdup(r->config->unlearned);
    }
    if (!changed)
        return;
    for (size_t i = 0; i < r->config->forgotten.n; i++)
        log_info("node %s is not in the group any more (dovelane nodes --forget)",
                 r->config->forgotten.v[i]);
    owners_reload(r);
    heartbeat_reload(r);
    lane_watch_judge(r);
}

/* Kept first: who is whole for owners that it does not know after a restart would deliver what
 * is theirs. */
static void keep(struct membership *m)
{
    if (!m->changed)
        return;
    if (members_save(&m->table, m->file) < 0) {
        if (!m->unkept)
            log_error("%s: %s: nodes that join are not used until it can be read and written",
                      m->file, strerror(errno));
        m->unkept = true;
        return;
    }
    m->unkept = m->changed = false;
    use(m);
}

static void look_at_own(struct membership *m)
{
    const struct relay *r = m->relay;
    const struct member *own = members_find(&m->table, r->node);
    bool outcast = own && own->gone;
    if (outcast == m->outcast)
        return;
    m->outcast = outcast;
    if (outcast)
        log_error(OUTCAST ": nothing is taken here; `dovelane nodes --join %s` takes it in again",
                  r->node);
    else
        log_info("this node may join the group again");
    heartbeat_exclude(m->relay, outcast ? OUTCAST : NULL);
}

/* All others are called dead by an admin, or there are none. */
static bool is_alone(const struct config *c, const char *node)
{
    for (size_t i = 0; i < c->nnodes; i++)
        if (strcmp(c->node[i].name, node) && !config_list_has(&c->dead, c->node[i].name))
            return false;
    return true;
}

/* Not before another node was heard: it may know that this one was taken out; nor before its own
 * server was, by that address and with that name: others would wait for it. */
static bool may_say(const struct membership *m)
{
    return (m->heard || is_alone(m->relay->config, m->relay->node)) && m->own_told && !m->outcast;
}

/* What keeps it from being one of the group, malloc'd; NULL: nothing does. */
static char *in_the_way(const struct membership *m)
{
    const struct relay *r = m->relay;
    if (m->changed)
        return mem_printf("what it learned is not kept in %s", m->file);
    if (!m->own_told)
        return mem_printf("its own server has not told which nodes there are");
    if (!may_say(m))
        return mem_printf("no other node's server has told which nodes there are. Mend that, or, "
                          "if all others are gone for good, name them in `dead` here");
    struct unmet_node u = heartbeat_unmet(r);
    if (!u.why)
        return NULL;
    return mem_printf(
        "%s %s%s%s. Mend that, or, if that node is gone for good, write dead = { \"%s\" } here",
        u.why, u.node, u.by ? ", which is known to node " : "", u.by ? u.by : "", u.node);
}

/* Whoever only some of the group can reach would be waited for by the others: so it is none of
 * them until all that beat reach it and are reached from here. */
static bool still_joins(struct membership *m)
{
    const struct member *is = members_find(&m->table, m->relay->node);
    char *why = is && !is->joining ? NULL : in_the_way(m);
    m->unmet = why && m->why && !strcmp(why, m->why) ? m->unmet + 1 : 0;
    free(m->why);
    m->why = why;
    if (why && m->unmet == UNMET_SAID)
        log_warning("this node is not in the group yet, and takes nothing: %s", why);
    return why != NULL;
}

/* Its own word about itself: as its file has it. True when it is new. */
static bool say_own(struct membership *m)
{
    const struct config *c = m->relay->config;
    const struct config_node *n = &c->node[config_node_index(c, m->relay->node)];
    const struct member *is = members_find(&m->table, n->name);
    bool joined = !m->joins;
    m->joins = still_joins(m);
    if (joined && m->joins)
        heartbeat_return(m->relay, "taken out of the group, and in again");
    struct member own = {.name = n->name, .joining = m->joins, .epoch = is ? is->epoch : 0};
    bool same = is && is->joining == own.joining;
#define MEMBER_TEXT(text) \
    own.text = n->text;   \
    same = same && !strcmp(is->text, n->text);
    MEMBER_TEXTS
#undef MEMBER_TEXT
    if (!may_say(m) || same)
        return false;
    if (is && is->joining && !own.joining)
        log_info("every node that beats reaches this one: it is one of the group now");
    own.serial = members_serial(&m->table, n->name);
    m->changed |= members_say(&m->table, &own);
    return true;
}

/* ---- what the servers know ---- */

static void on_told(struct wire *w, redisReply *reply, void *arg)
{
    if (reply && reply->type == REDIS_REPLY_ERROR)
        log_debug("telling a node which nodes there are: %s", reply->str);
}

static char **find_refused(const struct membership *m, const char *node)
{
    for (size_t i = 0; i < m->nrefused; i++)
        if (!strcmp(m->refused[i], node))
            return &m->refused[i];
    return NULL;
}

static void tells_again(struct membership *m, const char *node)
{
    char **at = find_refused(m, node);
    if (!at)
        return;
    log_info("node %s tells which nodes there are again", node);
    free(*at);
    *at = m->refused[--m->nrefused];
}

/* Without its own server's word a relay is never ready after a start; so it is said which one it
 * waits for. */
static void refused(struct membership *m, const struct asked *a, const char *why)
{
    const char *out = !strncmp(why, "NOPERM", 6)
                          ? "its users are older than membership = learned: `dovelane acl` again, "
                            "into its aclfile, and ACL LOAD there"
                      : !strncmp(why, "WRONGTYPE", 9)
                          ? "something else wrote that key: DEL " CONTROL_NODES " there"
                          : "it is asked again every second";
    if (find_refused(m, a->node) || !strncmp(why, "LOADING", 7) || !strncmp(why, "BUSY", 4))
        return;
    m->refused = mem_grow(m->refused, (m->nrefused + 1) * sizeof *m->refused);
    m->refused[m->nrefused++] = mem_strdup(a->node);
    log_error("node %s does not tell which nodes there are (the key " CONTROL_NODES "): %s: %s. %s",
              a->node, why, out,
              a->own ? "Until then nothing is taken here after a start"
                     : "Until then nobody who joins is learned of from it");
}

static void on_table(struct wire *w, redisReply *reply, void *arg)
{
    struct asked a = *(struct asked *)arg;
    struct membership *m = a.m;
    free(arg);
    ASSERT(m->open);
    m->open--;
    if (!reply || m->relay->stopping)
        return;
    if ((reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL) ||
        reply->len > MEMBERS_TEXT_MOST) {
        refused(m, &a,
                reply->type == REDIS_REPLY_ERROR    ? reply->str
                : reply->type == REDIS_REPLY_STRING ? "it is too long"
                                                    : "it is no text");
        return;
    }
    tells_again(m, a.node);
    const char *text = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    m->changed |= members_read(&m->table, text);
    m->heard |= !a.own;
    m->own_told |= a.own;
    struct buf ours = {0};
    members_write(&m->table, &ours);
    if (ours.len && strcmp(ours.data, text))
        wire_sendf(w, on_told, m, "EVAL %s 1 " CONTROL_NODES " %b", CONTROL_SET, ours.data,
                   ours.len);
    buf_free(&ours);
}

static void ask(const char *node, struct wire *w, void *arg)
{
    struct membership *m = arg;
    struct asked *a = mem_alloc(sizeof *a);
    *a = (struct asked){.m = m, .own = !strcmp(node, m->relay->node)};
    snprintf(a->node, sizeof a->node, "%s", node);
    if (wire_silence(w) > LOOK || !wire_sendf(w, on_table, a, "GET " CONTROL_NODES))
        free(a);
    else
        m->open++;
}

/* What is heard is used from here, never from within an answer: connections may end by it. */
static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    struct membership *m = t->data;
    struct relay *r = m->relay;
    if (r->config->membership != MEMBERSHIP_LEARNED || r->stopping)
        return;
    keep(m);
    look_at_own(m);
    if (say_own(m))
        keep(m);
    membership_join_look(m->join, &m->table);
    if (m->own_told && !m->open && !m->changed && !m->known) {
        m->known = true;
        cluster_wake(r);
    }
    owners_each_node(r, ask, m);
}

bool membership_known(const struct relay *r)
{
    return r->config->membership != MEMBERSHIP_LEARNED || r->membership->known;
}

bool membership_joining(const struct relay *r)
{
    return r->config->membership == MEMBERSHIP_LEARNED && r->membership->joins;
}

bool membership_again(const struct relay *r)
{
    const struct member *is = members_find(&r->membership->table, r->node);
    return is && is->epoch;
}

bool membership_joins(const struct relay *r, const char *node)
{
    const struct member *is = members_find(&r->membership->table, node);
    return is && is->joining;
}

bool membership_reaches(const struct relay *r, const char *node)
{
    return membership_join_reaches(r->membership->join, node);
}

struct membership *membership_open(struct relay *r)
{
    struct membership *m = mem_zero(sizeof *m);
    m->relay = r;
    m->join = membership_join_open(r);
    m->file = members_file(r->config->state_directory, "dovelane-relay");
    if (members_load(&m->table, m->file) < 0) {
        /* keep() tries again; this relay is not ready before, since it may hold what others
         * deliver */
        m->changed = true;
        m->unkept = r->config->membership == MEMBERSHIP_LEARNED;
    }
    if (m->unkept)
        log_warning("%s: %s: who joined the group and who was taken out is not known: nothing is "
                    "taken here until it can be read",
                    m->file, strerror(errno));
    const struct member *own = members_find(&m->table, r->node);
    m->joins = !own || own->joining;
    ev_timer_init(&m->look, on_look, 0.2, LOOK);
    m->look.data = m;
    ev_timer_start(r->loop, &m->look);
    return m;
}

void membership_close(struct membership *m)
{
    ev_timer_stop(m->relay->loop, &m->look);
    membership_join_close(m->join);
}

void membership_free(struct membership *m)
{
    members_free(&m->table);
    free(m->file);
    free(m->said);
    free(m->why);
    for (size_t i = 0; i < m->nrefused; i++)
        free(m->refused[i]);
    free(m->refused);
    free(m);
}
