#include "tests/model/copying.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(struct state) == 32, "states are hashed and compared as they lie in memory");

/* ---- reading a state ---- */

static bool owns(unsigned i, unsigned l)
{
    return i == A || i == l + 1; /* B in L, C in L' */
}

static unsigned other(unsigned i, unsigned l)
{
    return i == A ? l + 1 : A;
}

static bool linked(const struct state *s, unsigned i, unsigned j)
{
    return !s->cut || (s->cut != i + 1 && s->cut != j + 1);
}

static bool hears(const struct state *s, unsigned i, unsigned j)
{
    return !s->node[j].down && linked(s, i, j);
}

/* Its relay, not only its server. */
static bool beats(const struct state *s, unsigned i, unsigned j)
{
    return hears(s, i, j) && !(j == B && s->halted);
}

static bool hears_alive(const struct state *s, unsigned i, unsigned j)
{
    return beats(s, i, j) && s->node[j].role == ALIVE;
}

static bool taken(const struct state *s, unsigned i, unsigned j)
{
    return s->node[i].taken >> j & 1;
}

static bool busy(const struct state *s, unsigned i)
{
    bool any = false;
    for (unsigned l = 0; l < LANES; l++)
        any |= s->node[i].lane[l].hand != HAND_EMPTY || s->node[i].lane[l].owed;
    return any;
}

static bool ack_under_way(const struct state *s, unsigned i, unsigned l)
{
    return s->node[i].lane[l].owed && !s->node[i].down && hears(s, i, other(i, l));
}

/* What lasts settle, or dead_after, outlasts acks that can be told, and the time that A's MOVE
 * has. */
static bool waited(const struct rules *r, const struct state *s)
{
    for (unsigned i = 0; i < NODES; i++)
        for (unsigned l = 0; l < LANES; l++)
            if (ack_under_way(s, i, l))
                return false;
    if (s->owes && hears(s, A, B))
        return false;
    return s->window == CLOSED || r->mutant == RETURNED_TOO_SOON;
}

/* C holds a copy that A has not moved. */
static bool orphan(const struct state *s)
{
    return s->node[C].lane[1].held && !s->moved;
}

/* The mail's owners at this moment of which one is lost. */
static bool may_be_lost(const struct state *s, unsigned i)
{
    unsigned l = s->moved;
    if (!owns(i, l))
        return true;
    const struct node *o = &s->node[other(i, l)], *n = &s->node[i];
    bool lost = n->down || !n->lane[l].whole;
    if (i == A && s->halted && !l)
        return false; /* B's server may hold it, but nobody is left to deliver it */
    return lost || !(o->down || !o->lane[l].whole);
}

/* ---- changing one ---- */

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
    memset(v, 0, sizeof *v);
    v->to = *m->from;
    v->kind = (uint8_t)kind;
    v->i = (uint8_t)i;
    v->j = (uint8_t)j;
    return &v->to;
}

static void end(struct moves *m)
{
    if (memcmp(&m->move[m->n].to, m->from, sizeof *m->from) != 0)
        m->n++;
}

static void excuse(struct state *s)
{
    if (s->excuses < 7)
        s->excuses++;
}

static void compare_not(struct copy *c)
{
    c->compared = COMPARE_NOT;
    c->own_seen = c->own_listed = c->peer_listed = 0;
}

static void to_returning(struct state *s, unsigned i)
{
    struct node *n = &s->node[i];
    n->role = RETURNING;
    n->taken = 0;
    for (unsigned l = 0; l < LANES; l++) {
        n->lane[l].checked = 0;
        compare_not(&n->lane[l]);
    }
}

static void lose_relay(struct state *s, unsigned i)
{
    if (busy(s, i))
        excuse(s);
    if (i == A && s->owes)
        excuse(s), s->owes = 0;
    for (unsigned l = 0; l < LANES; l++)
        s->node[i].lane[l].hand = HAND_EMPTY, s->node[i].lane[l].owed = 0;
}

static void lose_held(struct state *s, unsigned i)
{
    if (i == A && orphan(s))
        excuse(s); /* A fetches it from C, and the same mail from B */
    for (unsigned l = 0; l < LANES; l++) {
        struct copy *c = &s->node[i].lane[l];
        c->held = c->young = c->whole = c->checked = 0;
        compare_not(c);
    }
}

static void let_go(struct copy *c)
{
    c->held = c->young = 0;
    c->remembered = 1;
}

/* ---- copying ---- */

/* B is silent for long, or an admin says that it is lost for good: A copies what it serves
 * itself to C, under the name of the new owners, and moves it at home as long as C's copy is
 * young. Only what C has stored just now counts as stored. */
static void copying_moves(struct moves *m)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct node *a = &s->node[A], *c = &s->node[C];
    /* For so long that it would have lost its connection to A: no comparison is under way. */
    bool silent = (!beats(s, A, B) && s->node[B].lane[0].compared == COMPARE_NOT) ||
                  (r->mutant == COPIED_WHILE_RETURNING && s->node[B].role == RETURNING);
    bool together = !c->down && hears_alive(s, A, C) && !taken(s, A, C) && !taken(s, C, A);
    bool whole = c->lane[1].whole && a->lane[1].whole; /* or the copy would not count */
    if (s->window == CLOSED && !a->down && a->role == ALIVE && a->lane[0].held &&
        a->lane[0].hand == HAND_EMPTY && taken(s, A, B) && silent && together && whole &&
        waited(r, s)) {
        struct state *t = begin(m, COPY, A, C);
        if (r->mutant == MOVED_FIRST) {
            t->node[A].lane[0].held = 0;
            t->node[A].lane[1].held = t->moved = 1;
            t->window = STORED;
        } else if (!c->lane[1].held && !c->lane[1].remembered) {
            t->node[C].lane[1].held = t->node[C].lane[1].young = 1;
            t->window = STORED;
        } else if ((c->lane[1].held && r->mutant == HELD_COUNTS) ||
                   (!c->lane[1].held && r->mutant == DONE_COUNTS)) {
            t->window = STORED;
        }
        end(m);
    }
    if (s->owes && !a->down && hears(s, A, B)) {
        struct state *t = begin(m, TELL, A, B);
        t->owes = 0;
        let_go(&t->node[B].lane[0]);
        end(m);
    }
    if (s->window == CLOSED)
        return;
    bool in_time = s->window == STORED || r->mutant == MOVED_LATE || r->mutant == HELD_COUNTS;
    if (!a->down && in_time) {
        struct state *t = begin(m, MOVE, A, C);
        t->window = CLOSED;
        if (r->mutant == MOVED_FIRST) {
            t->node[C].lane[1].held = !c->down && !c->lane[1].remembered;
        } else if (a->lane[0].held && a->lane[0].hand == HAND_EMPTY) {
            t->node[A].lane[0].held = t->node[A].lane[0].young = 0;
            t->node[A].lane[1].held = 1;
            t->moved = 1;
            t->owes = r->mutant != NOT_TOLD;
            if (s->node[B].role == READY && !s->node[B].lane[0].checked && s->node[B].lane[0].held)
                excuse(t);
        }
        end(m);
    }
    begin(m, LATE, A, 0)->window = CLOSED;
    end(m);
}

/* ---- delivery ---- */

static bool may_take(const struct rules *r, const struct state *s, unsigned i, unsigned l)
{
    const struct node *n = &s->node[i];
    if (n->down || n->role != ALIVE || !n->lane[l].held || n->lane[l].hand != HAND_EMPTY)
        return false;
    unsigned first = l == 0 && r->second ? B : A, before = other(i, l);
    return i == first ||
           (taken(s, i, before) && (!beats(s, i, before) || s->node[before].role == RETURNING));
}

static void delivery_moves(struct moves *m, unsigned i, unsigned l)
{
    const struct state *s = m->from;
    const struct node *n = &s->node[i];
    const struct copy *c = &n->lane[l];
    if (may_take(m->rules, s, i, l)) {
        begin(m, TAKE, i, l)->node[i].lane[l].hand = HAND_SENDING;
        end(m);
    }
    if (c->hand == HAND_SENDING) {
        struct state *t = begin(m, ACCEPT, i, l);
        t->delivered += t->delivered < 3;
        t->node[i].lane[l].hand = HAND_ACCEPTED;
        end(m);
    }
    if (c->hand == HAND_ACCEPTED) {
        struct state *t = begin(m, ACK_OWN, i, l);
        let_go(&t->node[i].lane[l]);
        t->node[i].lane[l].hand = HAND_EMPTY;
        t->node[i].lane[l].owed = 1;
        end(m);
    }
    if (ack_under_way(s, i, l)) {
        struct state *t = begin(m, ACK_OTHER, i, l);
        t->node[i].lane[l].owed = 0;
        let_go(&t->node[other(i, l)].lane[l]);
        end(m);
    }
}

/* ---- who is alive ---- */

static void liveness_moves(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct node *n = &s->node[i];
    bool found = false, lost = false;
    for (unsigned j = 0; j < NODES; j++) {
        if (j == i)
            continue;
        const struct node *p = &s->node[j];
        found |= hears_alive(s, i, j) && taken(s, j, i);
        bool absent = !beats(s, i, j) || p->role == RETURNING;
        if (n->role == ALIVE && !taken(s, i, j) && absent && waited(r, s)) {
            struct state *t = begin(m, TAKE_OVER, i, j);
            t->node[i].taken |= 1u << j & 7;
            if ((!p->down && p->role != RETURNING) || busy(s, j) || (i == C && j == A && orphan(s)))
                excuse(t);
            end(m);
        }
        if (n->role == ALIVE && !taken(s, i, j) && s->lies) {
            struct state *t = begin(m, LIE, i, j);
            t->node[i].taken |= 1u << j & 7;
            t->lies--;
            excuse(t);
            if (i == C && j == A && orphan(s))
                excuse(t);
            end(m);
        }
        bool done = true;
        for (unsigned l = 0; l < LANES; l++)
            done &= !owns(i, l) || other(i, l) != j ||
                    (n->lane[l].hand == HAND_EMPTY && !n->lane[l].owed);
        done &= !(s->owes && i == A && j == B);
        if (taken(s, i, j) && beats(s, i, j) && p->role == READY && done) {
            begin(m, GIVE_BACK, i, j)->node[i].taken &= ~(1u << j) & 7;
            end(m);
        }
    }
    for (unsigned l = 0; l < LANES; l++)
        lost |= owns(i, l) && !n->lane[l].whole && beats(s, i, other(i, l));
    if (n->role == ALIVE && (found || lost)) {
        to_returning(begin(m, found ? FOUND_TAKEN : NOTICE_LOSS, i, 0), i);
        end(m);
    }
}

/* ---- comparison and return ---- */

static void comparison_moves(struct moves *m, unsigned i, unsigned l)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct copy *c = &s->node[i].lane[l];
    unsigned j = other(i, l);
    const struct copy *p = &s->node[j].lane[l];
    bool reach = hears(s, i, j), returns = s->node[i].role == RETURNING && !c->checked;
    if (c->compared == COMPARE_NOT) {
        bool useful = !c->whole || returns ? returns && waited(r, s) : c->held && !c->young;
        if (reach && p->whole && useful) {
            struct copy *t = &begin(m, COMPARE, i, l)->node[i].lane[l];
            t->compared = COMPARE_OWN_READ;
            t->own_seen = c->held;
            t->own_listed = c->held && !c->young;
            end(m);
        }
        if (reach && !c->whole && !p->whole && returns && waited(r, s)) {
            struct state *to = begin(m, UNITE, i, l);
            struct copy *t = &to->node[i].lane[l];
            t->whole = t->checked = 1;
            t->held |= p->held && !c->remembered;
            if (s->moved && l == 0 && t->held)
                /* both old owners were lost, and an old file brings back what has others now */
                excuse(to);
            end(m);
        }
        return;
    }
    if (!reach || !p->whole) {
        compare_not(&begin(m, COMPARE_END, i, l)->node[i].lane[l]);
        end(m);
        return;
    }
    if (c->compared == COMPARE_OWN_READ) {
        struct copy *t = &begin(m, COMPARE_PEER, i, l)->node[i].lane[l];
        t->peer_listed = p->held;
        t->compared = COMPARE_BOTH_READ;
        end(m);
        return;
    }
    if (c->compared == COMPARE_BOTH_READ && c->peer_listed && !c->own_seen && !c->whole) {
        struct copy *t = &begin(m, COMPARE_FETCH, i, l)->node[i].lane[l];
        if (p->held)
            t->compared = COMPARE_FETCHED;
        else
            t->peer_listed = 0;
        end(m);
        return;
    }
    struct copy *t = &begin(m, COMPARE_END, i, l)->node[i].lane[l];
    if (c->compared == COMPARE_FETCHED && !c->remembered)
        t->held = 1;
    else if (c->own_listed && !c->peer_listed && c->hand == HAND_EMPTY)
        let_go(t);
    t->whole = t->checked = 1;
    compare_not(t);
    end(m);
}

static void return_moves(struct moves *m, unsigned i)
{
    const struct rules *r = m->rules;
    const struct state *s = m->from;
    const struct node *n = &s->node[i];
    bool done = true, old = false, waits = false, hurt = false;
    for (unsigned l = 0; l < LANES; l++) {
        const struct copy *c = &n->lane[l];
        if (!owns(i, l))
            continue;
        unsigned j = other(i, l);
        bool alone = waited(r, s) &&
                     (c->whole ? !hears(s, i, j) || !s->node[j].lane[l].whole : !hears(s, i, j));
        done &= c->hand == HAND_EMPTY && c->compared == COMPARE_NOT &&
                ((c->whole && c->checked) || alone);
        /* Alone, with what an old file brought; or with what has other owners by now, who are
         * away. */
        old |= (!c->whole || (!c->checked && i == B && s->moved)) && c->held;
    }
    for (unsigned j = 0; j < NODES; j++) {
        if (j == i)
            continue;
        waits |= hears_alive(s, i, j) && taken(s, j, i);
        for (unsigned l = 0; l < LANES; l++)
            waits |= ack_under_way(s, j, l);
        hurt |= (taken(s, j, i) && !s->node[j].down && !hears(s, i, j)) ||
                (busy(s, j) && s->node[j].role != ALIVE);
    }
    if (n->role == RETURNING && done) {
        struct state *t = begin(m, TO_READY, i, 0);
        t->node[i].role = READY;
        if (old)
            excuse(t);
        end(m);
    }
    if (n->role == READY && !waits) {
        struct state *t = begin(m, TO_ALIVE, i, 0);
        t->node[i].role = ALIVE;
        if (hurt)
            excuse(t);
        end(m);
    }
}

/* ---- faults, and their end ---- */

static void fault_moves(struct moves *m, unsigned i)
{
    const struct state *s = m->from;
    const struct node *n = &s->node[i];
    if (n->down) {
        for (unsigned old = 0; old < 2; old++) {
            struct state *t = begin(m, old ? COME_BACK_OLD : COME_BACK, i, 0);
            t->node[i].down = 0;
            for (unsigned l = 0; l < LANES; l++)
                t->node[i].lane[l].held = old && n->lane[l].saved;
            end(m);
        }
        return;
    }
    for (unsigned l = 0; l < LANES; l++) {
        if (s->crashes && n->lane[l].saved != n->lane[l].held) {
            begin(m, SAVE, i, l)->node[i].lane[l].saved = n->lane[l].held;
            end(m);
        }
        if (n->lane[l].young) {
            struct state *t = begin(m, AGE, i, l);
            t->node[i].lane[l].young = 0;
            if (i == C && t->window == STORED)
                t->window = OVERDUE;
            end(m);
        }
    }
    if (s->crashes && may_be_lost(s, i)) {
        struct state *t = begin(m, CRASH, i, 0);
        t->crashes--;
        lose_relay(t, i);
        lose_held(t, i);
        to_returning(t, i);
        for (unsigned l = 0; l < LANES; l++)
            t->node[i].lane[l].remembered = 0;
        t->node[i].down = 1;
        if (i == A)
            t->window = CLOSED;
        if (i == B)
            t->halted = 0;
        end(m);
    }
    if (s->kills) {
        struct state *t = begin(m, KILL_RELAY, i, 0);
        t->kills--;
        lose_relay(t, i);
        to_returning(t, i);
        end(m);
    }
    if (s->flushes && may_be_lost(s, i)) {
        struct state *t = begin(m, FLUSH, i, 0);
        t->flushes--;
        lose_held(t, i);
        end(m);
    }
    if (i == B && s->halted) {
        struct state *t = begin(m, COME_BACK, i, 0);
        t->halted = 0;
        to_returning(t, i);
        end(m);
    }
    if (i == B && s->halts && !s->halted &&
        (s->moved || (!s->node[A].down && s->node[A].lane[0].whole))) {
        struct state *t = begin(m, HALT, i, 0);
        t->halts--;
        t->halted = 1;
        lose_relay(t, i);
        to_returning(t, i);
        end(m);
    }
    if (s->cuts && !s->cut) {
        struct state *t = begin(m, CUT, i, 0);
        t->cuts--;
        t->cut = (i + 1) & 3;
        end(m);
    }
}

size_t rules_moves(const struct rules *r, const struct state *s, struct move *move)
{
    struct moves m = {r, s, move, 0};
    if (s->cut) {
        begin(&m, HEAL, 0, 0)->cut = 0;
        end(&m);
    }
    copying_moves(&m);
    for (unsigned i = 0; i < NODES; i++) {
        fault_moves(&m, i);
        if (s->node[i].down || (i == B && s->halted))
            continue;
        liveness_moves(&m, i);
        return_moves(&m, i);
        for (unsigned l = 0; l < LANES; l++)
            if (owns(i, l)) {
                delivery_moves(&m, i, l);
                comparison_moves(&m, i, l);
            }
    }
    return m.n;
}

/* ---- what must hold ---- */

struct state rules_start(const struct rules *r)
{
    struct state s;
    memset(&s, 0, sizeof s);
    for (unsigned i = 0; i < NODES; i++)
        for (unsigned l = 0; l < LANES; l++)
            s.node[i].lane[l].whole = owns(i, l);
    s.node[A].lane[0].held = s.node[B].lane[0].held = 1;
    s.crashes = r->crashes & 3;
    s.cuts = r->cuts & 3;
    s.kills = r->kills & 3;
    s.flushes = r->flushes & 3;
    s.lies = r->lies & 3;
    s.halts = r->halts & 3;
    return s;
}

const char *rules_wrong(const struct rules *r, const struct state *s)
{
    (void)r;
    bool anywhere = false;
    for (unsigned i = 0; i < NODES; i++)
        for (unsigned l = 0; l < LANES; l++) {
            const struct copy *c = &s->node[i].lane[l];
            anywhere |= !s->node[i].down && c->held;
            if (!s->delivered && !s->node[i].down && owns(i, l) && l == s->moved && c->whole &&
                !c->held)
                return "loss: a whole owner does not hold a promised mail";
        }
    if (!s->delivered && !anywhere)
        return "loss: nobody holds a promised mail";
    if (s->delivered > 1u + s->excuses)
        return "delivered twice without an excuse";
    return NULL;
}

const char *rules_unfinished(const struct rules *r, const struct state *s, struct quiet q)
{
    (void)r;
    if (!s->delivered)
        return "stuck: promised, and nobody will deliver it";
    if (!q.healed || !q.back)
        return NULL;
    for (unsigned i = 0; i < NODES; i++) {
        if (s->node[i].role != ALIVE)
            return "stuck: a node does not come back to alive";
        if (s->node[i].taken)
            return "stuck: a takeover does not end";
        for (unsigned l = 0; l < LANES; l++) {
            const struct copy *c = &s->node[i].lane[l];
            if (owns(i, l) && !c->whole)
                return "stuck: a node does not become whole";
            if (c->held)
                return "stuck: an entry stays for ever";
            if (c->hand != HAND_EMPTY || c->owed)
                return "stuck: in hand or owed for ever";
        }
    }
    return s->window == CLOSED ? NULL : "stuck: the copying does not end";
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
        if (v->kind == COMPARE) {
            const struct copy *c = &s->node[v->i].lane[v->j],
                              *p = &s->node[other(v->i, v->j)].lane[v->j];
            if (c->whole && (s->node[v->i].role != RETURNING || c->checked) &&
                (p->held || c->hand != HAND_EMPTY))
                continue;
        }
        if (best < 0 || v->kind < move[best].kind)
            best = (int)k;
    }
    return best;
}

void rules_describe(const struct move *v, char *text, size_t size)
{
    static const char *const word[KINDS] = {[HEAL] = "links healed",
                                            [COME_BACK] = "back empty",
                                            [COME_BACK_OLD] = "back with an old file",
                                            [FOUND_TAKEN] = "finds itself taken over",
                                            [NOTICE_LOSS] = "finds itself not whole",
                                            [TAKE_OVER] = "takes over",
                                            [ACCEPT] = "delivers",
                                            [ACK_OWN] = "acks at home",
                                            [ACK_OTHER] = "acks at the other",
                                            [COMPARE_PEER] = "reads the other's list",
                                            [COMPARE_FETCH] = "reads the body",
                                            [COMPARE_END] = "ends comparing",
                                            [UNITE] = "unites",
                                            [TO_READY] = "ready",
                                            [GIVE_BACK] = "gives back",
                                            [TO_ALIVE] = "alive",
                                            [MOVE] = "moves it to L'",
                                            [COPY] = "copies it to C",
                                            [TAKE] = "takes",
                                            [AGE] = "has it for settle",
                                            [COMPARE] = "compares",
                                            [SAVE] = "saves a file",
                                            [LATE] = "is too late to move it",
                                            [CRASH] = "CRASH",
                                            [KILL_RELAY] = "RELAY KILLED",
                                            [FLUSH] = "FLUSHALL",
                                            [CUT] = "CUT OFF",
                                            [LIE] = "falsely calls dead",
                                            [HALT] = "RELAY GONE",
                                            [TELL] = "tells B that it was moved"};
    char a = (char)('A' + v->i), b = (char)('A' + v->j);
    if (v->kind == TAKE_OVER || v->kind == GIVE_BACK || v->kind == LIE)
        snprintf(text, size, "%c %s %c", a, word[v->kind], b);
    else if ((v->kind >= ACCEPT && v->kind <= UNITE) || v->kind == TAKE || v->kind == COMPARE ||
             v->kind == AGE || v->kind == SAVE)
        snprintf(text, size, "%c %s (L%s)", a, word[v->kind], v->j ? "'" : "");
    else
        snprintf(text, size, "%c %s", a, word[v->kind]);
}
