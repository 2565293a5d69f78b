/* What the nodes say of themselves and of each other; their clocks; what their users may do. */
#include "ctl/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/acl.h"
#include "ctl/beats.h"
#include "lib/base/clock.h"
#include "lib/redis/endpoint.h"
#include "lib/base/mem.h"

/* seconds; a node that is compared with the others for longer waits for something */
#define RETURNING_MOST 60.
#define CLOCKS_APART 1. /* seconds */

/* ---- states ---- */

static bool heard_by_any(struct ctl *ctl, const struct beats *v, size_t node)
{
    size_t n = ctl->config->nnodes, others = 0;
    for (size_t i = 0; i < n; i++) {
        bool alive = i != node && beats_state(v, i) == STATE_ALIVE;
        others += alive;
        if (alive && liveness_reported_state(v->liveness, i, node) == STATE_ALIVE)
            return true;
    }
    return !others;
}

static void check_one(struct ctl *ctl, const struct beats *v, size_t i)
{
    const struct config_node *n = &ctl->config->node[i];
    const struct beat *b = liveness_beat(v->liveness, i);
    enum node_state h = beats_state(v, i);
    double silence = liveness_silence(v->liveness, i, BEATS_NOW);
    char about[80];
    snprintf(about, sizeof about, "node %s", n->name);
    if (v->doubled[i])
        check_say(ctl, FINDING_CRITICAL, FOUND_TWO_RELAYS, about,
                  "the right DOVELANE_NODE in /etc/default/dovelane of each host, then restart "
                  "both relays",
                  "two relays beat by the name %s: each undoes what the other does", n->name);
    if (config_list_has(&ctl->config->dead, n->name))
        return; /* check_config names it */
    if (h == STATE_UNKNOWN)
        check_say(ctl, FINDING_CRITICAL, FOUND_BEAT_NONE, about,
                  "systemctl start dovelane-relay there; its log says why it does not run",
                  "its relay has left no beat: nobody takes or delivers what %s owns first",
                  n->name);
    else if (h == STATE_SILENT)
        check_say(ctl, FINDING_CRITICAL, FOUND_BEAT_SILENT, about,
                  "systemctl restart dovelane-relay there; its log says why it stopped",
                  "silent: no beat of its relay for %.0f s, so no mail is placed on it", silence);
    else if ((h == STATE_RETURNING || h == STATE_READY) && b->since > RETURNING_MOST)
        check_say(ctl, FINDING_CRITICAL, FOUND_RETURNING_LONG, about,
                  "`dovelane nodes`, and the log of its relay, say what it waits for",
                  "%s for %.0f s: no mail is placed on it", node_state_word(h), b->since);
    else if (h == STATE_RETURNING || h == STATE_READY)
        check_say(
            ctl, FINDING_WARNING, FOUND_RETURNING, about,
            "wait; `dovelane nodes` ends with 0 when it is over",
            "%s: it is compared with the others (right for some seconds after its relay starts)",
            node_state_word(h));
    else if (h == STATE_LEAVING)
        check_say(ctl, FINDING_WARNING, FOUND_LEAVING, about,
                  "systemctl start dovelane-relay there",
                  "leaving: its relay was stopped (right while that is meant)");
    else if (!heard_by_any(ctl, v, i))
        check_say(ctl, FINDING_CRITICAL, FOUND_UNHEARD, about,
                  "the network, firewall and certificates between the hosts; the relays' logs name "
                  "the connection",
                  "alive, but no other node hears it");
    else
        check_good(ctl, about, "its relay is alive");
}

void check_states(struct ctl *ctl)
{
    struct beats v;
    if (ctl->config->takeover != TAKEOVER_AUTOMATIC)
        return;
    beats_read(ctl, &v);
    for (size_t i = 0; i < ctl->config->nnodes; i++)
        if (conn_up(&ctl->conn[i]))
            check_one(ctl, &v, i);
    beats_free(&v);
}

/* ---- clocks ---- */

void check_clock(struct ctl *ctl, struct conn *c)
{
    char about[80];
    double before = (double)clock_wall() / 1e6;
    redisReply *r = conn_call(c, "TIME");
    double after = (double)clock_wall() / 1e6;
    snprintf(about, sizeof about, "node %s", c->name);
    if (!conn_shaped(r, "ss")) {
        check_say(ctl, FINDING_WARNING, FOUND_CLOCK_UNTOLD, about, acl_again(ctl),
                  "it does not tell its time: %s", c->trouble);
    } else {
        double there = atof(r->element[0]->str) + atof(r->element[1]->str) / 1e6;
        /* what the round trip cannot explain */
        double apart = there < before ? before - there : there > after ? there - after : 0;
        if (apart > CLOCKS_APART)
            check_say(ctl, FINDING_WARNING, FOUND_CLOCK_APART, about,
                      "chrony or systemd-timesyncd on every host",
                      "its clock is %.1f s %s this host's: the latest of `divert on` and `off` is "
                      "decided by clocks",
                      apart, there < before ? "behind" : "before");
        else
            check_good(ctl, about, "its clock and this host's agree");
    }
    if (r)
        freeReplyObject(r);
}

/* ---- users ---- */

/* A server refuses all lines when one names a command that it does not know. */
static bool is_older(struct conn *c)
{
    redisReply *r = conn_call(c, "LANE.BEATS");
    bool older = !r && conn_up(c) && !strncasecmp(c->trouble, "ERR unknown command", 19);
    if (r)
        freeReplyObject(r);
    return older;
}

static void check_user(struct ctl *ctl, struct conn *c, const char *program, const char *may,
                       const char *user, bool older)
{
    char about[80];
    struct buf wider = {0}, missing = {0};
    char *mend =
        mem_printf("%s%s", older ? "restart that Redis, which runs an older lane.so; then " : "",
                   acl_again(ctl));
    char *narrow = mem_printf(
        "%s%s", older ? "" : "when the programs of all hosts are of this version: ", mend);
    redisReply *r = conn_call(c, "ACL GETUSER %s", user);
    snprintf(about, sizeof about, "node %s", c->name);
    if (!r || r->type != REDIS_REPLY_ARRAY) {
        check_say(ctl, FINDING_WARNING, FOUND_ACL_MISSING, about, mend,
                  "it has no user %s, which %s would come as%s%s", user, program, r ? "" : ": ",
                  r ? "" : c->trouble);
    } else {
        acl_compare(r, may, &wider, &missing);
        if (wider.len)
            check_say(ctl, FINDING_WARNING, FOUND_ACL_WIDER, about, narrow,
                      "its user %s may do more than %s needs:%s", user, program, wider.data);
        if (missing.len)
            check_say(ctl, FINDING_WARNING, FOUND_ACL_NARROWER, about, mend,
                      "its user %s may not do what %s needs:%s", user, program, missing.data);
        if (!wider.len && !missing.len)
            check_good(ctl, about, "its user %s may do what %s needs, and no more", user, program);
    }
    if (r)
        freeReplyObject(r);
    buf_free(&wider);
    buf_free(&missing);
    free(narrow);
    free(mend);
}

/* The replica whose node this is; NULL: none. */
static const char *replica_at(const struct config *c, const char *node)
{
    for (size_t i = 0; i < c->nreplicas; i++)
        if (!strcmp(*c->replica[i].node ? c->replica[i].node : c->replica[i].name, node))
            return c->replica[i].name;
    return NULL;
}

/* A host has the file of its own replica, where `dovelane acl` is run those of all. */
static void check_users_of_replicas(struct ctl *ctl, struct conn *c, bool older)
{
    const struct config *config = ctl->config;
    const char *at = replica_at(config, c->name);
    for (size_t i = 0; at && i < config->nreplicas && *config->replica_user_file; i++) {
        const char *name = config->replica[i].name;
        struct endpoint_user user;
        char *file = endpoint_file_of_replica(config->replica_user_file, name), *error = NULL,
             *may = acl_replica_rights(name, config->replica[i].id, at);
        char *whose = mem_printf("the replicator of %s", name);
        if (endpoint_read_replica(file, &user, &error) > 0 && endpoint_user_at(&user, at))
            check_user(ctl, c, whose, may, user.name, older);
        explicit_bzero(&user, sizeof user);
        free(whose);
        free(may);
        free(error);
        free(file);
    }
}

void check_replica_nodes(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    for (size_t i = 0; i < c->nreplicas; i++) {
        struct conn conn = {0};
        if (config_node_index(c, *c->replica[i].node ? c->replica[i].node : c->replica[i].name) >=
            0)
            continue; /* a node of the gateway, too */
        if (conn_open_replica(&conn, c, i))
            check_users(ctl, &conn);
        conn_close(&conn);
    }
}

void check_users(struct ctl *ctl, struct conn *c)
{
    const char *template = ctl->config->node_user_file;
    if (!strstr(template, "%p"))
        return;
    bool older = is_older(c);
    for (size_t i = 0; acl_program(i); i++) {
        struct endpoint_user user;
        char *file = endpoint_file_of(template, acl_program(i)), *error = NULL;
        /* A host has the files of its own programs; what is wrong with one is check_host's to
         * say. */
        if (endpoint_read_user(file, &user, &error) > 0)
            check_user(ctl, c, acl_program(i), acl_program_rights(i), user.name, older);
        explicit_bzero(&user, sizeof user);
        free(error);
        free(file);
    }
    check_users_of_replicas(ctl, c, older);
}
