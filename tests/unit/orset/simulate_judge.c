/* simulate_judge - the end: links are good, everybody does what is left, and everything is
 * compared. */
#include "tests/unit/orset/simulate.h"

/* --- what users did
 * ---------------------------------------------------------------------------------------------- */

struct known_dot *journal(struct site *s, struct orset_dot d)
{
    struct group *g = s->group;
    struct orset_origin o = orset_origin_get(s->os, d.origin);
    for (size_t i = g->ndots; i-- > 0;)
        if (g->dot[i].counter == d.counter && g->dot[i].site == o.site &&
            g->dot[i].epoch == o.epoch)
            return &g->dot[i];
    if (g->ndots == g->dots_room) {
        g->dots_room = g->dots_room ? g->dots_room * 2 : 256;
        g->dot = realloc(g->dot, g->dots_room * sizeof *g->dot);
    }
    g->dot[g->ndots] = (struct known_dot){o.site, o.epoch, d.counter, 0, false};
    return &g->dot[g->ndots++];
}

/* --- what is left
 * ---------------------------------------------------------------------------------------------- */

/* A folder whose name only a lost site knew: somebody gives it one. */
static bool name_nameless(struct site *s)
{
    bool any = false;
    for (uint32_t i = 1; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, i, &f));
        if (!f.live || f.named)
            continue;
        if (s->group->disasters == 0)
            fail("a folder without a name, though nobody was lost", s);
        char name[40] = {0};
        int n = snprintf(name + 1, sizeof name - 1, "lost-%" PRIu64 "-%" PRIu64, f.id_origin.site,
                         f.id_counter);
        must(s, orset_begin(s->os));
        must(s, orset_local_rename(s->os, i, name, (size_t)n + 1));
        commit(s);
        any = true;
    }
    return any;
}

static bool do_own_work(struct site *s)
{
    bool busy = false;
    while (work(s, 0, FAULT_KINDS))
        busy = true;
    uint64_t before = orset_vector_get(s->os, orset_self(s->os));
    ingest_all(s);
    return busy | (orset_vector_get(s->os, orset_self(s->os)) != before);
}

static void talk(struct site *a, struct site *b, bool exchange)
{
    struct lane *l = &a->group->lane[a->index][b->index];
    while (l->n > 0)
        deliver(a, b, false);
    ship(a, b);
    deliver(a, b, false);
    if (exchange)
        start_exchange(a, b);
    while (exchange_step(a, b, false))
        ;
}

static bool has_all_of(const struct site *s, const struct site *of)
{
    struct orset_origin o = orset_origin_get(of->os, orset_self(of->os));
    uint64_t n = orset_vector_get(of->os, orset_self(of->os));
    for (uint16_t i = 0; i < orset_origins(s->os); i++)
        if (orset_origin_get(s->os, i).site == o.site &&
            orset_origin_get(s->os, i).epoch == o.epoch)
            return orset_vector_get(s->os, i) == n;
    return n == 0;
}

/* Where no host lost anything and no rows are gone, ops alone make all equal: an exchange would
 * hide what they did wrong (a remove that was not remembered). */
static void equal_by_ops(struct group *g)
{
    uint8_t first[16], d[16];
    uint64_t before = happened[EXCHANGES];
    struct site *ref = NULL;
    for (unsigned a = 0; a < g->n; a++)
        for (unsigned b = 0; b < g->n; b++)
            end_exchange(&g->site[a], &g->site[b]);
    bool all = false;
    for (unsigned turn = 0; turn < 100 && !all; turn++) {
        all = true;
        for (unsigned a = 0; a < g->n; a++)
            for (unsigned b = 0; b < g->n; b++)
                if (a != b) {
                    talk(&g->site[a], &g->site[b], false);
                    all &= has_all_of(&g->site[b], &g->site[a]);
                }
    }
    if (!all || happened[EXCHANGES] != before)
        return; /* rows are gone: only an exchange fills the gap */
    for (unsigned a = 0; a < g->n; a++) {
        orset_digest(g->site[a].os, d);
        if (ref && memcmp(first, d, 16) != 0)
            fail("digests differ before any exchange", &g->site[a]);
        memcpy(first, d, 16);
        ref = &g->site[a];
    }
    happened[EQUAL_BY_OPS]++;
}

void heal(struct group *g)
{
    if (g->disasters == 0)
        equal_by_ops(g);
    for (unsigned turn = 0; turn < 80; turn++) {
        bool busy = false;
        for (unsigned a = 0; a < g->n; a++)
            busy |= is_here(&g->site[a]) && do_own_work(&g->site[a]);
        for (unsigned a = 0; a < g->n; a++)
            for (unsigned b = 0; b < g->n; b++)
                if (a != b && is_here(&g->site[a]) && is_here(&g->site[b]))
                    talk(&g->site[a], &g->site[b], turn % 4 == 0);
        for (unsigned a = 0; a < g->n; a++)
            while (is_here(&g->site[a]) && work(&g->site[a], 0, FAULT_KINDS))
                busy = true;
        for (unsigned a = 0; a < g->n; a++)
            busy |= is_here(&g->site[a]) && round_step(&g->site[a], false);
        if (busy || turn <= 4)
            continue;
        for (unsigned a = 0; a < g->n; a++)
            busy |= is_here(&g->site[a]) && name_nameless(&g->site[a]);
        if (!busy)
            return;
    }
    fail("not quiet after 80 turns", &g->site[0]);
}

/* --- comparing
 * ---------------------------------------------------------------------------------------------- */

static int check_message(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct site *s = arg;
    struct orset_folder f;
    struct orset_facts have;
    (void)own;
    orset_folder_get(s->os, m->folder, &f);
    struct known_dot *d = journal(s, m->dot);
    if (d->removed & ~s->group->unsure)
        fail("a removed message is back", s);
    d->seen = true;
    struct mail *mail = m->uid ? mail_by_uid(box_of(s, f.home), m->uid) : NULL;
    if (!mail)
        fail("a message of the state is not in its mailbox", s);
    s->group->mail[mail->content].seen = true;
    struct orset_message shown; /* what m's own site saved under the GUID may be another mail */
    must(s, orset_message_by_uid(s->os, f.home, m->uid, &shown));
    if (mail->content != (shown.facts.sha256[1] | shown.facts.sha256[2] << 8))
        fail("a message of the state has another mail in its mailbox", s);
    facts_of(mail, &have);
    if (memcmp(have.sha256, m->facts.sha256, 32) > 0)
        fail("a mailbox has not the smallest bytes of a message", s);
    return 0;
}

static int explain_one(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct site *s = arg;
    (void)own;
    struct orset_origin o = orset_origin_get(s->os, m->dot.origin);
    fprintf(stderr,
            "  site %u folder %u dot %" PRIu64 ".%" PRIu64 ".%" PRIu64
            " guid %u k %u uid %u claim %u agreed %u\n",
            s->index + 1, m->folder, o.site, o.epoch, m->dot.counter,
            m->facts.guid[0] | m->facts.guid[1] << 8, m->k, m->uid, m->claim, m->agreed);
    return 0;
}

static void explain(struct site *s, uint32_t home)
{
    struct orset_folder f;
    for (uint32_t n = 0; n < orset_folders(s->os); n++)
        if (orset_folder_get(s->os, n, &f) == 0 && f.home == home)
            orset_each_message(s->os, n, explain_one, s);
}

static void compare_box(struct site *x, uint32_t i, struct site *y, uint32_t j)
{
    struct box *a = box_of(x, i), *b = box_of(y, j);
    bool same = a->n == b->n;
    for (unsigned n = 0; same && n < a->n; n++) {
        struct mail *m = mail_by_uid(b, a->mail[n].uid);
        if (m && (m->content != a->mail[n].content || m->body != a->mail[n].body)) {
            explain(x, i);
            explain(y, j);
            fail("a UID names two mails", x);
        }
        same = m != NULL;
        if (m && m->flags != a->mail[n].flags)
            fail("flags of one mail differ", x);
    }
    if (!same) {
        explain(x, i);
        explain(y, j);
        fail("mailboxes differ", x);
    }
}

static void compare_boxes(struct site *x, struct site *y)
{
    for (uint32_t i = 0; i < orset_folders(x->os); i++) {
        struct orset_folder f, g;
        if (!is_home(x, i))
            continue;
        must(x, orset_folder_get(x->os, i, &f));
        for (uint32_t j = 0; j < orset_folders(y->os); j++) {
            must(y, orset_folder_get(y->os, j, &g));
            if (is_home(y, j) && g.id_origin.site == f.id_origin.site &&
                g.id_origin.epoch == f.id_origin.epoch && g.id_counter == f.id_counter)
                compare_box(x, i, y, j);
        }
    }
}

void judge(struct group *g)
{
    uint8_t first[16], d[16];
    struct site *ref = NULL;
    for (unsigned a = 0; a < g->n; a++) {
        struct site *s = &g->site[a];
        if (!is_here(s))
            continue;
        orset_digest(s->os, d);
        if (ref && memcmp(first, d, 16) != 0)
            fail("digests differ", s);
        memcpy(first, d, 16);
        if (orset_remembered(s->os) != 0 && g->disasters == 0)
            fail("something is still remembered", s);
        for (uint32_t i = 0; i < orset_folders(s->os); i++)
            must(s, orset_each_message(s->os, i, check_message, s));
        if (ref)
            compare_boxes(ref, s);
        ref = ref ? ref : s;
    }
    for (size_t i = 0; i < g->ndots && g->disasters == 0; i++)
        if (!g->dot[i].removed && !g->dot[i].seen)
            fail("an added message is missing", ref);
    /* And whatever befell the hosts: what no user removed is there, unless its host was lost. */
    for (unsigned i = SHARED_CONTENTS; i < g->nmails; i++)
        if (!g->mail[i].removed && !g->mail[i].unsure && !g->mail[i].seen &&
            !(g->mail[i].damaged && g->disasters))
            fail("a mail is lost", ref);
}
