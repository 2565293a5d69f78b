/* simulate_links - lanes, state exchanges and UID rounds between sites. */
#include "tests/unit/orset/simulate.h"

static void message_set(struct message *m, struct orset_buf *b)
{
    free(m->bytes);
    m->bytes = b->data;
    m->len = b->len;
    b->data = NULL;
    b->len = b->room = 0;
}

void message_clear(struct message *m)
{
    free(m->bytes);
    memset(m, 0, sizeof *m);
}

static struct lane *lane(struct site *from, struct site *to)
{
    return &from->group->lane[from->index][to->index];
}

/* --- lanes
 * ---------------------------------------------------------------------------------------------- */

void ship(struct site *from, struct site *to)
{
    struct orset_buf out = {.alloc = &HEAP};
    struct lane *l = lane(from, to);
    uint64_t next, end = orset_vector_get(from->os, orset_self(from->os)) + 1;
    if (l->n == LANE)
        return;
    /* An old host says what it has, and no more, until it has heard everybody. */
    uint64_t first = from->unheard ? end : from->confirmed[to->index] + 1;
    int r = orset_batch_make(from->os, first, 200 + below(2000), NULL, 0, &out, &next);
    if (r == ORSET_E_GAP) { /* rows are gone: only the vector, the peer exchanges */
        out.len = 0;
        r = orset_batch_make(from->os, end, 100, NULL, 0, &out, &next);
    }
    must(from, r);
    message_set(&l->m[l->n++], &out);
    orset_buf_free(&out);
}

static void drop_confirmed(struct site *s)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < s->group->n; i++)
        if (i != s->index && is_here(&s->group->site[i]) && s->confirmed[i] < least)
            least = s->confirmed[i];
    bool backlog = !healing && below(30) == 0; /* too many rows (F38) */
    if (backlog) {
        least = orset_vector_get(s->os, orset_self(s->os));
        happened[ROWS_GONE]++;
    }
    if (least == UINT64_MAX || least == 0)
        return;
    must(s, orset_begin(s->os));
    must(s, orset_drop_out(s->os, least));
    commit(s);
}

static void receive(struct site *from, struct site *s, const struct message *m)
{
    struct orset_batch_result r;
    must(s, orset_begin(s->os));
    int e = orset_batch_apply(s->os, from->index + 1, m->bytes, m->len, &r);
    if (e == ORSET_E_ROLLED_BACK) {
        happened[ROLLED_BACK]++;
        new_epoch(s);
        return;
    }
    /* what an old host said while it was in doubt */
    if (e == ORSET_E_FORKED && s->group->old_hosts > 0) {
        happened[FORK_NOTICED]++;
        orset_rollback(s->os);
        if (is_here(from))
            ship(s, from);
        return;
    }
    if (e < 0 && e != ORSET_E_GAP && e != ORSET_E_EXCHANGE)
        must(s, e);
    if (!healing && below(20) == 0) {
        orset_rollback(s->os);
        crash(s, CRASH_TAKEN);
        return;
    }
    commit(s);
    happened[BATCH_EARLY] += r.applied > 0 && r.behind;
    if (r.confirmed > s->confirmed[from->index])
        s->confirmed[from->index] = r.confirmed;
    if (r.lost && is_here(from))
        ship(s, from);
    if (e < 0 || (r.behind && !healing && below(4) == 0))
        start_exchange(s, from);
    if (below(4) == 0)
        drop_confirmed(s);
}

void deliver(struct site *from, struct site *to, bool faults)
{
    struct lane *l = lane(from, to);
    if (l->n == 0)
        return;
    struct message m = l->m[0];
    if (faults && below(12) == 0) { /* delivered, and again later: its ack was lost */
        happened[BATCH_TWICE]++;
        receive(from, to, &m);
        return;
    }
    memmove(&l->m[0], &l->m[1], (l->n - 1) * sizeof l->m[0]);
    l->n--;
    memset(&l->m[l->n], 0, sizeof l->m[0]);
    if (faults && below(10) == 0)
        happened[BATCH_LOST]++;
    else
        receive(from, to, &m);
    message_clear(&m);
}

void cut_lane(struct site *from, struct site *to)
{
    struct lane *l = lane(from, to);
    while (l->n > 0)
        message_clear(&l->m[--l->n]);
}

/* --- exchanges, a message at a time
 * ---------------------------------------------------------------------------------- */

void start_exchange(struct site *s, struct site *giver)
{
    struct orset_buf q = {.alloc = &HEAP};
    unsigned g = giver->index;
    if (s->x[g] || s == giver || !is_here(giver))
        return;
    happened[EXCHANGES]++;
    must(s, orset_ask_hello(s->os, g + 1, &s->x[g], &q));
    message_set(&s->question[g], &q);
}

void end_exchange(struct site *s, struct site *giver)
{
    unsigned g = giver->index;
    if (s->os)
        orset_exchange_free(s->os, s->x[g]);
    s->x[g] = NULL;
    message_clear(&s->question[g]);
    message_clear(&s->answer[g]);
}

static void answer(struct site *s, struct site *giver)
{
    struct orset_buf out = {.alloc = &HEAP};
    const struct message *q = &s->question[giver->index];
    must(giver, orset_begin(giver->os));
    int e = orset_answer(giver->os, s->index + 1, q->bytes, q->len, &out);
    if (e == ORSET_E_ROLLED_BACK) {
        happened[ROLLED_BACK]++;
        new_epoch(giver);
    } else if (e == ORSET_E_ABSENT ||
               (e == ORSET_E_FORKED && s->unheard)) { /* restored since the hello */
        happened[FORK_NOTICED] += e == ORSET_E_FORKED;
        orset_rollback(giver->os);
        end_exchange(s, giver);
        if (e == ORSET_E_FORKED)
            ship(giver, s);
    } else {
        must(giver, e);
        commit(giver);
        message_set(&s->answer[giver->index], &out);
    }
    orset_buf_free(&out);
}

/* An old host has all that this peer knows. */
static void hear(struct site *s, unsigned peer)
{
    bool was = s->unheard != 0;
    s->unheard &= ~(1U << peer);
    if (!was || s->unheard)
        return;
    must(s, orset_begin(s->os));
    must(s, orset_epoch_doubt(s->os, false));
    commit(s);
}

bool exchange_step(struct site *s, struct site *giver, bool faults)
{
    struct orset_buf out = {.alloc = &HEAP};
    unsigned g = giver->index;
    if (!s->x[g])
        return false;
    if (!is_here(giver) || giver->unheard || (faults && below(15) == 0)) {
        happened[EXCHANGE_CUT]++;
        end_exchange(s, giver);
        return true;
    }
    if (!s->answer[g].bytes) {
        answer(s, giver);
        return true;
    }
    if (faults && below(8) == 0) {
        crash(s, CRASH_EXCHANGE);
        return true;
    }
    must(s, orset_begin(s->os));
    int e = orset_take(s->os, s->x[g], s->answer[g].bytes, s->answer[g].len, &out);
    message_clear(&s->answer[g]);
    if (e == ORSET_E_ROLLED_BACK) {
        happened[ROLLED_BACK]++;
        new_epoch(s);
    } else if (e == ORSET_E_ABSENT) { /* the giver was restored since the hello */
        orset_rollback(s->os);
        end_exchange(s, giver);
    } else {
        must(s, e);
        commit(s);
        if (e == ORSET_KNOWN) {
            end_exchange(s, giver);
            hear(s, g);
        } else {
            message_set(&s->question[g], &out);
        }
    }
    orset_buf_free(&out);
    return true;
}

void exchange_with_all(struct site *s)
{
    for (unsigned i = 0; i < s->group->n; i++) {
        struct site *giver = &s->group->site[i];
        if (giver == s || !is_here(giver) || giver->unheard)
            continue;
        start_exchange(s, giver);
        while (exchange_step(s, giver, false))
            ;
    }
}

/* --- UID rounds
 * ---------------------------------------------------------------------------------------------- */

/* NULL: nobody who is here. */
static struct site *keeper_of(struct site *s, uint32_t folder)
{
    struct group *g = s->group;
    uint64_t ids[SITES];
    size_t n = 0;
    for (unsigned i = 0; i < g->n; i++)
        if (is_here(&g->site[i]))
            ids[n++] = i + 1;
    uint64_t k = orset_keeper(s->os, folder, ids, n);
    return k >= 1 && k <= g->n && is_here(&g->site[k - 1]) ? &g->site[k - 1] : NULL;
}

void change_keeper(struct site *s)
{
    happened[KEEPER_CHANGE]++;
    for (unsigned i = 0; i < s->group->n; i++)
        happened[KEEPER_CHANGE_ROUND] +=
            is_here(&s->group->site[i]) && s->group->site[i].round_folder != ORSET_NO_FOLDER;
    must(s, orset_begin(s->os));
    must(s, orset_local_keeper(s->os, some_home(s), some_site(s->group) + 1));
    commit(s);
}

static bool tell(struct site *s, struct site *keeper, uint32_t folder)
{
    struct orset_folder f, g;
    bool did = false;
    must(s, orset_folder_get(s->os, folder, &f));
    for (uint32_t j = 0; j < orset_folders(keeper->os); j++) {
        must(keeper, orset_folder_get(keeper->os, j, &g));
        if (g.id_origin.site != f.id_origin.site || g.id_origin.epoch != f.id_origin.epoch ||
            g.id_counter != f.id_counter || orset_uid_dirty(keeper->os, j, true) || !g.live)
            continue;
        must(keeper, orset_begin(keeper->os));
        must(keeper, orset_uid_mark_dirty(keeper->os, j));
        commit(keeper);
        did = true;
    }
    return did;
}

static void ask(struct site *s, uint32_t folder)
{
    s->ask = (struct orset_buf){.alloc = &HEAP};
    must(s, orset_begin(s->os));
    must(s, orset_uid_ask(s->os, folder, &s->ask));
    commit(s);
    s->round_folder = folder;
    happened[ROUNDS]++;
}

/* True when the answers are there, or will not come. */
static bool gather(struct site *s, bool faults, struct orset_answer *have, size_t *n)
{
    for (unsigned i = 0; i < s->group->n; i++) {
        struct site *other = &s->group->site[i];
        struct orset_buf out = {.alloc = &HEAP};
        if (other == s || !is_here(other) || other->unheard)
            continue;
        if (!s->reply[i].bytes) {
            if (faults && below(3) == 0) /* not yet */
                return false;
            int r = orset_uid_answer(other->os, s->ask.data, s->ask.len, &out);
            if (r == ORSET_E_ABSENT || (faults && below(10) == 0)) { /* settled without this site */
                happened[ANSWER_LOST]++;
                orset_buf_free(&out);
                continue;
            }
            must(other, r);
            message_set(&s->reply[i], &out);
            if (faults)
                return false;
        }
        have[(*n)++] = (struct orset_answer){s->reply[i].bytes, s->reply[i].len};
    }
    return true;
}

static void settle(struct site *s, const struct orset_answer *have, size_t n)
{
    must(s, orset_begin(s->os));
    int r = orset_uid_settle(s->os, s->round_folder, have, n);
    /* the term changed meanwhile: the answers are to another round */
    if (r < 0 && r != ORSET_E_MALFORMED)
        must(s, r);
    commit(s);
    for (unsigned i = 0; i < s->group->n; i++)
        message_clear(&s->reply[i]);
    orset_buf_free(&s->ask);
    s->round_folder = ORSET_NO_FOLDER;
}

/* Tells the keeper of a dirty folder, or goes on with the round. */
bool round_step(struct site *s, bool faults)
{
    bool did = false;
    if (s->unheard)
        return false;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct site *k = keeper_of(s, i);
        if (!is_home(s, i) || !orset_uid_dirty(s->os, i, k == s))
            continue;
        if (!k) { /* the keeper is gone: another one, by an op */
            must(s, orset_begin(s->os));
            must(s, orset_local_keeper(s->os, i, s->index + 1));
            commit(s);
            did = true;
        } else if (k != s) {
            did |= tell(s, k, i);
        } else if (s->round_folder == ORSET_NO_FOLDER) {
            ask(s, i);
            did = true;
        }
    }
    if (s->round_folder == ORSET_NO_FOLDER)
        return did;
    if (faults && below(25) == 0) {
        crash(s, CRASH_ROUND);
        return true;
    }
    struct orset_answer have[SITES];
    size_t n = 0;
    if (gather(s, faults, have, &n))
        settle(s, have, n);
    return true;
}
