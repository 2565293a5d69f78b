#include "tests/model/rules.h"

#include <assert.h>
#include <string.h>

#include "tests/model/state.h"

static_assert(sizeof(struct state) == 16, "states are hashed and compared as 16 bytes");

/* ---- the moves ---- */

struct moves {
    const struct rules *rules;
    const struct state *from;
    struct move *move;
    size_t n;
};

static struct state *begin(struct moves *m, enum kind kind, unsigned i, unsigned j)
{
    assert(m->n < MOVES_MAX);
    struct move *v = &m->move[m->n];
    v->to = *m->from;
    v->kind = kind;
    v->i = (uint8_t)i;
    v->j = (uint8_t)j;
    return &v->to;
}

static void prompt_beats(const struct rules *r, struct state *s)
{
    for (unsigned i = 0; i < r->owners; i++)
        for (unsigned j = 0; j < r->owners; j++)
            if (i != j && running(s, i) && running(s, j) && hearing(s, i, j))
                hear(s, i, j);
}

static void end(struct moves *m)
{
    struct move *v = &m->move[m->n];
    if (m->rules->prompt_beats)
        prompt_beats(m->rules, &v->to);
    if (memcmp(&v->to, m->from, sizeof v->to) != 0)
        m->n++;
}

static void stored(const struct rules *r, struct owner *o, bool forgotten)
{
    o->acked = 1;
    o->old_ack = 0;
    if (!o->remembered || forgotten || r->mutant == NOTHING_REMEMBERED)
        o->held = 1;
}

static void milter_moves(struct moves *m)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    bool all = true;
    for (unsigned i = 0; i < r->owners; i++) {
        const struct owner *o = &s->owner[i];
        all &= o->acked;
        if (running(s, i) && !o->acked && (begun(r, s) || may_place(r, s))) {
            struct state *t = begin(m, PUSH, i, 0);
            stored(r, &t->owner[i], false);
            if (s->world.decision == GIVEN_UP && s->world.delivered && !o->remembered)
                /* a mail that could not be revoked everywhere, at a server that forgot what it
                 * knew */
                excuse(t);
            end(m);
            /* so late that its id is forgotten */
            if (o->remembered && s->world.decision == GIVEN_UP) {
                t = begin(m, PUSH, i, 1);
                stored(r, &t->owner[i], true);
                excuse(t);
                end(m);
            }
        }
        if (running(s, i) && o->old_ack && s->world.decision == OPEN) {
            struct state *t = begin(m, PUSH_AGAIN, i, 0);
            stored(r, &t->owner[i], false);
            if (s->world.delivered)
                /* delivered before it was promised, and the server forgot that with all else */
                excuse(t);
            end(m);
        }
        if (o->revoke && running(s, i) && o->hand == HAND_EMPTY) {
            struct owner *t = &begin(m, REVOKE, i, 0)->owner[i];
            let_go(r, t);
            t->revoke = 0;
            end(m);
        }
        if (o->revoke) {
            begin(m, REVOKE_LOST, i, 0)->owner[i].revoke = 0;
            end(m);
        }
    }
    if (all && s->world.decision == OPEN) {
        begin(m, PROMISE, 0, 0)->world.decision = PROMISED;
        end(m);
    }
    if (all && s->world.decision == GIVEN_UP && r->mutant == LATE_250) {
        begin(m, LATE_PROMISE, 0, 0)->world.decision = PROMISED;
        end(m);
    }
    if (s->world.decision == OPEN) {
        struct state *t = begin(m, GIVE_UP, 0, 0);
        t->world.decision = GIVEN_UP;
        for (unsigned i = 0; i < r->owners; i++)
            t->owner[i].revoke = 1;
        end(m);
    }
}

/* The first owner takes when it is alive; a later one when it took over all before it and hears
 * none of them alive or about to be. */
static bool may_take(const struct rules *r, const struct state *s, unsigned i)
{
    const struct owner *o = &s->owner[i];
    bool on_duty = o->role == ALIVE || (o->role == READY && r->mutant == TAKE_WHEN_READY);
    if (!running(s, i) || !on_duty || !o->held || o->hand != HAND_EMPTY)
        return false;
    for (unsigned p = 0; p < i; p++) {
        bool away = heard(s, i, p) == SILENT ||
                    (heard(s, i, p) == HEARD_RETURNING && r->mutant != RETURNING_COUNTS_AS_ALIVE);
        if (!taken(s, i, p) || !away)
            return false;
    }
    return true;
}

static void delivery_moves(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct owner *o = &s->owner[i];
    if (may_take(r, s, i)) {
        begin(m, TAKE, i, 0)->owner[i].hand = HAND_SENDING;
        end(m);
    }
    /* The relay may go on while its Redis is down. */
    if (o->hand == HAND_SENDING && o->condition != PAUSED) {
        struct state *t = begin(m, ACCEPT, i, 0);
        delivered(t);
        t->owner[i].hand = HAND_ACCEPTED;
        end(m);
        if (s->world.losses) {
            t = begin(m, REPLY_LOST, i, 0);
            delivered(t);
            excuse(t);
            t->owner[i].hand = HAND_EMPTY;
            t->world.losses--;
            end(m);
        }
    }
    /* The own server first; where it is gone, the others at once. */
    if (o->hand == HAND_ACCEPTED && o->condition != PAUSED) {
        struct state *t = begin(m, ACK_OWN, i, 0);
        if (o->condition == UP)
            let_go(r, &t->owner[i]);
        t->owner[i].hand = HAND_EMPTY;
        for (unsigned j = 0; j < r->owners; j++)
            if (j != i)
                set_owes(t, i, j, true);
        end(m);
    }
    for (unsigned j = 0; j < r->owners; j++) {
        if (j == i || !owes(s, i, j) || o->condition == PAUSED)
            continue;
        bool told = linked(s, i, j) && running(s, j);
        if (!told && r->mutant != ACKS_NOT_KEPT)
            continue;
        struct state *t = begin(m, told ? ACK_OTHER : ACK_LOST, i, j);
        set_owes(t, i, j, false);
        if (told)
            let_go(r, &t->owner[j]);
        end(m);
    }
}

static void liveness_moves(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct owner *o = &s->owner[i];
    bool told = false, hears_owner = false;
    for (unsigned j = 0; j < r->owners; j++) {
        if (j == i)
            continue;
        bool comes = running(s, j) && hearing(s, i, j);
        if (comes)
            hear(begin(m, BEAT, i, j), i, j);
        else
            set_heard(begin(m, SILENCE, i, j), i, j, SILENT, false);
        end(m);
        told |= heard(s, i, j) == HEARD_ALIVE && lists(s, i, j);
        hears_owner |= heard(s, i, j) != SILENT || others_hear(r, s, i, j);
        if (s->world.lies && o->role == ALIVE && !taken(s, i, j)) {
            struct state *t = begin(m, LIE, i, j);
            t->world.lies--;
            set_taken(t, i, j, true);
            set_heard(t, i, j, SILENT, false);
            excuse(t);
            stands_still(r, t, j);
            end(m);
        }
        bool absent = gone_silent(s, i, j) ||
                      (heard(s, i, j) == HEARD_RETURNING && r->mutant != RETURNING_COUNTS_AS_ALIVE);
        bool heard_by_others = r->mutant != HEAR_FOR_ONESELF && others_hear(r, s, i, j);
        /* What can be told is told long before dead_after is over. */
        if (o->role == ALIVE && !taken(s, i, j) && absent && !heard_by_others && waited(r, s) &&
            !ack_on_the_way(s, j, i)) {
            struct state *t = begin(m, TAKE_OVER, i, j);
            set_taken(t, i, j, true);
            const struct owner *p = &s->owner[j];
            bool delivers = p->condition == UP && p->role != RETURNING &&
                            (gone_silent(s, i, j) || !hearing(s, i, j)) && !others_hear(r, s, i, j);
            if (delivers || p->hand != HAND_EMPTY || p->owed)
                excuse(t);
            stands_still(r, t, j);
            end(m);
        }
        bool done = (o->hand == HAND_EMPTY || r->mutant == GIVE_BACK_WITH_HAND_FULL) &&
                    (!owes(s, i, j) || r->mutant == GIVE_BACK_OWING);
        if (taken(s, i, j) && heard(s, i, j) == HEARD_READY && done) {
            set_taken(begin(m, GIVE_BACK, i, j), i, j, false);
            end(m);
        }
    }
    if (o->role == ALIVE && told && r->mutant != TAKEOVER_NOT_NOTICED) {
        to_returning(r, begin(m, FOUND_TAKEN, i, 0), i);
        end(m);
    }
    if (o->role == ALIVE && !o->whole && hears_owner && r->mutant != LOSS_NOT_NOTICED) {
        to_returning(r, begin(m, NOTICE_LOSS, i, 0), i);
        end(m);
    }
}

/* ---- comparison ---- */

/* One comparison has up to four steps, and everything else may happen between them:
 *   COMPARE        the own list is read
 *   COMPARE_PEER   then the peer's, which must be whole
 *   COMPARE_FETCH  bodies that are missing here are read there
 *   COMPARE_END    they are stored here, what only we hold goes, and this node is whole: if the peer still is */
static void comparison_steps(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct owner *o = &s->owner[i];
    unsigned j = in_slot(i, o->with);
    const struct owner *p = &s->owner[j];
    if (!running(s, j) || !linked(s, i, j) || (!p->whole && r->mutant != WITNESS_NOT_WHOLE)) {
        struct owner *t = &begin(m, COMPARE_END, i, j)->owner[i]; /* all in vain */
        t->compared = COMPARE_NOT;
        t->with = t->own_seen = t->own_listed = t->peer_listed = 0;
        end(m);
        return;
    }
    if (o->compared == COMPARE_OWN_READ) {
        struct owner *t = &begin(m, COMPARE_PEER, i, j)->owner[i];
        if (r->mutant == PEER_LIST_FIRST)
            t->own_listed = o->held && decided(r, s);
        else
            t->peer_listed = p->held;
        t->compared = COMPARE_BOTH_READ;
        if (r->mutant == WHOLE_BEFORE_BODIES)
            t->whole = 1;
        end(m);
        return;
    }
    bool missing =
        o->peer_listed && !o->own_seen &&
        (!o->whole || r->mutant == FETCH_INSTEAD_OF_DROP || r->mutant == WHOLE_BEFORE_BODIES);
    if (o->compared == COMPARE_BOTH_READ && missing) {
        struct owner *t = &begin(m, COMPARE_FETCH, i, j)->owner[i];
        if (p->held)
            t->compared = COMPARE_FETCHED;
        else
            t->peer_listed = 0; /* let go there meanwhile */
        end(m);
        return;
    }
    struct owner *t = &begin(m, COMPARE_END, i, j)->owner[i];
    if (o->compared == COMPARE_FETCHED && !o->remembered)
        t->held = 1;
    else if (o->own_listed && !o->peer_listed && o->hand == HAND_EMPTY &&
             r->mutant != FETCH_INSTEAD_OF_DROP)
        t->held = 0;
    t->whole = t->checked = 1;
    t->compared = COMPARE_NOT;
    t->with = t->own_seen = t->own_listed = t->peer_listed = 0;
    end(m);
}

static void comparison_start(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct owner *o = &s->owner[i];
    bool settled = waited(r, s) || r->mutant == NO_WAIT_AFTER_RESTART;
    unsigned whole = 0, reached = 0, others = r->owners - 1;
    bool held = false;
    for (unsigned j = 0; j < r->owners; j++) {
        if (j == i)
            continue;
        const struct owner *p = &s->owner[j];
        bool reach = running(s, j) && linked(s, i, j);
        reached += reach;
        whole += reach && p->whole;
        held |= reach && p->held;
        bool old = o->held && decided(r, s);
        bool returns = settled && o->role == RETURNING && !o->checked;
        bool useful = !o->whole || returns ? returns
                                           : r->mutant != NO_COMPARISON_LATER &&
                                                 (old || r->mutant == FETCH_INSTEAD_OF_DROP ||
                                                  (r->mutant == PEER_LIST_FIRST && !p->held));
        if (reach && useful && (p->whole || r->mutant == WITNESS_NOT_WHOLE)) {
            struct owner *t = &begin(m, COMPARE, i, j)->owner[i];
            t->compared = COMPARE_OWN_READ;
            t->with = slot(i, j) & 1;
            t->own_seen = o->held;
            if (r->mutant == PEER_LIST_FIRST)
                t->peer_listed = p->held;
            else
                t->own_listed = old;
            end(m);
        }
        if (reach && o->whole && p->whole && o->held && r->mutant == RESET_AND_RESEND) {
            struct owner *t = &begin(m, RESET, i, j)->owner[i];
            t->held = 0;
            t->compared = COMPARE_FETCHED;
            t->with = slot(i, j) & 1;
            end(m);
        }
    }
    bool all = reached == others || (r->mutant == WHOLE_BY_PART && reached > 0);
    if (!o->whole && o->role == RETURNING && whole == 0 && all && settled) {
        struct owner *t = &begin(m, UNITE, i, 0)->owner[i];
        t->whole = t->checked = 1;
        if (held && !o->remembered)
            t->held = 1;
        end(m);
    }
    if (!o->whole && r->mutant == WHOLE_BY_ITSELF) {
        begin(m, SELF_DECLARE, i, 0)->owner[i].whole = 1;
        end(m);
    }
}

/* ---- return ---- */

static void return_moves(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct owner *o = &s->owner[i];
    bool others_gone = true, no_whole = true, others_down = true, waits = false, cut_off = false,
         fails_with_it = false;
    for (unsigned j = 0; j < r->owners; j++) {
        if (j == i)
            continue;
        no_whole &=
            gone_silent(s, i, j) || (running(s, j) && !(linked(s, i, j) && s->owner[j].whole));
        others_gone &= gone_silent(s, i, j) && !others_hear(r, s, i, j);
        others_down &= s->owner[j].condition == DOWN;
        bool counts = heard(s, i, j) == HEARD_ALIVE;
        bool aware = o->aware >> slot(i, j) & 1;
        waits |= not_known_yet(s, i, j) || (counts && lists(s, i, j)) ||
                 (counts && !aware && r->mutant != READY_UNHEARD);
        /* It went on alone, since nothing came from j for dead_after; or j's server failed under
         * a relay that has the mail. */
        cut_off |= taken(s, j, i) && s->owner[j].condition != DOWN && gone_silent(s, i, j);
        fails_with_it |= (s->owner[j].hand != HAND_EMPTY || owes(s, j, i)) &&
                         (!running(s, j) || s->owner[j].role != ALIVE);
        waits |= ack_on_the_way(s, j, i); /* a return lasts settle at least */
    }
    /* It has compared; or there is nobody to compare with: for a whole node nobody whole that it
     * can reach, for one that is not nobody that anyone hears. */
    bool compared = o->whole && (o->checked);
    bool alone = waited(r, s) && (o->whole ? no_whole : others_gone);
    if (o->role == RETURNING && o->hand == HAND_EMPTY && o->compared == COMPARE_NOT &&
        (compared || alone || r->mutant == RETURN_WITHOUT_COMPARISON)) {
        struct state *t = begin(m, TO_READY, i, 0);
        t->owner[i].role = READY;
        if (r->mutant != OLD_BEATS_COUNT)
            hear_anew(r, t, i);
        /* Alone on its side of a partition, with what an old backup brought. */
        if (!o->whole && others_gone && !others_down)
            excuse(t);
        end(m);
    }
    if (o->role == READY && !waits) {
        struct state *t = begin(m, TO_ALIVE, i, 0);
        t->owner[i].role = ALIVE;
        if (r->mutant != OLD_BEATS_COUNT)
            hear_anew(r, t, i);
        if (cut_off || fails_with_it)
            excuse(t);
        end(m);
    }
    if (o->role == READY && waits && s->world.hurries) { /* handover_wait is over */
        struct state *t = begin(m, HURRY, i, 0);
        t->owner[i].role = ALIVE;
        hear_anew(r, t, i);
        t->world.hurries--;
        excuse(t);
        end(m);
    }
}

/* ---- faults, and their end ---- */

static void come_back(struct moves *m, unsigned i, enum kind kind)
{
    const struct rules *r = m->rules;
    struct state *t = begin(m, kind, i, 0);
    t->owner[i].condition = UP;
    t->owner[i].held = kind == COME_BACK_OLD;
    t->owner[i].whole = kind == COME_BACK_OLD && r->mutant == WHOLE_SURVIVES_RESTART;
    if (t->owner[i].role != ALIVE || r->mutant != LOSS_NOT_NOTICED)
        to_returning(r, t, i);
    end(m);
}

static void resume(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    for (unsigned longer = 0; longer < 2; longer++) {
        if (longer && r->mutant == PAUSE_NOT_NOTICED)
            continue;
        struct state *t = begin(m, RESUME, i, longer);
        t->owner[i].condition = UP;
        if (longer)
            to_returning(r, t, i);
        end(m);
    }
}

static void fault_moves(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct owner *o = &s->owner[i];
    bool is_lost = o->condition == DOWN || !o->whole;
    bool may_be_lost = r->beyond || is_lost || lost(r, s) < r->owners - 1;
    if (o->condition == DOWN) {
        come_back(m, i, COME_BACK);
        if (o->saved)
            come_back(m, i, COME_BACK_OLD);
        return;
    }
    if (o->condition == PAUSED)
        resume(m, i);
    if (o->condition == UP && s->world.pauses) {
        struct state *t = begin(m, PAUSE, i, 0);
        t->owner[i].condition = PAUSED;
        t->world.pauses--;
        end(m);
    }
    if (s->world.crashes && o->condition == UP && o->saved != o->held) {
        begin(m, SAVE, i, 0)->owner[i].saved = o->held;
        end(m);
    }
    if (s->world.crashes && may_be_lost) {
        struct state *t = begin(m, CRASH, i, 0);
        t->world.crashes--;
        lose_relay(t, i);
        lose_redis(&t->owner[i]);
        to_returning(r, t, i);
        t->owner[i].condition = DOWN;
        never_arrives(r, t, i);
        end(m);
        if (o->condition == UP) {
            t = begin(m, CRASH_REDIS, i, 0);
            t->world.crashes--;
            lose_redis(&t->owner[i]);
            t->owner[i].condition = DOWN;
            never_arrives(r, t, i);
            end(m);
        }
    }
    if (s->world.flushes && may_be_lost && o->condition == UP) {
        struct state *t = begin(m, FLUSH, i, 0);
        t->world.flushes--;
        t->owner[i].held = t->owner[i].whole = 0;
        t->owner[i].old_ack = t->owner[i].acked;
        /* what a comparison noted in the server as begun is gone as well */
        if (r->mutant != WHOLE_WITHOUT_TOKEN) {
            t->owner[i].compared = COMPARE_NOT;
            t->owner[i].with = t->owner[i].own_seen = t->owner[i].own_listed =
                t->owner[i].peer_listed = 0;
        }
        t->owner[i].checked = 0;
        end(m);
    }
    if (s->world.kills && o->condition == UP) {
        struct state *t = begin(m, KILL_RELAY, i, 0);
        t->world.kills--;
        lose_relay(t, i);
        to_returning(r, t, i);
        end(m);
    }
}

static void partition_moves(struct moves *m)
{
    const struct state *s = m->from;
    if (s->world.partition != LINKS_WHOLE) {
        begin(m, HEAL, 0, 0)->world.partition = LINKS_WHOLE;
        end(m);
    }
    for (unsigned p = 1; p < PARTITIONS && s->world.cuts && s->world.partition == LINKS_WHOLE;
         p++) {
        struct state *t = begin(m, CUT, p, 0);
        t->world.partition = p & 7;
        t->world.cuts--;
        end(m);
    }
}

size_t rules_moves(const struct rules *r, const struct state *s, struct move *move)
{
    struct moves m = {r, s, move, 0};
    milter_moves(&m);
    partition_moves(&m);
    for (unsigned i = 0; i < r->owners; i++) {
        delivery_moves(&m, i);
        fault_moves(&m, i);
        if (!running(s, i))
            continue;
        liveness_moves(&m, i);
        return_moves(&m, i);
        if (s->owner[i].compared != COMPARE_NOT)
            comparison_steps(&m, i);
        else
            comparison_start(&m, i);
    }
    return m.n;
}
