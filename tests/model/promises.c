/* What must hold in every state, and where a quiet time must end. */
#include "tests/model/state.h"

struct state rules_start(const struct rules *r)
{
    struct state s = {0};
    for (unsigned i = 0; i < r->owners; i++) {
        s.owner[i].whole = 1;
        for (unsigned j = 0; j < r->owners; j++)
            if (i != j)
                set_heard(&s, i, j, HEARD_ALIVE, false);
    }
    for (unsigned i = 0; i < r->owners && r->stored; i++)
        s.owner[i].held = s.owner[i].acked = 1;
    s.world.decision = r->stored ? PROMISED : OPEN;
    s.world.crashes = r->crashes & 3;
    s.world.cuts = r->cuts & 3;
    s.world.pauses = r->pauses & 3;
    s.world.kills = r->kills & 3;
    s.world.flushes = r->flushes & 3;
    s.world.lies = r->lies & 3;
    s.world.losses = r->losses & 3;
    s.world.hurries = r->hurries & 1;
    return s;
}

const char *rules_wrong(const struct rules *r, const struct state *s)
{
    bool anywhere = false;
    for (unsigned i = 0; i < r->owners; i++) {
        const struct owner *o = &s->owner[i];
        anywhere |= o->condition != DOWN && o->held;
        if (s->world.decision == PROMISED && !s->world.delivered && o->condition != DOWN &&
            o->whole && !o->held && !r->beyond)
            return "loss: a whole owner does not hold a promised mail";
    }
    if (s->world.decision == PROMISED && !s->world.delivered && !anywhere && !r->beyond)
        return "loss: nobody holds a promised mail";
    if (s->world.delivered > 1 + s->world.excuses && !r->beyond)
        return "delivered twice without an excuse";
    return NULL;
}

const char *rules_unfinished(const struct rules *r, const struct state *s, struct quiet q)
{
    if (s->world.decision == PROMISED && !s->world.delivered && !r->beyond)
        return "stuck: promised, and nobody will deliver it";
    if (!q.healed || !q.back)
        return NULL;
    for (unsigned i = 0; i < r->owners; i++) {
        const struct owner *o = &s->owner[i];
        if (o->role != ALIVE)
            return "stuck: a node does not come back to alive";
        if (!o->whole)
            return "stuck: a node does not become whole";
        if (o->held)
            return "stuck: an entry stays for ever";
        if (o->taken)
            return "stuck: a takeover does not end";
        if (o->hand != HAND_EMPTY || o->owed)
            return "stuck: in hand or owed for ever";
    }
    return NULL;
}

int rules_quiet(const struct state *s, struct quiet q, const struct move *move, size_t n)
{
    int best = -1;
    for (size_t k = 0; k < n; k++) {
        const struct move *v = &move[k];
        if (v->kind >= SAVE || (v->kind == HEAL && !q.healed) ||
            (!q.back && (v->kind == COME_BACK || v->kind == COME_BACK_OLD)))
            continue;
        /* Every minute, but to no effect, is not told from not at all. */
        const struct owner *o = &s->owner[v->i];
        if (v->kind == COMPARE && o->whole && (o->role != RETURNING || o->checked) &&
            (!o->held || s->owner[v->j].held || o->hand != HAND_EMPTY))
            continue;
        if (best < 0 || v->kind < move[best].kind)
            best = (int)k;
    }
    return best;
}
