/* tangle - four replicas, ops one by one over lanes of which some are cut, any number of exchanges
 * open at once, their answers late. In the end every op is delivered and no exchange runs any more:
 * what an exchange took, removed or forgot to remember shows then, because nothing mends it. All
 * digests must be equal, nothing may be remembered, and the messages alive are exactly those added
 * and not removed.
 *
 *     orset-tangle [first seed [runs [steps]]] */
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "tests/unit/orset/unit.h"

enum { REPLICAS = 4, DOTS = 1024 };

struct exchange {
    struct orset_exchange *x;
    struct orset_buf question, answer;
    bool answered;
};

struct set {
    bool has[REPLICAS + 1][DOTS]; /* by site and number */
};

struct run {
    struct replica r[REPLICAS];
    struct exchange x[REPLICAS][REPLICAS]; /* asker, giver */
    unsigned lane[REPLICAS][REPLICAS];     /* per cent of the tries that deliver */
    struct set added, removed;
    unsigned long seed;
    uint64_t random;
};

static unsigned long exchanges;
static struct set before, after;

static unsigned draw(struct run *t, unsigned below)
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return (unsigned)((t->random >> 33) % below);
}

static void broken(const struct run *t, const char *what)
{
    ck_abort_msg("seed %lu: %s", t->seed, what);
}

static void need(const struct run *t, int result, const struct replica *r)
{
    if (result < 0)
        broken(t, orset_error_text(r->os));
}

/* --- what lives ------------------------------------------------------------------------------- */

struct listing {
    struct replica *r;
    struct set *s;
};

static int list_one(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct listing *l = arg;
    (void)own;
    ck_assert_uint_lt(m->dot.counter, DOTS);
    l->s->has[orset_origin_get(l->r->os, m->dot.origin).site][m->dot.counter] = true;
    return 0;
}

static void list(struct replica *r, struct set *s)
{
    struct listing l = {r, s};
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < orset_folders(r->os); i++)
        orset_each_message(r->os, i, list_one, &l);
}

/* --- changes ---------------------------------------------------------------------------------- */

struct choice {
    struct run *t;
    unsigned n;
    uint32_t uid;
};

static int choose(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct choice *c = arg;
    (void)own;
    if (m->uid && draw(c->t, ++c->n) == 0)
        c->uid = m->uid;
    return 0;
}

static const struct {
    const char *name;
    size_t len;
} NAMES[] = {{"\0A", 2}, {"\0B", 2}, {"\0A\0C", 4}, {"\0D", 2}};

static int flags(struct run *t, struct replica *r, uint32_t home, uint32_t uid)
{
    struct orset_flags now = {.system = (uint8_t)draw(t, 32)},
                       again = {.system = (uint8_t)(now.system & draw(t, 32))};
    if (draw(t, 3) == 0) {
        now.nkeywords = 1;
        now.keyword[0] = (uint16_t)orset_keyword(r->os, draw(t, 2) ? "kw" : "KX", 2);
    }
    return orset_local_flags(r->os, home, uid, &now, &again);
}

static int settle(struct run *t, struct replica *r, uint32_t folder)
{
    struct orset_buf ask = {.alloc = &HEAP};
    if (draw(t, 2))
        return orset_local_keeper(r->os, folder, 1 + draw(t, REPLICAS));
    int e = orset_uid_ask(r->os, folder, &ask);
    orset_buf_free(&ask);
    return e < 0 ? e : orset_uid_settle(r->os, folder, NULL, 0);
}

static int change_folder(struct run *t, struct replica *r, const struct orset_folder *f,
                         unsigned kind)
{
    unsigned n = draw(t, 4);
    uint8_t guid[16] = {1}, value = (uint8_t)draw(t, 9);
    uint32_t made;
    bool there = orset_folder_by_name(r->os, NAMES[n].name, NAMES[n].len) != ORSET_NO_FOLDER;
    bool can = f->index != ORSET_INBOX && f->home == f->index && f->live;
    switch (kind) {
    case 0:
        return there ? 0
                     : orset_local_create(r->os, NAMES[n].name, NAMES[n].len, 7 + draw(t, 3), guid,
                                          &made);
    case 1:
        return there || !can ? 0 : orset_local_rename(r->os, f->index, NAMES[n].name, NAMES[n].len);
    case 2: return can ? orset_local_delete(r->os, f->index) : 0;
    case 3: return orset_local_subscribe(r->os, NAMES[n].name, NAMES[n].len, draw(t, 2));
    case 4:
        return orset_local_attribute(r->os, draw(t, 2) ? f->index : ORSET_NO_FOLDER, "/k", 2,
                                     draw(t, 3) ? &value : NULL, 1);
    default: return f->home == f->index ? settle(t, r, f->index) : 0;
    }
}

static void change(struct run *t, struct replica *r)
{
    struct orset_folder f, home;
    struct choice c = {.t = t};
    unsigned kind = draw(t, 20);
    struct orset_facts facts = facts_of((uint8_t)(1 + draw(t, 6)), 0);
    struct orset_flags some = {.system = (uint8_t)draw(t, 32)};
    int e = 0;
    list(r, &before);
    need(t, orset_begin(r->os), r);
    orset_folder_get(r->os, draw(t, orset_folders(r->os)), &f);
    orset_folder_get(r->os, f.home, &home);
    orset_each_message(r->os, f.index, choose, &c);
    if (kind < 5)
        e = home.live ? orset_local_add(r->os, f.home, home.uid_next, &facts, &some, NULL) : 0;
    else if (kind < 9)
        e = c.uid ? orset_local_expunge(r->os, f.home, c.uid) : 0;
    else if (kind < 14)
        e = c.uid ? flags(t, r, f.home, c.uid) : 0;
    else
        e = change_folder(t, r, &f, kind - 14);
    need(t, e, r);
    need(t, orset_commit(r->os), r);
    list(r, &after);
    for (unsigned s = 1; s <= REPLICAS; s++)
        for (unsigned n = 0; n < DOTS; n++) {
            t->added.has[s][n] |= after.has[s][n] && !before.has[s][n];
            t->removed.has[s][n] |= before.has[s][n] && !after.has[s][n];
        }
}

/* --- what travels ----------------------------------------------------------------------------- */

/* The next op of from's, if there is one. */
static bool deliver(struct run *t, unsigned from, unsigned to)
{
    struct replica *a = &t->r[from], *b = &t->r[to];
    struct orset_buf batch = {.alloc = &HEAP};
    struct orset_batch_result result;
    uint64_t next, has = 0;
    for (uint16_t i = 0; i < orset_origins(b->os); i++)
        if (orset_origin_get(b->os, i).site == from + 1)
            has = orset_vector_get(b->os, i);
    int e = orset_batch_make(a->os, has + 1, 1, NULL, 0, &batch, &next);
    need(t, e, a);
    if (e == ORSET_OK) {
        need(t, orset_begin(b->os), b);
        need(t, orset_batch_apply(b->os, from + 1, batch.data, batch.len, &result), b);
        need(t, orset_commit(b->os), b);
    }
    orset_buf_free(&batch);
    return e == ORSET_OK;
}

/* Asks, answers or merges, whatever is next. */
static void exchange(struct run *t, unsigned asker, unsigned giver)
{
    struct exchange *x = &t->x[asker][giver];
    struct replica *a = &t->r[asker], *g = &t->r[giver];
    if (!x->x) {
        x->question.len = 0;
        need(t, orset_ask_hello(a->os, giver + 1, &x->x, &x->question), a);
        return;
    }
    struct replica *at = x->answered ? a : g;
    need(t, orset_begin(at->os), at);
    if (!x->answered) {
        x->answer.len = 0;
        need(t, orset_answer(g->os, asker + 1, x->question.data, x->question.len, &x->answer), g);
    } else {
        x->question.len = 0;
        int e = orset_take(a->os, x->x, x->answer.data, x->answer.len, &x->question);
        need(t, e, a);
        if (e == ORSET_KNOWN) {
            orset_exchange_free(a->os, x->x);
            x->x = NULL;
            exchanges++;
        }
    }
    x->answered = !x->answered;
    need(t, orset_commit(at->os), at);
}

static void end_exchanges(struct run *t)
{
    for (unsigned i = 0; i < REPLICAS; i++)
        for (unsigned j = 0; j < REPLICAS; j++) {
            struct exchange *x = &t->x[i][j];
            for (bool give_up = draw(t, 2); x->x && !give_up;)
                exchange(t, i, j);
            orset_exchange_free(t->r[i].os, x->x);
            orset_buf_free(&x->question);
            orset_buf_free(&x->answer);
        }
}

static void deliver_all(struct run *t)
{
    bool more = true;
    while (more) {
        more = false;
        for (unsigned n = 0; n < 40; n++) {
            unsigned i = draw(t, REPLICAS), j = draw(t, REPLICAS);
            more |= i != j && deliver(t, i, j);
        }
        for (unsigned i = 0; i < REPLICAS; i++)
            for (unsigned j = 0; j < REPLICAS; j++)
                more |= i != j && deliver(t, i, j);
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

static void judge(struct run *t)
{
    uint8_t first[16], digest[16];
    orset_digest(t->r[0].os, first);
    for (unsigned i = 0; i < REPLICAS; i++) {
        orset_digest(t->r[i].os, digest);
        if (memcmp(digest, first, 16) != 0)
            broken(t, "digests differ");
        if (orset_remembered(t->r[i].os))
            broken(t, "something is remembered though all ops are here");
        list(&t->r[i], &after);
        for (unsigned s = 1; s <= REPLICAS; s++)
            for (unsigned n = 0; n < DOTS; n++)
                if (after.has[s][n] != (t->added.has[s][n] && !t->removed.has[s][n]))
                    broken(t, after.has[s][n] ? "a removed mail is back" : "a mail is lost");
    }
}

static void run(struct run *t, unsigned long seed, unsigned most)
{
    memset(t, 0, sizeof *t);
    t->seed = seed;
    t->random = seed * 0x9e3779b97f4a7c15ULL + 1;
    for (unsigned i = 0; i < REPLICAS; i++) {
        open_replica(&t->r[i], i + 1);
        for (unsigned j = 0; j < REPLICAS; j++) {
            t->x[i][j].question.alloc = t->x[i][j].answer.alloc = &HEAP;
            t->lane[i][j] = draw(t, 3) ? draw(t, 100) : 0;
        }
    }
    unsigned often = 40 + 2 * draw(t, 3) * draw(t, 10), steps = 20 + draw(t, most);
    for (unsigned n = 0; n < steps; n++) {
        unsigned what = draw(t, 100), i = draw(t, REPLICAS), j = draw(t, REPLICAS);
        if (what < 30)
            change(t, &t->r[i]);
        else if (what < 40)
            follow(&t->r[i]);
        else if (i != j && what < often)
            exchange(t, i, j);
        else if (i != j && draw(t, 100) < t->lane[i][j])
            deliver(t, i, j);
    }
    end_exchanges(t);
    deliver_all(t);
    judge(t);
    for (unsigned i = 0; i < REPLICAS; i++)
        close_replica(&t->r[i]);
}

static unsigned long first = 1, runs = 10000;
static unsigned steps = 400;

START_TEST(test_any_tangle_ends_equal)
{
    static struct run t;
    for (unsigned long n = 0; n < runs; n++)
        run(&t, first + n, steps);
    ck_assert_uint_gt(exchanges, runs / 10);
    printf("%lu runs, %lu exchanges, all equal\n", runs, exchanges);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("orset tangle");
    TCase *t = tcase_create("tangle");
    first = argc > 1 ? strtoul(argv[1], NULL, 10) : first;
    runs = argc > 2 ? strtoul(argv[2], NULL, 10) : runs;
    steps = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : steps;
    tcase_add_test(t, test_any_tangle_ends_equal);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
