/* simulate_net - the second half of simulate.c: users, lanes, exchanges, UID rounds, disasters, and the
 * judgement. */
#ifndef TEST_SIMULATE_NET_H
#define TEST_SIMULATE_NET_H

/* --- users
 * --------------------------------------------------------------------------------------------------------------
 */

static uint32_t some_home(struct site *s)
{
    uint32_t n = orset_folders(s->os), at = below(n);
    for (uint32_t i = 0; i < n; i++)
        if (is_home(s, (at + i) % n))
            return (at + i) % n;
    return ORSET_INBOX;
}

static void user(struct site *s)
{
    uint32_t folder = some_home(s);
    struct box *b = box_of(s, folder);
    unsigned z = below(100);
    char name[2] = {0, (char)('a' + below(4))};
    if (z < 40 || b->n == 0) {
        if (b->n < 60)
            save(b, 0, (uint8_t)below(60), below(4) == 0 ? ORSET_FLAGGED : 0);
    } else if (z < 60) {
        b->mail[below(b->n)].flags ^= (uint8_t)(1U << below(5));
    } else if (z < 75) {
        unsigned i = below(b->n);
        b->expunged[b->nexpunged++] = b->mail[i].uid;
        take_out(b, b->mail[i].uid);
    } else if (z < 82) { /* COPY or MOVE */
        unsigned i = below(b->n);
        struct mail m = b->mail[i];
        uint32_t to = some_home(s);
        if (box_of(s, to)->n >= 60)
            return;
        save(box_of(s, to), 0, m.guid, m.flags);
        if (z < 78) {
            b->expunged[b->nexpunged++] = m.uid;
            take_out(b, m.uid);
        }
    } else {
        uint8_t guid[16] = {1};
        uint32_t f = orset_folder_by_name(s->os, name, 2);
        must(s, orset_begin(s->os));
        /* What the user sees is in the state before his command on folders is: the plugin's intent comes
         * behind the hints. */
        for (uint32_t i = 0; i < orset_folders(s->os); i++)
            if (is_home(s, i)) {
                ingest_box(s, i);
                ingest_missing(s, i);
            }
        char other[2] = {0, (char)('a' + below(4))};
        if (f == ORSET_NO_FOLDER && orset_folders(s->os) < BOXES - 8) {
            must(s, orset_local_create(s->os, name, 2, 1000 + below(5), guid, &f));
        } else if (f != ORSET_NO_FOLDER && z < 90) {
            struct same_message a = {.s = s, .all_placed = true};
            for (uint32_t i = 0; i < orset_folders(s->os); i++) {
                struct orset_folder g;
                must(s, orset_folder_get(s->os, i, &g));
                if (g.home == f && g.live)
                    must(s, orset_each_message(s->os, i, mark_removed, &a));
            }
            must(s, orset_local_delete(s->os, f));
            memset(&s->box[f], 0, sizeof s->box[f]);
        } else if (f != ORSET_NO_FOLDER && orset_folder_by_name(s->os, other, 2) == ORSET_NO_FOLDER) {
            must(s, orset_local_rename(s->os, f, other, 2));
        } else {
            must(s, orset_local_subscribe(s->os, name, 2, below(2)));
            must(s, orset_local_attribute(s->os, below(2) ? ORSET_NO_FOLDER : ORSET_INBOX, "sieve", 5,
                                          (uint8_t *)other, 2));
            must(s, orset_local_uid_validity(s->os, folder, 1000 + below(50), 2000));
        }
        commit_ingest(s);
    }
}

/* --- lanes
 * --------------------------------------------------------------------------------------------------------------
 */

static void ship(unsigned a, unsigned b)
{
    struct orset_buf out = {.alloc = &HEAP};
    struct lane *l = &lane[a][b];
    uint64_t next;
    if (l->n == LANE)
        return;
    int r = orset_batch_make(site[a].os, site[a].confirmed[b] + 1, 200 + below(2000), NULL, 0, &out, &next);
    if (r == ORSET_E_GAP) { /* rows are gone: only the vector, the peer exchanges */
        out.len = 0;
        r = orset_batch_make(site[a].os, orset_vector_get(site[a].os, orset_self(site[a].os)) + 1, 100, NULL,
                             0, &out, &next);
    }
    must(&site[a], r);
    message_set(&l->m[l->n++], &out);
    orset_buf_free(&out);
}

static void new_epoch(struct site *s)
{
    orset_rollback(s->os);
    must(s, orset_begin(s->os));
    s->epoch += 1000;
    must(s, orset_new_epoch(s->os, s->epoch));
    commit(s);
    memset(s->confirmed, 0, sizeof s->confirmed);
}

static void start_exchange(unsigned a, unsigned b)
{
    struct orset_buf q = {.alloc = &HEAP};
    if (site[a].x[b])
        return;
    exchanges++;
    must(&site[a], orset_ask_hello(site[a].os, b + 1, &site[a].x[b], &q));
    message_set(&site[a].question[b], &q);
}

static bool healing; /* no more faults */

static void receive(unsigned a, unsigned b, const struct message *m)
{
    struct site *s = &site[b];
    struct orset_batch_result r;
    must(s, orset_begin(s->os));
    int e = orset_batch_apply(s->os, a + 1, m->bytes, m->len, &r);
    if (e == ORSET_E_ROLLED_BACK) {
        new_epoch(s);
        return;
    }
    if (e < 0 && e != ORSET_E_GAP && e != ORSET_E_EXCHANGE)
        must(s, e);
    if (!healing && below(20) == 0) {
        orset_rollback(s->os);
        crash(s);
        return;
    }
    commit(s);
    if (r.confirmed > s->confirmed[a])
        s->confirmed[a] = r.confirmed;
    if (e < 0 || (r.behind && below(4) == 0))
        start_exchange(b, a);
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < nsites; i++)
        if (i != b && !site[i].dead && s->confirmed[i] < least)
            least = s->confirmed[i];
    if (least != UINT64_MAX && least > 0 && below(4) == 0) {
        must(s, orset_begin(s->os));
        must(s, orset_drop_out(s->os, least));
        commit(s);
    }
}

static void deliver(unsigned a, unsigned b, bool faults)
{
    struct lane *l = &lane[a][b];
    if (l->n == 0)
        return;
    struct message m = l->m[0];
    if (faults && below(12) == 0) { /* delivered, and again later: its ack was lost */
        receive(a, b, &m);
        return;
    }
    memmove(&l->m[0], &l->m[1], (l->n - 1) * sizeof l->m[0]);
    l->n--;
    memset(&l->m[l->n], 0, sizeof l->m[0]);
    if (!faults || below(10) != 0) /* else lost */
        receive(a, b, &m);
    message_clear(&m);
}

static void cut_lane(unsigned a, unsigned b)
{
    while (lane[a][b].n > 0)
        message_clear(&lane[a][b].m[--lane[a][b].n]);
}

/* --- exchanges, a message at a time
 * --------------------------------------------------------------------------------------- */

static bool exchange_step(unsigned a, unsigned b, bool faults)
{
    struct site *s = &site[a], *giver = &site[b];
    struct orset_buf out = {.alloc = &HEAP};
    if (!s->x[b])
        return false;
    if (giver->dead || (faults && below(15) == 0)) { /* given up */
        orset_exchange_free(s->os, s->x[b]);
        s->x[b] = NULL;
        message_clear(&s->question[b]);
        message_clear(&s->answer[b]);
        return true;
    }
    if (!s->answer[b].bytes) {
        must(giver, orset_begin(giver->os));
        int e = orset_answer(giver->os, a + 1, s->question[b].bytes, s->question[b].len, &out);
        if (e == ORSET_E_ROLLED_BACK) {
            new_epoch(giver);
            orset_buf_free(&out);
            return true;
        }
        if (e == ORSET_E_ABSENT) { /* restored since the hello: the exchange is given up */
            orset_rollback(giver->os);
            orset_exchange_free(s->os, s->x[b]);
            s->x[b] = NULL;
            orset_buf_free(&out);
            return true;
        }
        must(giver, e);
        commit(giver);
        message_set(&s->answer[b], &out);
        return true;
    }
    must(s, orset_begin(s->os));
    int e = orset_take(s->os, s->x[b], s->answer[b].bytes, s->answer[b].len, &out);
    message_clear(&s->answer[b]);
    if (e == ORSET_E_ROLLED_BACK) {
        orset_exchange_free(s->os, s->x[b]);
        s->x[b] = NULL;
        new_epoch(s);
    } else {
        must(s, e);
        commit(s);
        if (e == ORSET_KNOWN) {
            orset_exchange_free(s->os, s->x[b]);
            s->x[b] = NULL;
            message_clear(&s->question[b]);
        } else {
            message_set(&s->question[b], &out);
        }
    }
    orset_buf_free(&out);
    return true;
}

/* --- UID rounds
 * ------------------------------------------------------------------------------------------------------------
 */

static unsigned keeper_of(struct site *s, uint32_t folder)
{
    uint64_t ids[SITES];
    size_t n = 0;
    for (unsigned i = 0; i < nsites; i++)
        if (!site[i].dead)
            ids[n++] = i + 1;
    uint64_t k = orset_keeper(s->os, folder, ids, n);
    return (unsigned)k - 1;
}

/* Tells the keeper of a dirty folder, or goes on with the round. */
static bool round_step(unsigned a, bool faults)
{
    struct site *s = &site[a];
    bool did = false;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        unsigned k = keeper_of(s, i);
        if (!is_home(s, i) || !orset_uid_dirty(s->os, i, k == a))
            continue;
        if (k >= nsites || site[k].dead) { /* the keeper is gone for ever: another one, by an op */
            must(s, orset_begin(s->os));
            must(s, orset_local_keeper(s->os, i, a + 1));
            commit(s);
            did = true;
        } else if (k != a) {
            struct orset_folder f, g;
            must(s, orset_folder_get(s->os, i, &f));
            for (uint32_t j = 0; j < orset_folders(site[k].os); j++) {
                must(&site[k], orset_folder_get(site[k].os, j, &g));
                if (g.id_origin.site == f.id_origin.site && g.id_origin.epoch == f.id_origin.epoch &&
                    g.id_counter == f.id_counter && !orset_uid_dirty(site[k].os, j, true) && g.live) {
                    must(&site[k], orset_begin(site[k].os));
                    must(&site[k], orset_uid_mark_dirty(site[k].os, j));
                    commit(&site[k]);
                    did = true;
                }
            }
        } else if (s->round_folder == ORSET_NO_FOLDER) {
            s->ask = (struct orset_buf){.alloc = &HEAP};
            must(s, orset_begin(s->os));
            must(s, orset_uid_ask(s->os, i, &s->ask));
            commit(s);
            s->round_folder = i;
            rounds++;
            did = true;
        }
    }
    if (s->round_folder == ORSET_NO_FOLDER)
        return did;
    struct orset_answer have[SITES];
    size_t n = 0;
    for (unsigned i = 0; i < nsites; i++) {
        struct orset_buf out = {.alloc = &HEAP};
        if (i == a || site[i].dead)
            continue;
        if (s->reply[i].bytes) {
            have[n++] = (struct orset_answer){s->reply[i].bytes, s->reply[i].len};
            continue;
        }
        if (faults && below(3) == 0) /* not yet */
            return true;
        int r = orset_uid_answer(site[i].os, s->ask.data, s->ask.len, &out);
        if (r == ORSET_E_ABSENT || (faults && below(10) == 0)) { /* lost: settled without this site */
            orset_buf_free(&out);
            continue;
        }
        must(&site[i], r);
        message_set(&s->reply[i], &out);
        if (faults)
            return true;
        have[n++] = (struct orset_answer){s->reply[i].bytes, s->reply[i].len};
    }
    must(s, orset_begin(s->os));
    int r = orset_uid_settle(s->os, s->round_folder, have, n);
    if (r < 0 && r != ORSET_E_MALFORMED) /* the term changed meanwhile: the answers are to another round */
        must(s, r);
    commit(s);
    for (unsigned i = 0; i < nsites; i++)
        message_clear(&s->reply[i]);
    orset_buf_free(&s->ask);
    s->round_folder = ORSET_NO_FOLDER;
    return true;
}

/* --- disasters
 * -------------------------------------------------------------------------------------------------------------
 */

static void back_up(struct site *s)
{
    orset_memstore_free(s->old);
    s->old = orset_memstore_copy(s->disk);
}

/* Yesterday's state, today's mailboxes: what the mailboxes have more than the state is matched, not added
 * twice, after an exchange. What only this site knew since may come back or be new: its dots are not judged.
 */
static void restore(unsigned a)
{
    struct site *s = &site[a];
    if (!s->old)
        return;
    restores++;
    unsure |= 1U << a;
    stop(s);
    orset_memstore_free(s->disk);
    s->disk = s->old;
    s->old = NULL;
    for (size_t i = 0; i < ndots; i++)
        if (dots[i].site == a + 1)
            dots[i].sure = false;
    start(s);
    /* Exchange before ingest. */
    for (unsigned b = 0; b < nsites; b++)
        if (b != a && !site[b].dead) {
            start_exchange(a, b);
            while (exchange_step(a, b, false))
                ;
        }
    for (uint32_t i = 0; i < orset_folders(s->os); i++)
        if (i < BOXES && !is_home(s, i))
            memset(&s->box[i], 0, sizeof s->box[i]);
}

static void damage(struct site *s)
{
    struct box *b = box_of(s, some_home(s));
    damages++;
    if (b->n > 0)
        b->n = below(b->n); /* the rest of the mailbox vanishes */
}

static void die(unsigned a)
{
    deaths++;
    unsure |= 1U << a;
    site[a].dead = true;
    for (unsigned b = 0; b < nsites; b++) {
        while (lane[a][b].n > 0 && below(2))
            message_clear(&lane[a][b].m[--lane[a][b].n]);
        cut_lane(b, a);
    }
    stop(&site[a]);
}

/* --- the run
 * -------------------------------------------------------------------------------------------------------------
 */

static unsigned alive(void)
{
    unsigned a;
    do
        a = below(nsites);
    while (site[a].dead);
    return a;
}

static void step(void)
{
    unsigned a = alive(), b = below(nsites), z = below(1000);
    struct site *s = &site[a];
    steps_done++;
    if (z < 220)
        user(s);
    else if (z < 340)
        ingest(s);
    else if (z < 480 && b != a && !site[b].dead)
        ship(a, b);
    else if (z < 660 && b != a)
        deliver(b, a, true);
    else if (z < 860)
        work(s, below(3), below(10) == 0 ? 1 + below(2) : 0);
    else if (z < 920 && b != a)
        exchange_step(a, b, true);
    else if (z < 960)
        round_step(a, true);
    else if (z < 968)
        crash(s);
    else if (z < 974)
        back_up(s);
    else if (z < 976)
        restore(a);
    else if (z < 980)
        damage(s);
    else if (z < 984)
        cut_lane(a, b);
    else if (z < 990 && b != a && !site[b].dead)
        start_exchange(a, b);
    else if (z < 993) {
        must(s, orset_begin(s->os));
        must(s, orset_local_keeper(s->os, some_home(s), alive() + 1));
        commit(s);
    } else if (z == 999 && deaths == 0 && nsites > 2 && below(3) == 0)
        die(a);
}

static void digest_of(struct site *s, uint8_t d[16])
{
    orset_digest(s->os, d);
}

/* A folder whose name only a dead or restored site knew: somebody gives it one. */
static bool name_nameless(struct site *s)
{
    bool any = false;
    for (uint32_t i = 1; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, i, &f));
        if (!f.live || f.named)
            continue;
        if (deaths == 0 && restores == 0)
            fail("a folder without a name, though nobody was lost", s);
        char name[40] = {0};
        int n =
            snprintf(name + 1, sizeof name - 1, "lost-%" PRIu64 "-%" PRIu64, f.id_origin.site, f.id_counter);
        must(s, orset_begin(s->os));
        must(s, orset_local_rename(s->os, i, name, (size_t)n + 1));
        commit(s);
        any = true;
    }
    return any;
}

/* Everybody does what is left; UID rounds until none is due. */
static void heal(void)
{
    for (unsigned turn = 0; turn < 60; turn++) {
        bool busy = false;
        for (unsigned a = 0; a < nsites; a++) {
            if (site[a].dead)
                continue;
            while (work(&site[a], 0, 0))
                busy = true;
            struct site *s = &site[a];
            must(s, orset_begin(s->os));
            uint64_t before = orset_vector_get(s->os, orset_self(s->os));
            for (uint32_t i = 0; i < orset_folders(s->os); i++)
                if (is_home(s, i)) {
                    ingest_box(s, i);
                    ingest_missing(s, i);
                }
            commit_ingest(s);
            busy |= orset_vector_get(s->os, orset_self(s->os)) != before;
        }
        for (unsigned a = 0; a < nsites; a++)
            for (unsigned b = 0; b < nsites; b++)
                if (a != b && !site[a].dead && !site[b].dead) {
                    while (lane[a][b].n > 0)
                        deliver(a, b, false);
                    ship(a, b);
                    deliver(a, b, false);
                    if (turn % 4 == 0)
                        start_exchange(a, b);
                    while (exchange_step(a, b, false))
                        ;
                }
        for (unsigned a = 0; a < nsites; a++)
            while (!site[a].dead && work(&site[a], 0, 0))
                busy = true;
        for (unsigned a = 0; a < nsites; a++)
            if (!site[a].dead)
                busy |= round_step(a, false);
        if (!busy && turn > 4) {
            for (unsigned a = 0; a < nsites; a++)
                busy |= !site[a].dead && name_nameless(&site[a]);
            if (!busy)
                return;
        }
    }
    fail("not quiet after 60 turns", NULL);
}

/* --- the judgement
 * ---------------------------------------------------------------------------------------------------------
 */

static int check_message(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct site *s = arg;
    struct orset_folder f;
    struct orset_flags want;
    (void)own;
    orset_folder_get(s->os, m->folder, &f);
    if (!f.named)
        return 0;
    uint32_t uid = m->uid;
    uint8_t guid = m->facts.guid[0];
    struct global_dot *d = journal(s, m->dot);
    if (d->removed & ~unsure)
        fail("a removed message is back", s);
    d->sure = true; /* seen here */
    struct mail *mail = uid ? mail_by_uid(box_of(s, f.home), uid) : NULL;
    if (!mail || mail->guid != guid)
        fail("a message of the state is not in its mailbox", s);
    return (void)want, 0;
}

static int explain_one(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct orset_message full;
    struct site *s = arg;
    (void)own;
    orset_message_get(s->os, m->folder, m->dot, &full);
    struct orset_origin o = orset_origin_get(s->os, m->dot.origin);
    fprintf(stderr,
            "  site %d folder %u dot %" PRIu64 ".%" PRIu64 ".%" PRIu64
            " guid %u k %u uid %u claim %u agreed %u\n",
            (int)(s - site) + 1, m->folder, o.site, o.epoch, m->dot.counter, m->facts.guid[0], m->k, m->uid,
            m->claim, full.agreed);
    return 0;
}

static void explain(struct site *x, uint32_t i, struct site *y, uint32_t j)
{
    struct orset_folder f;
    for (uint32_t n = 0; n < orset_folders(x->os); n++)
        if (orset_folder_get(x->os, n, &f) == 0 && f.home == i)
            orset_each_message(x->os, n, explain_one, x);
    for (uint32_t n = 0; n < orset_folders(y->os); n++)
        if (orset_folder_get(y->os, n, &f) == 0 && f.home == j)
            orset_each_message(y->os, n, explain_one, y);
}

static void check_uids(struct site *x, struct site *y)
{
    for (uint32_t i = 0; i < orset_folders(x->os); i++) {
        struct orset_folder f, g;
        must(x, orset_folder_get(x->os, i, &f));
        if (!is_home(x, i))
            continue;
        for (uint32_t j = 0; j < orset_folders(y->os); j++) {
            must(y, orset_folder_get(y->os, j, &g));
            if (!is_home(y, j) || g.id_origin.site != f.id_origin.site ||
                g.id_origin.epoch != f.id_origin.epoch || g.id_counter != f.id_counter)
                continue;
            struct box *a = box_of(x, i), *b = box_of(y, j);
            if (a->n != b->n)
                fail("mailboxes of different size", x);
            for (unsigned n = 0; n < a->n; n++) {
                struct mail *m = mail_by_uid(b, a->mail[n].uid);
                if (!m || m->guid != a->mail[n].guid)
                    explain(x, i, y, j);
                if (!m || m->guid != a->mail[n].guid)
                    fail("a UID names two mails", x);
                if (m->flags != a->mail[n].flags)
                    fail("flags of one mail differ", x);
            }
        }
    }
}

static void judge(void)
{
    uint8_t first[16], d[16];
    struct site *ref = NULL;
    for (unsigned a = 0; a < nsites; a++) {
        struct site *s = &site[a];
        if (s->dead)
            continue;
        digest_of(s, d);
        if (ref && memcmp(first, d, 16) != 0)
            fail("digests differ", s);
        if (!ref)
            memcpy(first, d, 16);
        if (orset_remembered(s->os) != 0 && deaths == 0 && restores == 0)
            fail("something is still remembered", s);
        for (uint32_t i = 0; i < orset_folders(s->os); i++)
            must(s, orset_each_message(s->os, i, check_message, s));
        if (ref)
            check_uids(ref, s);
        ref = ref ? ref : s;
    }
    /* Added and not removed, and known to somebody who is here: must be there. */
    for (size_t i = 0; i < ndots && deaths == 0 && restores == 0; i++)
        if (!dots[i].removed && !dots[i].sure)
            fail("an added message is missing", ref);
}

static void run(uint64_t seed)
{
    seed_now = seed;
    rng = seed * 0x9e3779b97f4a7c15ULL + 1;
    nsites = 2 + below(SITES - 1);
    ndots = 0;
    restores = deaths = unsure = 0;
    memset(site, 0, sizeof site);
    for (unsigned a = 0; a < nsites; a++) {
        site[a].epoch = a + 1;
        site[a].disk = orset_memstore_new(&HEAP);
        site[a].box = calloc(BOXES, sizeof *site[a].box);
        site[a].round_folder = ORSET_NO_FOLDER;
        start(&site[a]);
    }
    steps_done = 0;
    unsigned steps = 200 + below(800);
    for (unsigned i = 0; i < steps; i++)
        step();
    healing = true;
    heal();
    judge();
    healing = false;
    for (unsigned a = 0; a < nsites; a++) {
        if (!site[a].dead)
            stop(&site[a]);
        for (unsigned b = 0; b < nsites; b++)
            cut_lane(a, b);
        orset_memstore_free(site[a].disk);
        orset_memstore_free(site[a].old);
        free(site[a].box);
    }
}

#endif
