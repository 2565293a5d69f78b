#include "ctl/beats.h"

#include <stdlib.h>
#include <string.h>

#include "lib/redis/beat_reader.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

static const redisReply *beat_in(const redisReply *answer, size_t i)
{
    return conn_shaped(answer, "l") && i < answer->element[0]->elements
               ? answer->element[0]->element[i]
               : NULL;
}

static void tell(struct beats *v, size_t node, const redisReply *beat)
{
    struct liveness_news b = {beat->element[0]->str,
                              beat->element[1]->str,
                              beat->element[4]->str,
                              beat->element[0]->len,
                              beat->element[1]->len,
                              beat->element[4]->len,
                              (uint64_t)beat->element[2]->integer};
    liveness_update(v->liveness, node, liveness_generation(v->liveness), &b, 1,
                    BEATS_NOW - (double)beat->element[3]->integer / 1000.);
}

/* Servers that have fresh beats of one name, but of two processes: each of these overwrites the
 * other's. */
static void look_for_youngest(struct ctl *ctl, struct beats *v, redisReply *const *answer,
                              size_t node)
{
    const struct config *c = ctl->config;
    const redisReply *youngest = NULL, *beat;
    for (size_t i = 0; i < c->nnodes; i++)
        for (size_t b = 0; (beat = beat_in(answer[i], b)); b++) {
            if (!conn_shaped(beat, "ssiis") || strcmp(beat->element[0]->str, c->node[node].name))
                continue;
            bool fresh = beat->element[3]->integer < c->suspect_after && youngest &&
                         youngest->element[3]->integer < c->suspect_after;
            v->doubled[node] |=
                fresh && strcmp(beat->element[1]->str, youngest->element[1]->str) != 0;
            if (!youngest || beat->element[3]->integer < youngest->element[3]->integer)
                youngest = beat;
        }
    if (youngest)
        tell(v, node, youngest);
}

redisReply *beats_ask(struct conn *c)
{
    struct beat_reader reader = {0};
    redisReply *r = conn_call(c, beat_reader_command(&reader));
    if (!r && conn_up(c) && beat_reader_turns(&reader, c->trouble))
        r = conn_call(c, beat_reader_command(&reader));
    return r;
}

void beats_read(struct ctl *ctl, struct beats *v)
{
    const struct config *c = ctl->config;
    size_t n = c->nnodes;
    const char **name = mem_alloc((n + 1) * sizeof *name);
    redisReply **answer = mem_zero((n + 1) * sizeof *answer);
    for (size_t i = 0; i < n; i++)
        name[i] = c->node[i].name;
    struct liveness_times times = {(double)c->suspect_after / 1000., 1e12, 1e12};
    *v = (struct beats){liveness_open(name, n, -1, times, 0.), mem_zero((n + 1) * sizeof(size_t)),
                        config_sets(c), mem_zero((n + 1) * sizeof(bool)),
                        mem_zero((n + 1) * sizeof(double))};
    for (size_t i = 0; i < n; i++) {
        /* what lies there counts as news */
        liveness_update(v->liveness, i, liveness_generation(v->liveness), NULL, 0, BEATS_NOW);
        double asked = clock_monotonic();
        answer[i] = conn_up(&ctl->conn[i]) ? beats_ask(&ctl->conn[i]) : NULL;
        v->rtt[i] = answer[i] ? clock_monotonic() - asked : -1.;
        if (conn_shaped(answer[i], "ll"))
            v->whole[i] = answer[i]->element[1]->elements / 2;
    }
    for (size_t k = 0; k < n; k++)
        look_for_youngest(ctl, v, answer, k);
    for (size_t i = 0; i < n; i++)
        if (answer[i])
            freeReplyObject(answer[i]);
    free(answer);
    free(name);
}

void beats_free(struct beats *v)
{
    liveness_free(v->liveness);
    free(v->whole);
    free(v->doubled);
    free(v->rtt);
}

enum node_state beats_state(const struct beats *v, size_t node)
{
    return liveness_beat(v->liveness, node)
               ? liveness_state_for_placement(v->liveness, node, BEATS_NOW)
               : STATE_UNKNOWN;
}
